"""Sessions over TCP: a line "put NAME VALUE" or "get NAME"; a session expires a minute after its last use.

    python asyncio_service.py [PORT]
"""

import asyncio
import signal
import sys

import kvstore.aio

db = kvstore.aio.open("sessions.db")


async def answer(command: str, name: str, value: str) -> str:
    if command == "put":
        async with db.transaction() as tx:  # calls of other tasks are not part of it
            await tx.put(f"session:{name}", value, ttl=60)
            number = await tx.incr("logins")
        return f"login {number}"
    if command == "get":
        found = await db.get_and_touch(f"session:{name}", 60)
        return "none" if found is None else found.decode()
    if command == "list":
        return " ".join([key.decode()[8:] async for key in db.keys(prefix="session:")])
    return "what?"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            command, name, value = (line.decode().split() + ["", "", ""])[:3]
            writer.write((await answer(command, name, value) + "\n").encode())
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main() -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):  # (loop.add_signal_handler is for Unix only)
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    async with db:  # closing waits for calls in progress
        port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
        server = await asyncio.start_server(serve, "127.0.0.1", port)
        print("listening on", server.sockets[0].getsockname()[1], flush=True)
        await stop.wait()
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
