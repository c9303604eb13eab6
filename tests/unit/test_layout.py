"""The house: four packages that are ours, files of a readable size, no registry's address."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("memory_core", "tasks", "flows", "deployments")
MAX_LINES = 400
# Spelled in halves: this file is searched too.
REGISTRY_HOSTS = tuple(
    left + right
    for left, right in (
        ("pypi.", "org"),
        ("pythonhosted", ".org"),
        ("registry.npmjs", ".org"),
        ("conda.", "anaconda.org"),
        ("proxy.golang", ".org"),
        ("crates", ".io"),
        ("artifactory", "."),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("--find", "-links"),
    )
)


def tracked_files() -> list[Path]:
    """What belongs to the repository: tracked, or new and not ignored; all files where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607 - whichever git is here
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert listed.returncode == 0, "this test needs the repository: run it in a clone"
    names = [name.decode() for name in listed.stdout.split(b"\0") if name]
    return [path for name in names if (path := ROOT / name).is_file()]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_the_one_of_this_repository(name: str) -> None:
    """A package `tasks` in site-packages would win over ours, and nobody would see it."""
    module = importlib.import_module(name)
    assert [Path(path) for path in module.__path__] == [ROOT / name]


def test_tests_are_no_packages() -> None:
    """An `__init__.py` below tests would hide the source of the same name."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_source_file_is_longer_than_a_person_reads() -> None:
    """400 lines."""
    long = {
        str(path.relative_to(ROOT)): lines
        for name in PACKAGES
        for path in (ROOT / name).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert not long, long


def test_every_module_says_first_what_it_is_for() -> None:
    """Its first statement is a docstring of at least a sentence."""
    silent = [
        str(path.relative_to(ROOT))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*.py")
        if not re.match(r'"""\S', path.read_text(encoding="utf-8"))
    ]
    assert not silent


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the business of the machine that installs them."""
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in tracked_files()
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert not found


def test_no_source_file_is_binary_to_a_tool() -> None:
    """No NUL in a text file of the source."""
    assert not [path for name in PACKAGES for path in (ROOT / name).rglob("*.py") if b"\0" in path.read_bytes()]


def test_a_command_with_the_local_model_imports_no_sdk_of_paid_providers() -> None:
    """It takes half a second, which every command would pay."""
    code = "import sys, memory_core.bootstrap; print('openai' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
