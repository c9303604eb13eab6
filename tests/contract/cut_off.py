"""How a process that is killed in the middle looks from the inside: a function of the adapters is never passed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest


class _CutOffError(Exception):
    """The process got no further."""


@contextmanager
def cut_off(*functions: str) -> Generator[None]:
    """The block ends where one of these is called, named like `mongo_writes.run_transaction`; it must get there."""

    def cut(*_: object, **__: object) -> None:
        raise _CutOffError

    with pytest.MonkeyPatch.context() as patch:
        for name in functions:
            patch.setattr(f"memory_core.adapters.{name}", cut)
        with pytest.raises(_CutOffError):
            yield
