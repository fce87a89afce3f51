# SPDX-License-Identifier: Apache-2.0
"""Some requests, one of which is slow. Ends when its input does."""
import sys
import time

import tailcam

with open("/proc/self/comm", "w") as f:
    f.write("requests")
h = tailcam.open(sys.argv[1])


def request(name, seconds, text="", value=0, trace=None):
    t = h.token(name)
    h.set_text(t, text)
    h.set_value(t, value)
    if trace:
        h.set_trace(t, *trace)
    h.switch(t)
    time.sleep(seconds)
    h.switch(None)
    h.end(t)


for i in range(60):
    request("checkout", 0.001, "iron", i)
request('\x1b[2J"\n{evil2}', 0.001)
live = h.token('\x1b[2J"\n{evil}')
request("checkout", 0.25, "gold", 4711, ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"))
print("done", flush=True)
sys.stdin.read()
