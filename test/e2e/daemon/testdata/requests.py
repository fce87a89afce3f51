# SPDX-License-Identifier: Apache-2.0
"""Some requests, one of which is slow. Ends when its input does."""
import sys
import time

import tailcam

with open("/proc/self/comm", "w") as f:
    f.write("requests")
h = tailcam.open(sys.argv[1])


def request(name, seconds, text="", value=0, trace=None, **attributes):
    t = h.token(name)
    h.set_text(t, text)
    h.set_value(t, value)
    for key, attribute in attributes.items():
        h.set_attribute(t, key.replace("_", "."), attribute)
    if trace:
        h.set_trace(t, *trace)
    h.switch(t)
    time.sleep(seconds)
    h.switch(None)
    h.end(t)


for i in range(60):
    request("checkout", 0.001, "iron", i, http_route="/cart" if i % 2 else "/pay")
request('\x1b[2J"\n{evil2}', 0.001)
live = h.token('\x1b[2J"\n{evil}')
request("checkout", 0.25, "gold", 4711, ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"),
        http_route="/cart", tenant="gold")
print("done", flush=True)
sys.stdin.read()
