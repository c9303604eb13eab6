"""Requests for the path, and what is looked at behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from memory_core.fakes import ScriptedEmbedder
from memory_core.health import StoreHealth
from memory_core.models import StoreOutcome, StoreRequest
from memory_core.ports import Core
from memory_core.store_content import store_content
from memory_core.store_request import Provenance, StoreContentRequest

MakeCore = Callable[..., Core]
LONG = "\n\n".join(f"Paragraph {number} about things. " + "word " * 60 for number in range(20))


def ask(content: str, source_id: str | None = None, *, previous: str | None = None, **fields: Any) -> StoreRequest:
    return StoreRequest(
        request=StoreContentRequest(content=content, source_id=source_id, **fields),
        provenance=Provenance(channel="cli"),
        previous_source_id=previous,
    )


async def store_one(request: StoreRequest, core: Core, **more: Any) -> StoreOutcome:
    (outcome,) = await store_content([request], core=core, **more)
    return outcome


async def stored_text(source_id: str, core: Core) -> str | None:
    stored = await core.store.read_document(source_id)
    return await core.store.read_body(stored.state.body_id) if stored else None


async def healthy(core: Core) -> StoreHealth:
    """Counts; no orphan row, no short document, no mixed revision."""
    health = await core.store.check_health()
    assert health.faults == ()
    return health


def calls_of(core: Core) -> int:
    return len(cast("ScriptedEmbedder", core.embedder).calls)


@dataclass
class Reads:
    """A store that remembers which of its methods were called."""

    inner: object
    names: list[str] = field(default_factory=list[str])

    def __getattr__(self, name: str) -> Any:
        self.names.append(name)
        return getattr(self.inner, name)
