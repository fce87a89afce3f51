# SPDX-License-Identifier: Apache-2.0
"""A thread of Python that is ready to go on, while another one has the interpreter's lock: it asks
for it every 5 ms, and the other one does not look; or once after 60 ms, and gets it then."""

import ctypes
import os
import sys
import threading
import time

PR_SET_NAME = 15
libc = ctypes.CDLL(None)
began = threading.Event()
truth = {}


def name_thread(name):
    libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def hold():
    name_thread("scn-holder")
    truth["culprit"] = threading.get_native_id()
    began.wait()
    time.sleep(0.002 if asks_once else 0.01)
    if asks_once:
        end = time.monotonic_ns() + 300000000
        while time.monotonic_ns() < end:
            sum(range(100000))  # a step after which it looks
    else:
        sum(range(8000000))  # one step, which keeps the lock, whoever asks for it
    time.sleep(1000)


def wait():
    name_thread(sys.argv[1])
    truth["victim"] = threading.get_native_id()
    began.set()
    rest = 0.005 if asks_once else 0.02
    truth["start"] = time.monotonic_ns() + int(rest * 1e9)
    time.sleep(rest)  # without the lock
    os.getpgid(0)  # with it
    truth["end"] = time.monotonic_ns()
    name_thread("scn-idle")
    done.set()
    time.sleep(1000)


asks_once = len(sys.argv) > 2
if asks_once:
    sys.setswitchinterval(0.06)
done = threading.Event()
threading.Thread(target=hold, daemon=True).start()
while "culprit" not in truth:
    time.sleep(0.001)
threading.Thread(target=wait, daemon=True).start()
done.wait()
print(truth["victim"], truth["culprit"], truth["start"], truth["end"], flush=True)
sys.stdin.read()
os._exit(0)
