"""Stage 1. In: untrusted requests. Out: Documents, normalised and compared with what is stored; it writes nothing.

What it guarantees to the next stages: content of 1 to 5,000,000 characters with one that is not blank, no NUL, no lone
surrogate, one kind of line end; a content type the chunker knows; normalised tags; metadata that is plain JSON; sizes
that fit each other; a source id that replaces nothing by accident. No message echoes the caller's value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pydantic import ValidationError as PydanticError

from memory_core.chunk.chunk_content import describe_recipe
from memory_core.errors import ConflictError, ValidationError
from memory_core.identity import derive_source_id, derive_title, is_source_id, with_suffix
from memory_core.languages import choose_language
from memory_core.models import (
    Attributes,
    ContentType,
    Document,
    DocumentState,
    Failure,
    Past,
    Plan,
    StoreRequest,
    hash_text,
)
from memory_core.ports import Core
from memory_core.rules import CheckedRequest, check_request, default_options, plain_issue
from memory_core.spaces import refuse_other_space
from memory_core.store_request import StoreContentRequest

_DELETE_FIRST = "Delete what is stored to have it back."
_DAMAGED = "What it comes from is damaged: take it from another copy."
_SUPERSEDED = "A newer text was stored under this id after this one was accepted; the newer one was kept."


def parse_request(arguments: Mapping[str, Any]) -> StoreContentRequest:
    """A door's arguments as a request.

    Raises:
        ValidationError: naming every bad argument and, for an unknown one, the accepted names.
    """
    try:
        return StoreContentRequest.model_validate(arguments)
    except PydanticError as error:
        accepted = ", ".join(sorted(spec.alias or name for name, spec in StoreContentRequest.model_fields.items()))
        issues = "; ".join(plain_issue(issue) for issue in error.errors(include_input=False, include_url=False))
        raise ValidationError(f"The arguments are not acceptable: {issues}. Accepted arguments: {accepted}.") from None


async def validate_requests(requests: Sequence[StoreRequest], *, core: Core) -> list[Document | Failure]:
    """Check each request and compare it with what is stored; one read for the whole batch.

    Raises:
        StorageError: the current states could not be read, or the database is not to be written by this process.
    """
    await core.store.prepare(core.fingerprint, recipe=core.recipe)
    checked = [_check(request, core) for request in requests]
    wanted = {one for item in checked if isinstance(item, _Candidate) for one in item.source_ids()}
    returning = sorted({request.past.document_id for request in requests if request.past})
    states: Mapping[str, DocumentState] = await core.store.read_states(sorted(wanted), returning) if wanted else {}
    pending = await _read_pending_space(states, core)
    return [item if isinstance(item, Failure) else _decide(item, states, core, pending) for item in checked]


async def _read_pending_space(states: Mapping[str, DocumentState], core: Core) -> str | None:
    """The space that a re-embed moves documents to from ours; asked only where one of them is of another space."""
    if all(state.fingerprint == core.fingerprint.key for state in states.values()):
        return None
    space = await core.store.read_active_space()
    if space is None:
        return None
    refuse_other_space(space, core.fingerprint.key)  # it may have changed since this process prepared
    return space.pending


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A checked request with the ids under which it may be stored."""

    request: StoreRequest
    checked: CheckedRequest
    content_hash: str
    source_id: str
    is_derived: bool

    def own_id(self) -> str:
        """The id that cannot be anybody else's: with a suffix of the content's own hash."""
        return with_suffix(self.source_id, self.content_hash)

    def source_ids(self) -> list[str]:
        """Every id whose state must be known before a decision."""
        previous = self.request.previous_source_id
        return [self.source_id, *([self.own_id()] if self.is_derived else []), *([previous] if previous else [])]


def _check(request: StoreRequest, core: Core) -> _Candidate | Failure:
    defaults = default_options(core.settings)
    try:
        checked = check_request(request.request, defaults=defaults, max_input_tokens=core.embedder.max_input_tokens)
    except ValidationError as error:
        named = (request.request.source_id or "").strip()
        return Failure(error=error, source_id=named if is_source_id(named) else None)
    content_hash = hash_text(checked.content)
    explicit = checked.source_id
    derived = derive_source_id(uri=checked.uri, title=checked.title, content_hash=content_hash)
    return _Candidate(
        request=request,
        checked=checked,
        content_hash=content_hash,
        source_id=explicit or derived,
        is_derived=explicit is None,
    )


def _decide(
    candidate: _Candidate, states: Mapping[str, DocumentState], core: Core, pending: str | None
) -> Document | Failure:
    if past := candidate.request.past:
        return _decide_returning(candidate, past, states, core)
    source_id, notes = _choose_source_id(candidate, states)
    base = states.get(source_id) or _find_renamed(candidate, states)
    attributes = _merge_attributes(candidate, base, source_id)
    options = replace(candidate.checked.options, language=_language_of(attributes, source_id))
    recipe = describe_recipe(attributes.content_type, options, core.counter.name)
    document = Document(
        document_id=base.document_id if base else core.new_id(),
        source_id=source_id,
        revision=core.new_id(),
        content=candidate.checked.content,
        content_hash=candidate.content_hash,
        attributes=attributes,
        options=options,
        recipe=recipe,
        provenance=candidate.request.provenance,
        agent=candidate.checked.agent,
        session_id=candidate.checked.session_id,
        base=base,
        plan=Plan.STORE,
        notes=(*candidate.request.notes, *candidate.checked.notes, *notes),
        # A staged text that was normalised on the way is not this content: it must not become its body.
        body_id=candidate.request.body_id if candidate.checked.content == candidate.request.request.content else None,
    )
    if base and _is_superseded(candidate, base):
        return replace(document, plan=Plan.NOTHING, notes=(*document.notes, _SUPERSEDED))
    plan, reason = decide_plan(document, fingerprint=core.fingerprint.key, pending=pending)
    return replace(document, plan=plan, reason=reason)


def _decide_returning(
    candidate: _Candidate, past: Past, states: Mapping[str, DocumentState], core: Core
) -> Document | Failure:
    """A document that brings its past is stored as it was; one that is there already is left as it is."""
    source_id, newest = candidate.source_id, past.versions[-1]
    base = states.get(source_id)
    if base is None and (other := next((one for one in states.values() if one.document_id == past.document_id), None)):
        return _refuse_returning(source_id, f"is stored as {other.source_id} now", _DELETE_FIRST)
    if newest.content_hash != candidate.content_hash:
        return _refuse_returning(source_id, "does not have the text that its newest version names", _DAMAGED)
    if base and (base.document_id != past.document_id or base.content_hash != candidate.content_hash):
        return _refuse_returning(source_id, "was stored anew in the meantime", _DELETE_FIRST)
    options = replace(candidate.checked.options, language=_language_of(past.attributes, source_id))
    return Document(
        document_id=past.document_id,
        source_id=source_id,
        revision=core.new_id(),
        content=candidate.checked.content,
        content_hash=candidate.content_hash,
        attributes=past.attributes,
        options=options,
        recipe=describe_recipe(past.attributes.content_type, options, core.counter.name),
        provenance=replace(candidate.request.provenance, feed=past.feed),
        agent=candidate.checked.agent,
        session_id=candidate.checked.session_id,
        base=base,
        plan=Plan.NOTHING if base else Plan.STORE,
        reason=None if base else "restored from the trash" if past.is_restored else "brought over with its past",
        notes=candidate.request.notes,
        past=None if base else past,
    )


def _refuse_returning(source_id: str, why: str, remedy: str) -> Failure:
    error = ConflictError(f"The document {source_id} {why}. Nothing was changed. {remedy}")
    return Failure(error=error, source_id=source_id)


def _language_of(attributes: Attributes, source_id: str) -> str:
    return choose_language(attributes.content_type, uri=attributes.uri, source_id=source_id, title=attributes.title)


def _is_superseded(candidate: _Candidate, base: DocumentState) -> bool:
    """A submission that waited (its process was killed) never replaces a text that was stored after it was accepted."""
    staged = candidate.request.staged_at
    is_older = staged is not None and base.stored_at is not None and base.stored_at > staged
    return is_older and base.content_hash != candidate.content_hash


def _find_renamed(candidate: _Candidate, states: Mapping[str, DocumentState]) -> DocumentState | None:
    """The document that a renamed file continues, as long as it still is that file's: another text is another's."""
    previous = states.get(candidate.request.previous_source_id or "")
    return previous if previous and previous.content_hash == candidate.content_hash else None


def _choose_source_id(candidate: _Candidate, states: Mapping[str, DocumentState]) -> tuple[str, tuple[str, ...]]:
    """A derived id never replaces other content that another agent or session stored under it.

    A uri names one place, whoever stores what is found there; a title does not.
    """
    taken = states.get(candidate.source_id)
    if not candidate.is_derived or taken is None or taken.content_hash == candidate.content_hash:
        return candidate.source_id, ()
    checked = candidate.checked
    is_same_place = checked.uri is not None and taken.attributes.uri == checked.uri
    if is_same_place or (taken.agent, taken.session_id) == (checked.agent, checked.session_id):
        return candidate.source_id, ()
    own = candidate.own_id()
    note = (
        f"The id {candidate.source_id} belongs to other content, so this was stored as {own}. "
        f"To replace the other, store again with sourceId {candidate.source_id}."
    )
    return own, (note,)


def decide_plan(document: Document, *, fingerprint: str, pending: str | None = None) -> tuple[Plan, str | None]:
    """What is still to be done for a document, and why where its content is equal. Pure.

    Currency is the content's hash, the recipe, the fingerprint, the number of chunks and what every chunk says of
    itself. What is of the pending space already stays there: a process of the active space does not take it back.
    """
    base = document.base
    if base is None or base.content_hash != document.content_hash:
        return Plan.STORE, None
    if reason := _why_again(document, base, {fingerprint, pending}):
        return Plan.STORE, reason
    if base.attributes.title != document.attributes.title:
        return Plan.STORE, None  # the title is part of every chunk's context; no vector is paid
    moved = base.source_id != document.source_id or document.provenance.feed not in {None, base.feed}
    if moved or not _are_same(base.attributes, document.attributes):
        return Plan.ATTRIBUTES, None
    return Plan.NOTHING, None


def _are_same(stored: Attributes, given: Attributes) -> bool:
    """Equal as JSON: to Python 1, 1.0 and True are equal, to whoever stored them they are not."""
    return stored == given and json.dumps(stored.metadata, sort_keys=True) == json.dumps(given.metadata, sort_keys=True)


def _why_again(document: Document, base: DocumentState, current: set[str | None]) -> str | None:
    """Why equal content is stored again, or None."""
    if not is_complete(base):
        return "repaired: its chunks were not all of this content"
    if base.fingerprint not in current:
        return "re-embedded: the embedding model changed"
    if base.recipe != document.recipe:
        return "re-chunked: the chunk options or the chunker changed"
    return None


def is_complete(state: DocumentState) -> bool:
    """True when the chunk rows are all there and all of this revision, content and embedding space."""
    tally = state.tally
    return (
        tally.count == state.chunk_count
        and tally.revisions == frozenset({state.revision})
        and tally.content_hashes == frozenset({state.content_hash})
        and tally.fingerprints == frozenset({state.fingerprint})
    )


def _merge_attributes(candidate: _Candidate, base: DocumentState | None, source_id: str) -> Attributes:
    """Omitted keeps, empty clears; a directory changes only what it set itself or nobody set."""
    checked, owner = candidate.checked, candidate.request.provenance.attribute_owner
    owners = dict(base.attributes.owners) if base else {}
    values: dict[str, Any] = _stored_values(base) if base else {}
    for name, value in checked.given_attributes.items():
        held = owners.get(name)
        if candidate.request.provenance.feed and held not in {None, owner, "derived"}:
            continue
        values[name], owners[name] = value, owner
    content_type: ContentType = values.get("contentType") or ContentType.MARKDOWN
    if values.get("title") is None or owners.get("title", "derived") == "derived":
        file_name = _last_name(values.get("uri") or "")
        fallback = file_name or _last_name(source_id) or source_id
        values["title"] = derive_title(checked.content, content_type, fallback=fallback, file_name=file_name)
        owners["title"] = "derived"
    return Attributes(
        title=values["title"],
        uri=values.get("uri"),
        content_type=content_type,
        tags=tuple(values.get("tags", ())),
        metadata=values.get("metadata", {}),
        owners=owners,
    )


def _last_name(path: str) -> str:
    """The last segment of a uri or an id, as people write it: without percent signs."""
    plain = unquote(path.rstrip("/").rpartition("/")[2])
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())


def _stored_values(base: DocumentState) -> dict[str, Any]:
    stored = base.attributes
    return {
        "title": stored.title,
        "uri": stored.uri,
        "contentType": stored.content_type,
        "tags": stored.tags,
        "metadata": stored.metadata,
    }
