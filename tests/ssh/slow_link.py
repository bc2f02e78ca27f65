"""A network between a client and a host: `python slow_link.py PORT MS` listens on a port of the loopback, which it prints, and passes all bytes on to
PORT, each MS milliseconds later. Both directions together are the round trip. The bandwidth is the loopback's.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Pass on what comes; what came while something waits, waits no longer than that."""
    loop = asyncio.get_running_loop()
    on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, data = await on_its_way.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                break
            writer.write(data)
        writer.close()

    arriving = asyncio.create_task(arrive())
    data = b"-"
    while data:
        data = b""
        with suppress(ConnectionError):
            data = await reader.read(1 << 16)
        on_its_way.put_nowait((loop.time() + delay_s, data))
    await arriving


async def main(port: int, delay_s: float) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            later(reader, forth, delay_s), later(back, writer, delay_s), return_exceptions=True
        )

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1e3))
