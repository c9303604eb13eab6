"""The supervisor's answers, over its socket; no server is started."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deployments.home import ServiceHome
from deployments.service_messages import PROTOCOL, Message, decode, encode
from deployments.supervisor import Supervisor, _listen


@pytest.fixture
async def path(tmp_path: Path) -> AsyncIterator[Path]:
    """The socket of a supervisor that runs."""
    home = ServiceHome(tmp_path)
    home.prepare()
    listener: socket.socket = _listen(home.socket_file())
    running = asyncio.create_task(Supervisor(home).run(listener))
    yield home.socket_file()
    assert (await ask(home.socket_file(), encode(request("stop", force=True))))["event"] == "stopped"
    await running


def request(operation: str, **more: Any) -> Message:
    return {"protocol": PROTOCOL, "operation": operation, **more}


async def ask(path: Path, line: bytes) -> Message:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    answer = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    await writer.wait_closed()
    return decode(answer)


@pytest.mark.parametrize(
    "line",
    [
        encode(request("acquire", needs=["redis"])),
        encode(request("acquire", needs=["mongodb"], options={"unknown": 1})),
        encode(request("dance")),
        b"no json\n",
    ],
)
async def test_a_request_that_is_not_understood_is_answered(path: Path, line: bytes) -> None:
    """A client that got no answer would take it for a supervisor that is just ending, and ask again for minutes."""
    answer = await ask(path, line)
    assert answer["event"] == "error"
    assert "did not understand" in answer["text"]
    assert (await ask(path, encode(request("status"))))["event"] == "status"
