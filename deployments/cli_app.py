"""The `memory` program around its commands. In: a command line. Out: an answer and an honest exit code.

0: done. 1: something failed. 2: the command, a setting or an argument is wrong, and nothing was changed. Errors are one
sentence on standard error; a traceback goes to the log file below MEMORY_HOME only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import structlog
import typer

from deployments.log_lines import configure_log_lines, drop_log_lines, open_log_file
from deployments.services import Lease, Service, acquire
from deployments.visible_text import visible
from memory_core.errors import AgentMemoryError, ConfigError, ValidationError, scrub
from memory_core.ports import Core, Progress, ignore_progress
from memory_core.settings import Settings, load_settings

app = typer.Typer(
    name="memory",
    help="A durable memory for AI agents: store, keep directories in sync, search with the exact place.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_LAST_MESSAGES_SECONDS = 5.0
_WATCH_SECONDS = 0.5

_T = TypeVar("_T")


def run_app() -> None:
    """Run the command line and leave with an honest exit code."""
    code = _run()
    if "prefect" in sys.modules:
        _bound_the_end(code)
        sys.exit(code)  # Prefect sends its last log lines and events when the interpreter ends
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = EXIT_FAILED
    # Everything is closed. Waiting for the driver's sleeping threads would add up to 0.5 s to every command.
    os._exit(code)


def _bound_the_end(code: int) -> None:
    """Give Prefect's last messages a few seconds: where its server is gone, each would be tried for as long."""
    logging.disable(logging.CRITICAL)  # the command has said what happened; what Prefect's threads say now helps nobody
    end = threading.Timer(_LAST_MESSAGES_SECONDS, os._exit, args=(code,))
    end.daemon = True
    end.start()


def _run() -> int:
    """Run the command and turn what was raised into one sentence and an exit code."""
    drop_log_lines()
    try:
        app()
    except SystemExit as done:
        # Typer makes this code of a KeyboardInterrupt, and says nothing.
        return _say_interrupted() if done.code == EXIT_INTERRUPTED else _read_code(done)
    except KeyboardInterrupt:
        return _say_interrupted()
    except (ConfigError, ValidationError) as error:
        _complain(error.message)
        structlog.get_logger(__name__).warning(error.event, error=error.message)
        return EXIT_USAGE
    except AgentMemoryError as error:
        _complain(error.message)
        structlog.get_logger(__name__).error(error.event, error=error.message, cause=error.cause)
    except BrokenPipeError:
        pass  # whoever read the answer has left; there is nobody to tell
    except Exception as error:  # noqa: BLE001 - the last resort of a program that people use: one sentence, no traceback
        trace = scrub("".join(traceback.format_exception(error)))
        structlog.get_logger(__name__).error("internal.error", traceback=trace)
        _complain(f"{type(error).__name__}: this is a defect. The log below MEMORY_HOME/logs has what to report.")
    return EXIT_FAILED


def _read_code(done: SystemExit) -> int:
    return done.code if isinstance(done.code, int) else EXIT_FAILED if done.code else 0


def _say_interrupted() -> int:
    _complain("Interrupted. What was stored stays stored; run the same command again to go on.")
    return EXIT_INTERRUPTED


def _complain(message: str) -> None:
    sys.stderr.write(f"memory: {visible(message)}\n")


def start_command() -> Settings:
    """The settings, and a log that goes where they say."""
    settings = load_settings(env_file=Path(".env"))
    configure_log_lines(settings, open_log_file(settings))
    return settings


def with_core(
    settings: Settings,
    work: Callable[[Core], Awaitable[_T]],
    *,
    needs: frozenset[Service] = frozenset({Service.MONGODB}),
    on_progress: Callable[[Progress], None] = ignore_progress,
) -> _T:
    """Hold what the work needs, wire a core, do the work. Another command at the same time shares the services."""
    from deployments.console import tell
    from memory_core.bootstrap import build_core, share_core

    with acquire(settings, needs, on_progress=tell) as lease:
        if Service.PREFECT in needs:
            from deployments.submit import prepare_prefect

            prepare_prefect(settings, lease.addresses)
        uri = lease.addresses.mongodb_uri
        if uri is None:
            raise ConfigError("No MongoDB is known. Set MONGODB_URI, or unset it to have one started here.")
        core = build_core(settings, mongodb_uri=uri.get_secret_value(), on_progress=on_progress)
        share_core(core)

        async def run() -> _T:
            watch = asyncio.create_task(_watch(lease)) if lease.is_held else None
            try:
                return await work(core)
            finally:
                if watch:
                    watch.cancel()
                await core.close()

        return asyncio.run(run())


async def _watch(lease: Lease) -> None:
    """End the command when its services are gone: Prefect's client would go on asking for minutes.

    As safe as a kill at that moment, which loses nothing that was stored.
    """
    while lease.is_held:  # noqa: ASYNC110 - the end of another process is no event of this loop
        await asyncio.sleep(_WATCH_SECONDS)
    _complain("The local services ended. Run the same command again: what was stored stays stored.")
    os._exit(EXIT_FAILED)
