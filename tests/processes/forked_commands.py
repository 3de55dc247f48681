"""`deputize` for the scripts of tests: a small program that lets the process of the tests fork the command.

Half of the CPU time of a script of many commands is their imports. What this does not show is the installed program:
the tests of the installed wheel start it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.processes.preloaded import COMMAND, Forked

MOST = 1 << 17
"""Bytes of arguments and environment."""
CLIENT = """#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as tests:
    tests.connect({address!r})
    asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)])
    socket.send_fds(tests, [asked.encode()], [0, 1, 2])
    sys.exit(int(tests.recv(16) or 1))
"""


@asynccontextmanager
async def forked_commands(folder: Path) -> AsyncGenerator[None]:
    """Makes the program in ``folder``, which has to be the first of the scripts' ``PATH``."""
    address = f"\0{secrets.token_hex(8)}"  # that of a file could be too long
    folder.mkdir()
    program = folder / Path(COMMAND).name
    program.write_text(CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen()
        listening.setblocking(False)
        errors = list[Exception]()
        serving = asyncio.create_task(_serve(listening, errors))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.wait([serving])
    if errors:
        raise ExceptionGroup("commands were not started", errors)


async def _serve(listening: socket.socket, errors: list[Exception]) -> None:
    async def answered(connection: socket.socket) -> None:
        try:
            await _answer(connection)
        except Exception as error:  # noqa: BLE001 - else no later command is answered
            errors.append(error)

    async with asyncio.TaskGroup() as answers:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            answers.create_task(answered(connection))


async def _answer(connection: socket.socket) -> None:
    with connection:
        connection.setblocking(False)
        await _readable(connection)
        asked, streams, flags, _ = socket.recv_fds(connection, MOST, 3)
        if not asked:  # the command was ended before it asked
            return
        try:
            assert not flags & socket.MSG_TRUNC, f"the arguments and environment of a command exceed {MOST} bytes"
            arguments, cwd, environment = json.loads(asked)
            process = Forked(COMMAND, arguments, environment, *streams, cwd=Path(cwd))
        finally:
            for each in streams:
                os.close(each)
        code = await process.ended()
        with suppress(ConnectionError):  # the program that asked may have been ended
            connection.send(str(code if code >= 0 else 128 - code).encode())


async def _readable(connection: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
