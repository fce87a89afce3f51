# SPDX-License-Identifier: Apache-2.0
"""Opens many connections of each slow kind, and keeps those that it gets.

usage: clients.py SOCKET CONNECTIONS; ends with its standard input.
"""
import resource
import socket
import sys

KINDS = [
    b"",
    b"GET /v1/status HT",
    b"POST /v1/snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
    b"POST /v1/pause HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
    b"GET /v1/rules HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
    b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
    b"GET /v1/histograms HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
    b"\x00\xff" * 100,
    b"A" * 20000,
]

path, many = sys.argv[1], int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept, connected = [], 0
for i in range(many):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    try:
        s.connect(path)
        connected += 1
        s.setblocking(False)
        s.send(KINDS[i % len(KINDS)])
        if i % 17 == 0:
            s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    kept.append(s)
    if len(kept) > 2000:  # these are the ones that were refused, but for the first
        kept = kept[:500]
print(connected, flush=True)
sys.stdin.read()
