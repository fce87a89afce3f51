# SPDX-License-Identifier: Apache-2.0
"""A program with activities, for tests: the same as clients/c/testdata/client.c, in Python.

    client.py SOCKET open|exact|threads|full|null|reopen|trigger
    client.py SOCKET fork INHERIT
    client.py SOCKET shared DIR
"""

import json
import os
import queue
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tailcam


def spin(ns):
    end = time.thread_time_ns() + ns
    while time.thread_time_ns() < end:
        pass


def show(account, **truth):
    print(json.dumps({**account, **truth}), flush=True)


def measure(h, name, function):
    """The truth lies between what clocks tell inside of the switches and outside of them."""

    def clocks():
        return time.thread_time_ns(), time.monotonic_ns()

    token = h.token(name)
    h.switch(None)  # claims the thread's slot
    outer = clocks()
    h.switch(token)
    inner = clocks()
    function()
    inner = [end - begin for end, begin in zip(clocks(), inner)]
    h.switch(None)
    outer = [end - begin for end, begin in zip(clocks(), outer)]
    show(h.end(token), least_cpu_ns=inner[0], least_wall_ns=inner[1], most_cpu_ns=outer[0], most_wall_ns=outer[1])


def exact(h):
    measure(h, "spin", lambda: spin(20_000_000))
    measure(h, "sleep", lambda: time.sleep(0.02))
    lock, held = threading.Lock(), threading.Event()

    def hold():
        with lock:
            held.set()
            time.sleep(0.02)

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    measure(h, "lock", lock.acquire)
    other.join()
    end, begin = os.pipe()
    other = threading.Thread(target=lambda: (time.sleep(0.02), os.write(begin, b"x")))
    other.start()
    measure(h, "pipe", lambda: os.read(end, 1))
    other.join()


def threads(h):
    """Tokens that go with work items through a queue."""
    work = queue.Queue()
    tokens = [h.token("item") for _ in range(16)]
    wall = dict.fromkeys(tokens, 0)
    for n in range(400):
        work.put(tokens[n % len(tokens)])

    def worker():
        while True:
            try:
                token = work.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic_ns()
            with h.carry(token):
                spin(100_000)
                h.wrap(time.sleep)(0.0001)
            wall[token] += time.monotonic_ns() - began

    workers = [threading.Thread(target=worker) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    for token in tokens:
        show(h.end(token))


def full(h):
    tokens = [h.token("full") for _ in range(300)]
    live = [token for token in tokens if token]
    h.switch(None)
    h.end(live[0])
    assert not h.switch(live[0]) and h.current() is None
    again = h.token("again")
    assert again and again != live[0] and again & 0xFFFFFFFF == live[0] & 0xFFFFFFFF
    for bad in (1, 1 << 32, (1 << 64) - 1, live[1] + (1 << 32)):
        assert not h.switch(bad) and h.read(bad)["token"] == 0
    h.set_value(again, 42)
    h.set_text(again, "a customer of them")
    h.set_trace(again, "00" * 15 + "01", bytes(7) + b"\x02")
    assert sum(h.map(lambda a: a["value"])) == 42
    assert [a["token"] for a in h.filter(lambda a: a["value"])] == [again]
    assert h.fold(lambda n, a: n + 1, 0) == len(live)
    assert h.merge()["wall_ns"] == h.merge(h.accounts())["wall_ns"]
    attributes(h, again, live[1])
    show(h.read(again), tokens=len(live), stats=h.stats())


def attributes(h, a, b):
    def of(token):
        at = (token & 0xFFFFFFFF) * 128 + 120
        numbers = [h._h[at // 2 + n] for n in range(4)]
        pairs = [h._pair(n) for n in numbers if n]
        return [tuple(part.rstrip(b"\0").decode() for part in (p[:32], p[32:])) for p in pairs]

    h.set_attribute(a, "http.route", "/cart")
    h.set_attribute(b, "http.route", "/cart")
    h.set_attribute(a, "tenant", "gold")
    h.set_attribute(a, "http.route", "/pay")
    assert of(a) == [("http.route", "/pay"), ("tenant", "gold")] and of(b) == [("http.route", "/cart")]
    h.set_attribute(a, "http.route", None)
    h.set_attribute(a, "never", "")
    h.set_attribute(a, "k" * 99, "v" * 99)
    assert of(a) == [("k" * 31, "v" * 91), ("tenant", "gold")]
    for key in "345":
        h.set_attribute(a, key, "x")
    assert len(of(a)) == 4 and h.stats()["attributes_full"] == 1
    for n in range(20):  # of 16
        h.set_attribute(b, "n", n or "0")
    assert of(b) == [("http.route", "/cart")]
    h.set_attribute(1, "a", "b")
    tailcam.Handle().set_attribute(a, "a", "b")
    try:
        h.set_attribute(a, "", "b")
    except ValueError:
        return
    raise AssertionError("a key is needed")


def shared(h):
    """A file that two tokens have written to, and one whose token has ended."""
    half, piece = 1 << 20, 1 << 18

    def fresh(name):
        return os.open(os.path.join(sys.argv[3], name), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def dirty(name, fd, begin, end):
        token = h.token(name)
        with h.carry(token):
            for at in range(begin, end, piece):
                assert os.pwrite(fd, bytes(piece), at) == piece
        return token

    both, late = fresh("both"), fresh("late")
    os.sync()
    dirty("one", both, 0, half)
    dirty("other", both, half, 2 * half)
    h.end(dirty("ended", late, 0, piece))
    os.sync()
    print(json.dumps(h.shared()))


def fork(h):
    token = h.token("fork")
    h.switch(token)
    pid = os.fork()
    if not pid:
        spin(10_000_000)
        inherited = bool(h)
        h.switch(token)
        spin(10_000_000)
        h.switch(None)
        os._exit(inherited)
    _, status = os.waitpid(pid, 0)
    h.switch(None)
    show(h.end(token), inherited=os.waitstatus_to_exitcode(status))


def reopen(h):
    """Children leave their parent what it has; and it may close and open again at once."""
    pid = os.fork()
    if not pid:
        h.close()
        os._exit(0)
    os.waitpid(pid, 0)
    h._connection.settimeout(0.2)
    try:
        h._connection.recv(1)
        alive = False
    except TimeoutError:
        alive = True
    for _ in range(20):
        h.close()
        h = tailcam.open(sys.argv[1])
        assert h.token("again")
    print(json.dumps({"alive": alive}))
    h.close()


def null(h):
    assert not h and h.error and h.token("x") is None and h.switch(None) and not h.stats()["stale"]
    assert not any(h.shared().values())
    assert h.end(None)["wall_ns"] == 0 and h.merge()["cpu_ns"] == 0 and list(h.map(id)) == []
    with h.carry(None), h:
        h.wrap(print)(json.dumps({"error": h.error}))


what = sys.argv[2]
if what == "trigger":
    tailcam.trigger('it is "slow"', sys.argv[1])
    taken = tailcam.trigger('it is "slow"', sys.argv[1], last=0.8, after=1)
    print(json.dumps({"id": taken, "tid": os.getpid()}))
    sys.exit()
with tailcam.open(
    sys.argv[1], threads=64, tokens=128, inherit=sys.argv[3:] == ["1"], required=what != "null"
) as handle:
    {
        "exact": exact,
        "threads": threads,
        "full": full,
        "fork": fork,
        "null": null,
        "open": bool,
        "reopen": reopen,
        "shared": shared,
    }[what](handle)
