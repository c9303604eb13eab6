"""The content commands of the command line. In: arguments and a core. Out: what to show and the exit code; no rules."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.console import out, print_chunks, print_json, tell
from deployments.submit import run_submissions
from deployments.visible_text import visible_line
from memory_core.adapters.file_readers import read_text_file
from memory_core.adapters.file_types import content_type_of
from memory_core.adapters.tiktoken_counter import load_tiktoken_counter
from memory_core.answers import Deletion, StoredDocument
from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk_values import ChunkingResult, ChunkOptions
from memory_core.errors import ConflictError, NotFoundError, SyncError, ValidationError
from memory_core.files import MAX_FILE_BYTES, FileText
from memory_core.identity import fold_content_type
from memory_core.languages import language_of
from memory_core.models import ContentType, Outcome, StoreRequest
from memory_core.ports import Core
from memory_core.rules import normalise_text
from memory_core.settings import Settings
from memory_core.store_ports import DeleteSelector
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.submissions import stage_request
from memory_core.validate import parse_request
from memory_core.wire import chunking_json, deletion_json

EXIT_FAILED = 1
_MAX_LEFT_BEHIND = 1_000
_JOIN_SECONDS = 600.0
_POLL_SECONDS = 0.25
_NAMED_SOURCES = 5


def read_request(file: str, fields: Mapping[str, Any], *, metadata: str | None) -> StoreContentRequest:
    """The request of `memory store`: a file's text (or standard input's) and what the options say.

    Raises:
        ValidationError: the file has no text, or an option is not acceptable.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if metadata is not None:
        try:
            given["metadata"] = json.loads(metadata)
        except json.JSONDecodeError:
            raise ValidationError('--metadata is not JSON. Write an object such as \'{"team": "search"}\'.') from None
    if file == "-":
        return parse_request({**given, "content": _read_standard_input()})
    path = Path(file)
    given.setdefault("uri", path.absolute().as_uri())
    given.setdefault("contentType", content_type_of(path.name).value)
    return parse_request({**given, "content": _read_text(path)})


def _read_standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValidationError(
            f"Standard input is not UTF-8 (byte {error.start}). Store the file by its name to have its encoding found."
        ) from None


def _read_text(path: Path) -> str:
    if not path.is_file():
        what = "is no plain file" if path.exists() else "does not exist"
        what = "is a directory: `memory ingest` takes those" if path.is_dir() else what
        raise ValidationError(f"{path} {what}. Nothing changed.")
    try:
        reading = read_text_file(path, max_bytes=MAX_FILE_BYTES)
    except SyncError as error:
        raise ValidationError(f"{path}: {error.message}") from None
    if not isinstance(reading, FileText):
        raise ValidationError(f"{path} was not stored: {reading.reason}.")
    for note in reading.notes:
        tell(note)
    return reading.text


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRun:
    """The outcome of one submission, as plain JSON."""

    outcome: Mapping[str, Any]

    def show(self, *, as_json: bool) -> int:
        """Print the outcome. 1 where it failed."""
        outcome = self.outcome
        failed = outcome["outcome"] == Outcome.FAILED
        if as_json:
            print_json(outcome)
        elif not failed:
            out.print(
                f"{outcome['outcome']}: {outcome['sourceId']} version {outcome['version']}, {outcome['chunkCount']} "
                f"chunks, {outcome['totalTokensEmbedded']:,} tokens embedded.",
                markup=False,
            )
            if outcome["reason"]:
                out.print(visible_line(outcome["reason"]), markup=False)
            for note in outcome["notes"]:
                out.print(visible_line(note), markup=False)
        if failed:
            tell(f"memory: {outcome['error']['message']}")
        return EXIT_FAILED if failed else 0


async def store_request(core: Core, request: StoreContentRequest) -> StoreRun:
    """Stage the content, run the flow on it and on what earlier commands left behind, and say what became of it.

    Raises:
        ConflictError: another process works on the same content and did not finish in time.
    """
    submission = await stage_request(
        StoreRequest(request=request, provenance=Provenance(channel="cli", client_name="memory")), core=core
    )
    wanted = submission.submission_id
    left_behind = [one.submission_id for one in await core.submissions.find_open(limit=_MAX_LEFT_BEHIND)]
    outcomes = await run_submissions(sorted({wanted, *left_behind}), core=core)
    if outcome := outcomes.get(wanted):
        return StoreRun(outcome=outcome)
    # The same content was being stored already: this call joined it, and waits for its outcome.
    for _ in range(round(_JOIN_SECONDS / _POLL_SECONDS)):
        if wanted not in {one.submission_id for one in await core.submissions.find_open(limit=_MAX_LEFT_BEHIND)}:
            break
        await asyncio.sleep(_POLL_SECONDS)
    finished = await core.submissions.read(wanted)
    if finished and finished.outcome:
        return StoreRun(outcome=finished.outcome)
    raise ConflictError(
        "Another command is still storing the same content. Its outcome shows in `memory list` when it is done."
    )


async def find_stored(core: Core, identifier: str) -> StoredDocument:
    """A stored document by source id or document id.

    Raises:
        NotFoundError: there is no such document.
    """
    document = await core.store.read_document(identifier.strip())
    if document is None:
        raise NotFoundError("There is no such document. `memory list` shows what is stored.")
    return document


async def read_version(core: Core, document: StoredDocument, version: int) -> str:
    """The text of one version.

    Raises:
        NotFoundError: the version is no longer kept.
    """
    kept = next((one for one in document.versions if one.version == version), None)
    if kept is None:
        versions = ", ".join(str(one.version) for one in document.versions)
        raise NotFoundError(f"Version {version} is not kept. Kept are: {versions}.")
    return await core.store.read_body(kept.body_id)


async def read_stored(core: Core, identifier: str, version: int | None) -> tuple[StoredDocument, str]:
    """A stored document and the text of its newest or of an earlier version.

    Raises:
        NotFoundError: there is no such document, or the version is no longer kept.
    """
    document = await find_stored(core, identifier)
    return document, await read_version(core, document, document.state.version if version is None else version)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRun:
    """What a delete removed."""

    deletion: Deletion

    def show(self, *, as_json: bool) -> int:
        """Print it. 1 where there was nothing of that name."""
        deletion = self.deletion
        if as_json:
            print_json(deletion_json(deletion))
        elif not deletion.deleted_documents:
            tell("memory: nothing is stored that fits; nothing changed.")
        else:
            self._print()
        return 0 if deletion.deleted_documents else EXIT_FAILED

    def _print(self) -> None:
        deletion, names = self.deletion, self.deletion.source_ids
        shown = ", ".join(names[:_NAMED_SOURCES])
        more = f" and {len(names) - _NAMED_SOURCES:,} more" if len(names) > _NAMED_SOURCES else ""
        verb = "Would delete" if deletion.dry_run else "Deleted"
        out.print(f"{verb} {visible_line(shown)}{more}, {deletion.deleted_chunks:,} chunks.", markup=False)
        if until := deletion.restorable_until:
            out.print(
                f"`memory restore {visible_line(names[0])}` brings it back until {until:%Y-%m-%d %H:%M} UTC.",
                markup=False,
            )


async def delete_selected(
    core: Core, *, source_ids: tuple[str, ...], document_id: str | None, tags: tuple[str, ...], dry_run: bool
) -> DeleteRun:
    """Delete what exactly one of the three names: these sources, one document, or all that carry every tag.

    Raises:
        ValidationError: none or several of them were given.
    """
    if [bool(source_ids), document_id is not None, bool(tags)].count(True) != 1:
        raise ValidationError("Say what to delete: SOURCE_ID, or --id, or --tag. Nothing changed.")
    selector = DeleteSelector(source_ids=tuple(one.strip() for one in source_ids), document_id=document_id, tags=tags)
    if not dry_run:
        await core.store.prepare(core.fingerprint, recipe=core.recipe)
    return DeleteRun(deletion=await core.store.delete(selector, now=core.clock(), dry_run=dry_run))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRun:
    """A file's text and how it was cut."""

    name: str
    content: str
    options: ChunkOptions
    result: ChunkingResult

    def show(self, *, as_json: bool) -> None:
        """Print the chunks."""
        if as_json:
            print_json(chunking_json(self.result))
        else:
            print_chunks(self.result, self.content, name=self.name, options=self.options)


def chunk_file(
    settings: Settings,
    file: Path,
    *,
    content_type: str | None,
    size: int | None,
    overlap: int | None,
    minimum: int | None,
) -> ChunkRun:
    """Cut a file as the path would, without storing anything.

    Raises:
        ValidationError: the file has no text, the type is not known or the sizes do not fit each other.
    """
    chosen = fold_content_type(content_type) if content_type else content_type_of(file.name)
    if chosen is None:
        raise ValidationError("That content type is not known. Accepted: markdown, text, code, html, json, rst, csv.")
    size = settings.chunk_size_tokens if size is None else size
    options = ChunkOptions(
        size=size,
        overlap=min(settings.chunk_overlap_tokens, size - 1) if overlap is None else overlap,
        minimum=min(settings.chunk_min_tokens, size) if minimum is None else minimum,
        language=language_of(file.name) if chosen is ContentType.CODE else "",
    )
    fits = size >= 1 and 0 <= options.overlap < size and 1 <= options.minimum <= size
    if not fits:
        raise ValidationError("The sizes do not fit: --overlap must be below --size, and --min between 1 and --size.")
    content = normalise_text(_read_text(file))
    result = chunk_content(content, chosen, options, load_tiktoken_counter())
    return ChunkRun(name=file.name, content=content, options=options, result=result)
