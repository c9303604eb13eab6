"""A plan and the content hashes of its new files in; a plan in which moved files continue their documents out. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from memory_core.sync.plan import make_plan
from memory_core.sync.values import Action, Cause, PlannedFile, SyncPlan


def files_to_hash(plan: SyncPlan) -> tuple[PlannedFile, ...]:
    """The files whose text may be that of a document to delete: not stored yet, and of a size that one of those had."""
    gone = plan.select(Action.DELETE)
    sizes = {planned.size for planned in gone}
    fits_any = None in sizes
    return tuple(
        planned
        for planned in plan.select(Action.READ)
        if gone and planned.stored_hash is None and (fits_any or planned.size in sizes)
    )


def detect_renames(plan: SyncPlan, hashes_of_new: Mapping[str, str]) -> SyncPlan:
    """Let a new file continue the deleted document with the same text. `hashes_of_new` maps paths to content hashes.

    Texts that several files share are paired by file name, and left alone where that does not decide. The old path
    is planned as `forget`, to be applied after the renamed file is stored.
    """
    gone = [planned for planned in plan.select(Action.DELETE) if planned.stored_hash]
    new = [planned for planned in files_to_hash(plan) if planned.path in hashes_of_new]
    pairs: dict[str, PlannedFile] = {}  # the new path -> the deleted document that it continues
    for name_of in (_file_name, _no_name):
        taken = {old.source_id for old in pairs.values()}
        old_by_text = _group((old.stored_hash or "", name_of(old), old) for old in gone if old.source_id not in taken)
        new_by_text = _group((hashes_of_new[file.path], name_of(file), file) for file in new if file.path not in pairs)
        for text, candidates in new_by_text.items():
            if len(candidates) == len(old_by_text.get(text, ())) == 1:
                pairs[candidates[0].path] = old_by_text[text][0]
    return _apply_renames(plan, pairs)


def _file_name(planned: PlannedFile) -> str:
    return planned.path.rpartition("/")[2]


def _no_name(_planned: PlannedFile) -> str:
    return ""


def _group(rows: Iterable[tuple[str, str, PlannedFile]]) -> Mapping[tuple[str, str], list[PlannedFile]]:
    groups: defaultdict[tuple[str, str], list[PlannedFile]] = defaultdict(list)
    for text, name, planned in rows:
        groups[text, name].append(planned)
    return groups


def _apply_renames(plan: SyncPlan, pairs: Mapping[str, PlannedFile]) -> SyncPlan:
    new_path_of = {old.source_id: path for path, old in pairs.items()}

    def rename(planned: PlannedFile) -> PlannedFile:
        if planned.action is Action.READ and planned.path in pairs:
            old = pairs[planned.path]
            reason = f"renamed from {old.path}"
            return replace(planned, cause=Cause.RENAMED, reason=reason, previous_source_id=old.source_id)
        if planned.action is Action.DELETE and planned.source_id in new_path_of:
            reason = f"renamed to {new_path_of[planned.source_id]}"
            return replace(planned, action=Action.FORGET, reason=reason, stored_hash=None)
        return planned

    actions = [rename(planned) for planned in plan.actions]
    return make_plan(plan.feed, actions, known_documents=plan.known_documents)
