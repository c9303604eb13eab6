"""Options that several commands have, as typer takes them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
CostOption: TypeAlias = Annotated[
    float | None, typer.Option("--max-cost", min=0, help="Stop before a run that costs more US dollars.")
]
