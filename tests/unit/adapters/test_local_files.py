"""A feed and the memory's own files: passwords and databases are never content."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_core.adapters.local_files import LocalFiles
from memory_core.errors import SyncError
from memory_core.work_ports import Feed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in ("notes/a.md", "notes/home/services/credentials.json", "notes/home/logs/memory.log", "notes/home/b.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text", encoding="utf-8")
    return tmp_path / "notes"


async def scan(root: Path, home: Path) -> dict[str, str | None]:
    found = await LocalFiles(memory_home=home).scan(Feed(name="notes", root=str(root)))
    return {file.path: file.skip_reason for file in found.files}


async def test_a_home_below_the_root_is_left_out_and_said(root: Path) -> None:
    """Also where the home is named by another path, and where a link leads into it."""
    (root.parent / "link").symlink_to(root / "home")
    (root / "leak.json").symlink_to(root / "home" / "services" / "credentials.json")
    reason = "these are files of the memory itself (MEMORY_HOME)"
    assert await scan(root, root.parent / "link") == {"a.md": None, "home": reason, "leak.json": reason}


async def test_a_root_inside_the_home_is_the_users_except_what_is_the_memorys(root: Path) -> None:
    """A volume with notes and memory in one directory can be a feed; its passwords are none."""
    shown = await scan(root / "home", root / "home")
    assert {path for path, reason in shown.items() if reason is None} == {"b.md"}
    assert {path for path, reason in shown.items() if reason} == {"services", "logs"}


async def test_the_memorys_own_directory_is_no_feed(root: Path) -> None:
    """It is refused, not emptied."""
    with pytest.raises(SyncError, match="files of the memory itself"):
        await scan(root / "home" / "services", root / "home")


async def test_a_home_elsewhere_changes_nothing(root: Path, tmp_path: Path) -> None:
    """The usual case."""
    assert set(await scan(root, tmp_path / "elsewhere")) == {
        "a.md",
        "home/b.md",
        "home/logs/memory.log",
        "home/services/credentials.json",
    }
