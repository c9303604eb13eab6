"""The example file: every setting once, equal to the settings, and harmless when it is copied."""

from __future__ import annotations

import re
from pathlib import Path

from deployments.env_example import render_env_example
from memory_core.settings import Settings, load_settings

EXAMPLE = Path(__file__).parents[2] / ".env.example"


def test_the_example_file_is_what_the_settings_say() -> None:
    """A new setting or default shows in the file: `python -m deployments.env_example > .env.example`."""
    assert EXAMPLE.read_text(encoding="utf-8") == render_env_example()


def test_the_example_names_every_variable_once_and_sets_none() -> None:
    """Each with its description above it."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    names = [match[1] for line in lines if (match := re.fullmatch(r"#([A-Z_]+)=\S*", line))]
    assert names == [spec.alias for spec in Settings.model_fields.values()]
    assert all(not line or line.startswith("#") for line in lines)
    assert all(spec.description for spec in Settings.model_fields.values())


def test_the_example_with_every_line_switched_on_changes_nothing(tmp_path: Path) -> None:
    """What the file calls the default is the default."""
    copied = tmp_path / ".env"
    copied.write_text(re.sub(r"^#(?=[A-Z_]+=)", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert load_settings(env_file=copied) == load_settings()
