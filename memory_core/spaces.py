"""Who may write to a database. In: what `meta` says and what a process is. Out: its next word, or a refusal. Pure.

One embedding space is active: queries use it. A second one may be pending: a re-embed fills it, and processes of both
may write. After `memory reembed --now` the space that was active before is the previous one until no document is of it
any more. Schema and recipe (how texts are cut) are one each. Every store of `meta` keeps these rules.
"""

from __future__ import annotations

from dataclasses import replace

from memory_core.answers import Coverage
from memory_core.errors import ForeignDatabaseError
from memory_core.store_ports import ActiveSpace

# What this program writes: the number of its last migration.
SCHEMA_VERSION = 2


def refuse_other(space: ActiveSpace, *, fingerprint: str, recipe: str | None) -> None:
    """Let only a process write that is of the database's schema, recipe and spaces. Without a recipe it cuts nothing.

    Raises:
        ForeignDatabaseError: naming what differs, on both sides, and the way out.
    """
    refuse_other_schema(space)
    refuse_other_space(space, fingerprint)
    if recipe is not None:
        refuse_other_recipe(space, recipe)


def refuse_other_schema(space: ActiveSpace) -> None:
    """Let only a program of the database's schema write.

    Raises:
        ForeignDatabaseError: naming both schemas, and `memory migrate` or a newer program.
    """
    if space.schema_version == SCHEMA_VERSION:
        return
    way_out = (
        "run `memory migrate`, which brings it up to date (`memory migrate --dry-run` shows what that is)."
        if space.schema_version < SCHEMA_VERSION
        else "use a newer version of this program."
    )
    raise ForeignDatabaseError(
        f"This database has schema {space.schema_version} and this program writes schema {SCHEMA_VERSION}. It is read "
        f"but not written: {way_out}"
    )


def refuse_other_recipe(space: ActiveSpace, recipe: str) -> None:
    """Let only processes write that cut texts as the memory does: two that differ would undo each other's work.

    Raises:
        ForeignDatabaseError: naming both recipes and the two ways out.
    """
    if space.recipe in {None, recipe}:
        return
    raise ForeignDatabaseError(
        f"This memory cuts texts as {space.recipe} and this process as {recipe} (chunker, sizes, tokenizer, parsers of "
        "code). It is read but not written: set CHUNK_SIZE_TOKENS, CHUNK_OVERLAP_TOKENS and CHUNK_MIN_TOKENS back (and "
        "install the same packages), or cut everything anew with `memory reembed --rechunk`."
    )


def adopt_recipe(space: ActiveSpace, recipe: str) -> ActiveSpace:
    """The recipe of the first writer becomes the memory's.

    Raises:
        ForeignDatabaseError: it has another one.
    """
    refuse_other_recipe(space, recipe)
    return replace(space, recipe=recipe)


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
