"""Which embedding spaces a database takes. In: what `meta` says. Out: what it says next, or a refusal. Pure.

One space is active: queries use it. A second one may be pending: a re-embed fills it, and processes of both may write.
After `memory reembed --now` the space that was active before is the previous one until no document is of it any more.
Every store of `meta` keeps these rules.
"""

from __future__ import annotations

from dataclasses import replace

from memory_core.errors import ForeignDatabaseError
from memory_core.ports import ActiveSpace, Coverage


def refuse_other_space(space: ActiveSpace, fingerprint: str) -> None:
    """Let only processes of the active and of the pending space write.

    Raises:
        ForeignDatabaseError: naming both spaces and the command that changes them.
    """
    if fingerprint in {space.fingerprint, space.pending}:
        return
    raise ForeignDatabaseError(
        f"This database holds vectors of {space.fingerprint}, the settings ask for {fingerprint}. Nothing was written: "
        "set the embedding settings (EMBEDDING_PROVIDER, EMBEDDING_MODEL, EMBEDDING_DIMENSIONS) back, or move "
        "everything stored to the new ones with `memory reembed`."
    )


def declare(space: ActiveSpace, fingerprint: str) -> ActiveSpace:
    """Make a space the pending one; nothing changes where it is that already, or the active one.

    Raises:
        ForeignDatabaseError: another space is pending.
    """
    if space.pending not in {None, fingerprint}:
        raise _other_is_pending(space, fingerprint)
    return space if fingerprint == space.fingerprint else replace(space, pending=fingerprint)


def activate(space: ActiveSpace, fingerprint: str, *, complete: bool) -> ActiveSpace:
    """Make a space the active one. `complete` says that every document is of it.

    A pending space is given up where the active one is activated again: its documents are re-embedded back.

    Raises:
        ForeignDatabaseError: a third space is pending.
    """
    if space.pending and fingerprint not in {space.fingerprint, space.pending}:
        raise _other_is_pending(space, fingerprint)
    left = space.pending if fingerprint == space.fingerprint else space.fingerprint
    previous = None if complete else left or space.previous
    return replace(space, fingerprint=fingerprint, pending=None, previous=previous)


def describe_move(space: ActiveSpace, coverage: Coverage) -> str | None:
    """What is to be said of a move to another space that is not finished, None where there is none.

    `coverage` is that of the pending space, of the active one where none is pending.
    """
    covered, missing = coverage.covered_documents, coverage.documents - coverage.covered_documents
    if space.pending:
        return (
            f"A re-embed to {space.pending} is not finished: it covers {covered:,} of {coverage.documents:,} "
            f"documents. Queries use {space.fingerprint} until then. Run `memory reembed` with its settings."
        )
    if missing:
        return (
            f"{missing:,} of {coverage.documents:,} documents are not of the active embedding space "
            f"{space.fingerprint}: only their words are found. Run `memory reembed`."
        )
    return None


def describe_coverage(coverage: Coverage) -> str:
    """How much an embedding space covers, as a sentence."""
    documents = f"{coverage.documents:,} document{'' if coverage.documents == 1 else 's'}"
    chunks = f"{coverage.chunks:,} chunk{'' if coverage.chunks == 1 else 's'}"
    return (
        f"{coverage.fingerprint} covers {coverage.covered_documents:,} of {documents} "
        f"({coverage.covered_chunks:,} of {chunks})."
    )


def _other_is_pending(space: ActiveSpace, fingerprint: str) -> ForeignDatabaseError:
    return ForeignDatabaseError(
        f"A re-embed from {space.fingerprint} to {space.pending} is not finished, and the settings ask for "
        f"{fingerprint}. Nothing was changed: finish it by `memory reembed` with the settings of {space.pending}, or "
        f"give it up by `memory reembed --now` with those of {space.fingerprint}."
    )
