# SPDX-License-Identifier: Apache-2.0
"""A server that forks its two workers beforehand. A request is how long it takes, in ms."""

import ctypes
import os
import signal
import socket
import sys
import time

PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1
libc = ctypes.CDLL(None)


def listen(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen(16)
    return s


def work(server):
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_NAME, b"scn-worker", 0, 0, 0)
    while True:
        client, _ = server.accept()
        time.sleep(int(client.recv(16)) / 1000)
        client.send(b"%d\n" % os.getpid())
        client.close()


path, shared = sys.argv[1], sys.argv[2] == "shared"
aside = listen(path + ".aside")  # nobody asks here
server = listen(path + ".new")
for mine in (server, server if shared else aside):
    if os.fork() == 0:
        work(mine)
os.rename(path + ".new", path)
signal.pause()
