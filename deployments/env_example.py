"""The text of `.env.example`. In: the settings. Out: every variable with its description and default, commented out.

`python -m deployments.env_example > .env.example` writes the file anew; a test keeps the two equal.
"""

from __future__ import annotations

import sys
import textwrap
from enum import StrEnum

from pydantic.fields import FieldInfo

from memory_core.settings import Settings

_WIDTH_CHARS = 100
_HEAD = (
    "Every setting of the memory, each with its default. Copy this file to .env and take the # away from the lines "
    "that you change. Nothing has to be set: on one machine everything runs without it. A blank value means the "
    "default. Variables of the environment win over this file."
)


def render_env_example() -> str:
    """The whole file."""
    blocks = [_comment(_HEAD), *(_render(spec) for spec in Settings.model_fields.values())]
    return "\n\n".join(blocks) + "\n"


def _render(spec: FieldInfo) -> str:
    return f"{_comment(spec.description or '')}\n#{spec.alias}={_show_default(spec)}"


def _comment(text: str) -> str:
    return textwrap.fill(text, _WIDTH_CHARS, initial_indent="# ", subsequent_indent="# ")


def _show_default(spec: FieldInfo) -> str:
    """The default as it is written in a file; blank where it is none, or is found out on each machine."""
    match spec.default:
        case bool() as value:
            return str(value).lower()
        case StrEnum() | int() | float() | str() as value:
            return str(value)
        case _:
            return ""


if __name__ == "__main__":
    sys.stdout.write(render_env_example())
