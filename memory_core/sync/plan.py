"""A directory scan, a manifest and the stored states in; a plan out (pandas). Reads no file, no clock and no store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from memory_core.files import ScannedFile
from memory_core.models import DocumentState
from memory_core.sync.values import Action, Cause, PlannedFile, SyncPlan, source_id_of
from memory_core.work_ports import Feed, FileState, ManifestEntry

# More than this share AND more than this many: a vanished mount looks like a mass deletion, two removed notes do not.
MAX_DELETED_SHARE = 0.3
MAX_DELETED_FILES = 10

_PLAN_ID_DIGITS = 16

_TAKEN = "taken"
_REASONS: dict[str, str] = {
    Cause.NEW: "the file is new",
    Cause.UNRECORDED: "its document is stored, but no run has recorded the file",
    Cause.CHANGED: "its size or one of its times of change differs",
    Cause.FAILED_BEFORE: "it failed in an earlier run and is tried again",
    Cause.MISSING: "its document is gone from the memory",
    Cause.DIFFERENT: "the stored text is not the text that this file held",
    Cause.REPAIR: "its stored chunks are not complete",
    Cause.RECHUNK: "its chunks were made with another recipe",
    Cause.REEMBED: "its vectors were made in another embedding space",
    Action.UNCHANGED: "the file and its document are as they were",
    Action.QUARANTINED: "it could not be read as text and has not changed since",
}
_CAUSES = {str(cause): cause for cause in Cause}
_ACTIONS: dict[str, Action] = {
    _TAKEN: Action.SKIP,
    **{str(action): action for action in (Action.SKIP, Action.UNCHANGED, Action.QUARANTINED)},
}


def plan_sync(
    feed: Feed,
    files: Sequence[ScannedFile],
    manifest: Sequence[ManifestEntry],
    states: Mapping[str, DocumentState],
    *,
    recipe_of: Callable[[DocumentState], str],
    fingerprint: str,
    unreadable: Sequence[str] = (),
) -> SyncPlan:
    """Compare a scan with the manifest and with what is stored. The paths of `files` must be distinct.

    `states` are the feed's, read before the scan; `recipe_of` and `fingerprint` say what is current. A file that is
    skipped or quarantined keeps what was stored of it before: only a file that is gone loses its document.
    """
    known = _frame_manifest(manifest)
    scan = _frame_scan(files).merge(known, on="path", how="left", validate="one_to_one")
    scan["source_id"] = _name_sources(feed.name, scan)
    verdicts = _judge_states(states, recipe_of=recipe_of, fingerprint=fingerprint)
    here = _plan_scanned(scan, states, verdicts)
    owned = {source_id: state for source_id, state in states.items() if state.feed == feed.name}
    gone = _plan_gone(feed.name, known, owned, here=here, unreadable=unreadable)
    return make_plan(feed.name, [*here, *gone], known_documents=len(owned))


def deletions_need_confirmation(plan: SyncPlan) -> bool:
    """Whether a person must agree first: more than 30 % of the documents and more than 10, or nothing is left."""
    deleted = len(plan.select(Action.DELETE))
    if not deleted:
        return False
    nothing_left = not any(planned.action in {Action.READ, Action.UNCHANGED} for planned in plan.actions)
    share = deleted / plan.known_documents
    return nothing_left or (deleted > MAX_DELETED_FILES and share > MAX_DELETED_SHARE)


def batches(planned: Iterable[PlannedFile], *, max_documents: int, max_chars: int) -> Iterator[tuple[PlannedFile, ...]]:
    """Cut into batches by number and by size, in order. Bytes bound characters; a file above the bound goes alone."""
    batch: list[PlannedFile] = []
    chars = 0
    for file in planned:
        size = file.size or 0
        if batch and (len(batch) >= max_documents or chars + size > max_chars):
            yield tuple(batch)
            batch, chars = [], 0
        batch.append(file)
        chars += size
    if batch:
        yield tuple(batch)


# --- the plan's steps -------------------------------------------------------------------------------------------------


def _frame_scan(files: Sequence[ScannedFile]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "path": pd.array([file.path for file in files], dtype="object"),
            "size": np.array([file.size for file in files], dtype="int64"),
            "mtime_ns": np.array([file.mtime_ns for file in files], dtype="int64"),
            "ctime_ns": np.array([file.ctime_ns for file in files], dtype="int64"),
            "skip_reason": pd.array([file.skip_reason for file in files], dtype="object"),
        }
    )


def _frame_manifest(manifest: Sequence[ManifestEntry]) -> pd.DataFrame:
    # Int64 with a capital: a left join would turn plain integers into floats, and a float loses the last nanoseconds.
    return pd.DataFrame(
        {
            "path": pd.array([entry.path for entry in manifest], dtype="object"),
            "known_id": pd.array([entry.source_id for entry in manifest], dtype="object"),
            "known_size": pd.array([entry.size for entry in manifest], dtype="Int64"),
            "known_mtime_ns": pd.array([entry.mtime_ns for entry in manifest], dtype="Int64"),
            "known_ctime_ns": pd.array([entry.ctime_ns for entry in manifest], dtype="Int64"),
            "known_state": pd.array([str(entry.state) for entry in manifest], dtype="object"),
            "known_hash": pd.array([entry.content_hash for entry in manifest], dtype="object"),
            "known_reason": pd.array([entry.reason for entry in manifest], dtype="object"),
        }
    )


def _name_sources(feed: str, scan: pd.DataFrame) -> list[str]:
    """A known file keeps the id that it was stored under, whatever the rule for ids was then."""
    pairs = zip(scan["path"].tolist(), scan["known_id"].tolist(), strict=True)
    return [known if isinstance(known, str) else source_id_of(feed, path) for path, known in pairs]


def _judge_states(
    states: Mapping[str, DocumentState], *, recipe_of: Callable[[DocumentState], str], fingerprint: str
) -> dict[str, str]:
    """Why each stored document must be stored again although its text is equal, "" where it is current."""
    current_space = frozenset({fingerprint})
    verdicts: dict[str, str] = {}
    for source_id, state in states.items():
        tally = state.tally
        complete = (
            tally.count == state.chunk_count
            and tally.revisions == frozenset({state.revision})
            and tally.content_hashes == frozenset({state.content_hash})
        )
        if not complete:
            verdicts[source_id] = Cause.REPAIR
        elif state.recipe != recipe_of(state):
            verdicts[source_id] = Cause.RECHUNK
        elif state.fingerprint != fingerprint or tally.fingerprints != current_space:
            verdicts[source_id] = Cause.REEMBED
        else:
            verdicts[source_id] = ""
    return verdicts


def _plan_scanned(
    scan: pd.DataFrame, states: Mapping[str, DocumentState], verdicts: Mapping[str, str]
) -> list[PlannedFile]:
    """Choose an action for every row at once; the first condition that holds decides."""
    hashes = {source_id: state.content_hash for source_id, state in states.items()}
    scan["stored_hash"] = [hashes.get(source_id) for source_id in scan["source_id"].tolist()]
    verdict = pd.Series([verdicts.get(source_id, "") for source_id in scan["source_id"].tolist()], dtype="object")
    same_stat = (
        scan["size"].eq(scan["known_size"])
        & scan["mtime_ns"].eq(scan["known_mtime_ns"])
        & scan["ctime_ns"].eq(scan["known_ctime_ns"])
    )
    is_known, is_stored = scan["known_id"].notna(), scan["stored_hash"].notna()
    ladder: list[tuple[pd.Series[bool], str]] = [
        (_is_taken(scan), _TAKEN),
        (scan["skip_reason"].notna(), Action.SKIP),
        (~is_known & is_stored, Cause.UNRECORDED),
        (~is_known, Cause.NEW),
        (scan["known_state"].eq(FileState.FAILED), Cause.FAILED_BEFORE),
        (~same_stat.fillna(value=False).astype(bool), Cause.CHANGED),
        (scan["known_state"].eq(FileState.QUARANTINED), Action.QUARANTINED),
        (~is_stored, Cause.MISSING),
        (scan["known_hash"].ne(scan["stored_hash"]), Cause.DIFFERENT),
        (verdict.eq(Cause.REPAIR), Cause.REPAIR),
        (verdict.eq(Cause.RECHUNK), Cause.RECHUNK),
        (verdict.eq(Cause.REEMBED), Cause.REEMBED),
    ]
    scan["choice"] = np.select(
        [condition.to_numpy(dtype=bool) for condition, _ in ladder],
        [str(choice) for _, choice in ladder],
        default=Action.UNCHANGED.value,
    )
    columns = ("choice", "path", "source_id", "size", "stored_hash", "skip_reason", "known_reason")
    rows = zip(*(scan[name].tolist() for name in columns), strict=True)
    planned = [
        PlannedFile(
            path=path,
            source_id=source_id,
            action=_ACTIONS.get(choice, Action.READ),
            reason=_explain(choice, source_id, skip_reason, known_reason),
            cause=_CAUSES.get(choice),
            size=size,
            stored_hash=stored_hash if isinstance(stored_hash, str) else None,
        )
        for choice, path, source_id, size, stored_hash, skip_reason, known_reason in rows
    ]
    return sorted(planned, key=lambda file: file.path)


def _is_taken(scan: pd.DataFrame) -> pd.Series[bool]:
    """Rows to be read whose id another such row has; a known file goes before a new one, then the path decides.

    Two paths share an id only where slug and hash collide. Storing both would let each overwrite the other for ever.
    """
    is_read = scan["skip_reason"].isna()
    order = scan.assign(last=scan["known_id"].isna()).loc[is_read].sort_values(["last", "path"], kind="stable")
    taken = pd.Series(data=False, index=scan.index)
    taken.loc[order.index] = order["source_id"].duplicated(keep="first")
    return taken


def _explain(choice: str, source_id: str, skip_reason: object, known_reason: object) -> str:
    if choice == _TAKEN:
        return f"its source id {source_id} is that of another file here; rename one of the two"
    if choice == Action.SKIP:
        return str(skip_reason)
    if choice == Action.QUARANTINED and isinstance(known_reason, str):
        return known_reason
    return _REASONS[choice]


def _plan_gone(
    feed: str,
    known: pd.DataFrame,
    owned: Mapping[str, DocumentState],
    *,
    here: Sequence[PlannedFile],
    unreadable: Sequence[str],
) -> list[PlannedFile]:
    """Manifest lines and documents whose file is not there, except below what could not be listed."""
    ids_here = {planned.source_id for planned in here}
    missing = known.loc[~known["path"].isin([planned.path for planned in here])]
    lines = list(
        zip(missing["path"].tolist(), missing["known_id"].tolist(), missing["known_size"].tolist(), strict=True)
    )
    recorded = ids_here.union(missing["known_id"].tolist())
    lines += [(_path_of(feed, state), key, None) for key, state in owned.items() if key not in recorded]
    hidden, hidden_below = frozenset(unreadable), tuple(f"{path}/" for path in unreadable)
    gone: dict[tuple[str, str], PlannedFile] = {}
    deleted: set[str] = set()
    for path, source_id, size in sorted(lines, key=lambda line: line[:2]):
        if path in hidden or path.startswith(hidden_below):
            continue
        is_last_word = source_id not in ids_here and source_id not in deleted
        state = owned.get(source_id) if is_last_word else None
        if state:
            deleted.add(source_id)
        gone[path, source_id] = PlannedFile(
            path=path,
            source_id=source_id,
            action=Action.DELETE if state else Action.FORGET,
            reason="its file is gone" if state else "its file is gone, and no document of this feed hangs on it",
            size=size,
            stored_hash=state.content_hash if state else None,
        )
    return list(gone.values())


def _path_of(feed: str, state: DocumentState) -> str:
    """Where the file of a document that the manifest does not know was: as its reader noted it, else as its id says."""
    noted = state.attributes.metadata.get("path")
    return noted if isinstance(noted, str) else state.source_id.removeprefix(f"{feed}/")


def make_plan(feed: str, actions: Sequence[PlannedFile], *, known_documents: int) -> SyncPlan:
    """Give a plan its id: a hash of the feed and of the documents to delete."""
    deleted = sorted(planned.source_id for planned in actions if planned.action is Action.DELETE)
    digest = hashlib.sha256("\0".join([feed, *deleted]).encode()).hexdigest()
    return SyncPlan(
        feed=feed, plan_id=digest[:_PLAN_ID_DIGITS], actions=tuple(actions), known_documents=known_documents
    )
