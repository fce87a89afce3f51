# SPDX-License-Identifier: Apache-2.0
"""An event loop that answers some by itself, and asks a backend for others: served.py SOCKET."""

import asyncio
import sys

PAGE = b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"


async def serve(reader, writer):
    request = await reader.readuntil(b"\r\n\r\n")
    page = PAGE
    if b"/slow" in request:
        back, forth = await asyncio.open_unix_connection(sys.argv[1] + "b")
        forth.write(request)
        page = await back.read()
        forth.close()
    writer.write(page)
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_unix_server(serve, sys.argv[1])
    await server.serve_forever()


asyncio.run(main())
