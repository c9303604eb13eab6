"""What a person sees in Prefect: deployments, runs whose state tells the truth, a table that names what failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deployments.prefect_environment import prefect_environment
from deployments.services import Addresses
from memory_core.settings import Settings

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]


class Api:
    """Prefect's API as its own UI uses it."""

    def __init__(self, addresses: Addresses) -> None:
        assert addresses.prefect_auth is not None
        user, _, password = addresses.prefect_auth.get_secret_value().partition(":")
        self.client = httpx.Client(
            base_url=f"{addresses.prefect_api_url}/", auth=(user, password), timeout=30, trust_env=False
        )

    def read(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The rows of a filter."""
        answer = self.client.post(f"{path}/filter", json=body)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture
def api(service_addresses: Addresses) -> Iterator[Api]:
    """The session's Prefect server."""
    opened = Api(service_addresses)
    yield opened
    opened.client.close()


def test_every_entrypoint_of_prefect_yaml_loads() -> None:
    """Each deployment names a flow that exists, by its dotted name, of the flow's own name."""
    from prefect.flows import load_flow_from_entrypoint

    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    loaded = {
        f"{load_flow_from_entrypoint(one['entrypoint'], use_placeholder_flow=False).name}/{one['name']}": one
        for one in deployments
    }
    assert {"store-content/default", "store-content/manual", "sync-directory/default"} <= set(loaded)
    scheduled = [one for one in deployments if one.get("schedules")]
    assert scheduled
    assert all(not schedule["active"] for one in scheduled for schedule in one["schedules"])


def test_deploy_all_works_without_questions(session_settings: Settings, service_addresses: Addresses, api: Api) -> None:
    """`prefect --no-prompt deploy --all` registers every deployment, twice, and its forms describe their fields."""
    environment = {**os.environ, **prefect_environment(session_settings, service_addresses)}
    environment["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "INFO"
    prefect = str(Path(sys.executable).with_name("prefect"))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [prefect, "--no-prompt", *arguments],
            cwd=ROOT,
            env=environment,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )

    run("work-pool", "create", "memory", "--type", "process")
    for _ in range(2):
        done = run("deploy", "--all")
        assert done.returncode == 0, done.stdout + done.stderr
    found = {one["name"]: one for one in api.read("deployments")}
    assert {"default", "manual", "nightly"} <= set(found)
    form = str(found["manual"]["parameter_openapi_schema"])
    assert "The text to remember" in form


def test_killed_run_is_marked_crashed_by_the_next_command(
    memory: Any, write_corpus: Callable[[int], Path], api: Api
) -> None:
    """A run whose process was killed does not stay Running for ever."""
    root = write_corpus(300)
    name = f"killed-{uuid.uuid4().hex[:8]}"
    memory.extra["MEMORY_BATCH_DOCUMENTS"] = "5"

    def states() -> list[str]:
        runs = api.read("flow_runs", sort="START_TIME_DESC", flow_runs={"tags": {"all_": [f"feed:{name}"]}})
        return [run["state_type"] for run in runs]

    run = memory.start("ingest", str(root), "--feed", name)
    while states() != ["RUNNING"]:
        assert run.poll() is None, run.communicate()
    run.kill()
    run.communicate()
    assert memory.run("ingest", str(root), "--feed", name).returncode == 0
    assert states() == ["COMPLETED", "CRASHED"]


def test_run_with_a_failed_file_is_failed_and_names_it(
    memory: Any, write_corpus: Callable[[int], Path], api: Api
) -> None:
    """The run's state, message and table say which file failed; content stays out of Prefect."""
    root = write_corpus(3)
    marker = f"marker{uuid.uuid4().hex}"
    (root / "broken.txt").write_text(f"{marker} word " * 400_000)
    done = memory.run("ingest", str(root), "--feed", f"feed-{marker[6:14]}")
    assert done.returncode == 1
    runs = api.read("flow_runs", sort="START_TIME_DESC", limit=1)
    assert runs[0]["state_type"] == "FAILED"
    assert "1 of 4 failed: broken.txt" in runs[0]["state"]["message"]
    artifacts = api.read("artifacts", artifacts={"key": {"like_": marker[6:14]}})
    assert "broken.txt" in artifacts[0]["data"]
    expected = {"plan", "read", "validate", "chunk", "embed", "persist", "record", "prune"}
    deadline = time.monotonic() + 30  # Prefect records task runs from events, a moment later
    while not expected <= (found := _task_names(api, runs[0]["id"])):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    everything = str(runs) + str(artifacts) + str(api.read("logs", limit=200))
    assert marker not in everything


def _task_names(api: Api, flow_run_id: str) -> set[str]:
    rows = api.read("task_runs", flow_runs={"id": {"any_": [flow_run_id]}})
    return {re.sub(r"-\w+$", "", row["name"]) for row in rows}
