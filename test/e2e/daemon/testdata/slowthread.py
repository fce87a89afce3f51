# SPDX-License-Identifier: Apache-2.0
"""A thread that was slow, and says so; or with the name of an activity, one that works for it.

Prints its id, as it knows it, and the snapshot's; ends when its input does.
"""
import sys
import threading
import time

import tailcam


def slow():
    with open("/proc/thread-self/comm", "w") as f:
        f.write("slow-python")
    if len(sys.argv) > 2:
        h = tailcam.open(sys.argv[1])
        h.switch(h.token(sys.argv[2]))
        print(threading.get_native_id(), flush=True)
    else:
        time.sleep(0.3)
        print(threading.get_native_id(), tailcam.trigger("slow request", sys.argv[1], last=0.6, after=0.02), flush=True)
    sys.stdin.read()


threading.Thread(target=slow).start()
