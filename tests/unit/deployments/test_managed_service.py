import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from deployments.child_process import Child
from deployments.managed_service import ManagedService, Say
from memory_core.errors import ServiceError


@dataclass
class FakeChild:
    """A process that ends when it is told to."""

    pid: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    launch: Any = field(default_factory=lambda: type("Launch", (), {"title": "Server 1.0"}))

    @property
    def is_running(self) -> bool:
        """As long as nobody ended it."""
        return not self.ended.is_set()

    async def wait(self) -> int:
        """Until it ends."""
        await self.ended.wait()
        return 0

    async def stop(self) -> None:
        """End it."""
        self.ended.set()

    def failure(self, what: str) -> ServiceError:
        """Without a log."""
        return ServiceError(f"Server 1.0 {what}.")


@dataclass
class FakeServer:
    """Starts when its gate is open, after `failures` failed starts."""

    name: str = "server"
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    children: list[FakeChild] = field(default_factory=list[FakeChild])
    failures: int = 0
    starts: int = 0

    async def start(self, say: Say) -> Child:
        """Count, speak, wait for the gate."""
        self.starts += 1
        say("Starting Server 1.0 ...")
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ServiceError("Server 1.0 did not start.")
        self.children.append(FakeChild(pid=len(self.children) + 1))
        return cast("Child", self.children[-1])

    def describe(self) -> dict[str, Any]:
        """Nothing to say."""
        return {}


def make(*, needed: bool = True, is_open: bool = True) -> tuple[FakeServer, ManagedService]:
    server = FakeServer()
    if is_open:
        server.gate.set()
    return server, ManagedService(server, is_needed=lambda: needed)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - any state of the service can be waited for, not one event
            await asyncio.sleep(0)


async def test_clients_at_once_start_one_server() -> None:
    """Whoever comes while a server starts waits for that start and hears how far it is."""
    server, service = make(is_open=False)
    first: list[str] = []
    second: list[str] = []
    clients = [asyncio.create_task(service.ensure(first.append))]
    await until(lambda: server.starts == 1)
    clients.append(asyncio.create_task(service.ensure(second.append)))
    await until(lambda: bool(second))
    server.gate.set()
    await asyncio.gather(*clients)
    assert server.starts == 1
    assert first == second == ["Starting Server 1.0 ..."]
    assert service.is_running
    await service.stop()


async def test_a_client_that_leaves_does_not_end_the_start() -> None:
    """Ctrl-C of one client during a start is no harm to the next."""
    server, service = make(is_open=False)
    client = asyncio.create_task(service.ensure(print))
    await until(lambda: server.starts == 1)
    client.cancel()
    await asyncio.gather(client, return_exceptions=True)
    server.gate.set()
    await service.ensure(print)
    assert server.starts == 1
    await service.stop()


async def test_a_failed_start_reaches_everybody_and_the_next_request_tries_again() -> None:
    """The error is not remembered longer than it is true."""
    server, service = make()
    server.failures = 1
    results = await asyncio.gather(service.ensure(print), service.ensure(print), return_exceptions=True)
    assert [str(result) for result in results] == ["Server 1.0 did not start."] * 2
    assert service.error == "Server 1.0 did not start."
    await service.ensure(print)
    assert service.error is None
    await service.stop()


async def test_a_needed_server_that_dies_is_started_again_a_few_times() -> None:
    """A crash is mended; a server that crashes again and again is left alone, and its clients are told why."""
    server, service = make()
    await service.ensure(print)
    for count in (2, 3, 4):
        server.children[-1].ended.set()
        await until(lambda count=count: len(server.children) == count and service.is_running)
    server.children[-1].ended.set()
    await until(lambda: "left alone" in str(service.error))
    assert not service.is_running
    await service.ensure(print)
    assert service.is_running
    await service.stop()


async def test_a_server_that_nobody_needs_is_not_started_again() -> None:
    """A crash after the last client left is recorded and costs nothing."""
    server, service = make(needed=False)
    await service.ensure(print)
    server.children[-1].ended.set()
    await until(lambda: service.error is not None)
    assert not service.is_active
    assert server.starts == 1


async def test_a_client_that_comes_while_the_server_stops_gets_a_new_one() -> None:
    """The end of the idle time and a new client may meet."""
    server, service = make()
    await service.ensure(print)
    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    await service.ensure(print)
    assert await stopping
    assert len(server.children) == 2
    assert service.is_running
    await service.stop()
    assert not await service.stop()


async def test_a_defect_in_a_start_is_a_sentence_too() -> None:
    """An unforeseen exception does not leave clients waiting."""
    _, service = make()

    async def broken(_say: Say) -> Child:
        raise ZeroDivisionError

    service.server.start = broken  # type: ignore[method-assign]  # the defect under test
    with pytest.raises(ServiceError, match="could not be started"):
        await service.ensure(print)
