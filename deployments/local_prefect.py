"""A Prefect server of our own. In: a home and its database. Out: a server on loopback, behind a password.

It runs in one process, without telemetry, in a PREFECT_HOME of its own, so that no profile and no `.env` of the user
changes it.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deployments.child_process import Child, Launch, basic_environment, spawn
from deployments.home import Credentials, ServiceHome, choose_port
from deployments.managed_service import Say
from memory_core.errors import ServiceError

NAME = "prefect"
API_USER = "memory"
# The first start applies some 150 migrations.
_READY_SECONDS = 180.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_REQUEST_SECONDS = 5.0
_PORT_ATTEMPTS = 5
_PORT_TAKEN = "address already in use"
_RUNS_KEPT_SECONDS = 30 * 86_400

# Without these a task run costs the server 20 ms of CPU, with them 5 (measured on 3.9.1).
_BATCHES = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "100",
}
_SILENCE = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
}
_RETENTION = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(_RUNS_KEPT_SECONDS),
}


@dataclass(slots=True, kw_only=True)
class LocalPrefect:
    """How the Prefect server of one home is started. `database_url` starts the database where that is needed."""

    home: ServiceHome
    credentials: Credentials
    database_url: Callable[[], Awaitable[str]]
    name: str = NAME
    port: int | None = None

    @property
    def auth(self) -> str:
        """What clients and the page's log-in send: user:password."""
        return f"{API_USER}:{self.credentials.prefect_api}"

    @property
    def ui_url(self) -> str:
        """The page."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api_url(self) -> str:
        """The API that clients use."""
        return f"{self.ui_url}/api"

    async def start(self, say: Say) -> Child:
        """Start the database and the server and return it when its API answers.

        Raises:
            ServiceError: with the log's last lines.
        """
        database_url = await self.database_url()
        say(f"Starting Prefect {version('prefect')} ...")
        for _ in range(_PORT_ATTEMPTS):
            self.port = choose_port(self.home, NAME)
            child = await spawn(self._launch(database_url), home=self.home)
            say("Waiting for Prefect ...")
            try:
                await self._wait_until_ready(child)
            except ServiceError as error:
                await child.stop()
                if _PORT_TAKEN not in error.message:
                    raise
            else:
                return child
        raise ServiceError(f"Prefect found no free port on 127.0.0.1 in {_PORT_ATTEMPTS} attempts. Try again.")

    def describe(self) -> dict[str, Any]:
        """Version and port, as far as they are known."""
        return {"version": version("prefect"), "port": (self.home.read_record("ports") or {}).get(NAME)}

    def _launch(self, database_url: str) -> Launch:
        directory = self.home.own_directory(NAME)
        # Prefect starts its own background server with this command; the CLI in front of it takes 0.3 s more.
        command = (
            *(sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"),
            *("--host", "127.0.0.1", "--port", str(self.port), "--log-level", "warning"),
            # An idle event stream must not keep a stop waiting.
            *("--timeout-graceful-shutdown", "5"),
        )
        return Launch(
            name=NAME,
            title=f"Prefect {version('prefect')}",
            command=command,
            directory=directory,
            log=self.home.log(NAME),
            stop_signal=signal.SIGTERM,
            stop_seconds=_STOP_SECONDS,
            environment=server_environment(
                directory=directory, ui_url=self.ui_url, auth=self.auth, database_url=database_url
            ),
        )

    async def _wait_until_ready(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _READY_SECONDS
        while not await asyncio.to_thread(self._answers):
            if not child.is_running:
                raise child.failure("did not start")
            if loop.time() > deadline:
                raise child.failure(f"did not answer within {_READY_SECONDS:g} s")
            await asyncio.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        """Ask with the password, so that another server on the port is not taken for ours."""
        token = base64.b64encode(self.auth.encode()).decode()
        connection = http.client.HTTPConnection("127.0.0.1", int(self.port or 0), timeout=_REQUEST_SECONDS)
        try:
            connection.request("GET", "/api/admin/version", headers={"Authorization": f"Basic {token}"})
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def server_environment(*, directory: Path, ui_url: str, auth: str, database_url: str) -> dict[str, str]:
    """The server's variables: the few that any server gets, and what is set here."""
    return {
        **basic_environment(),
        "PYTHONUTF8": "1",
        **_SILENCE,
        **_BATCHES,
        **_RETENTION,
        "PREFECT_HOME": str(directory),
        "PREFECT_PROFILES_PATH": str(directory / "profiles.toml"),
        "PREFECT__SERVER_FINAL": "1",
        "PREFECT_SERVER_API_AUTH_STRING": auth,
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": ui_url.rsplit(":", 1)[-1],
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database_url,
        # Pages of other origins have no business with this API.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{ui_url},{ui_url.replace('127.0.0.1', 'localhost')}",
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
        "PREFECT_SERVER_UI_API_URL": f"{ui_url}/api",
        "PREFECT_UI_STATIC_DIRECTORY": str(directory / "ui"),
    }


def sqlite_url(home: ServiceHome) -> str:
    """The database where there is no packaged PostgreSQL.

    Prefect gives SQLite a single connection only when the address has `:memory:` in it; with more, a third of all
    writes fail with "database is locked". So the file's name has it.
    """
    return f"sqlite+aiosqlite:///{home.own_directory(NAME)}/prefect:memory:.db"
