"""A directory scan, a manifest and the stored states in; a plan, batches, a report out. Reads no file, clock or store.

The order of a run: read the feed's states, then scan, then `plan_sync`, hash `files_to_hash` and `detect_renames`, read
and store `batches`, delete, report. The states must be read *before* the scan: then a document that somebody stores
while the directory is listed is unknown to the plan and cannot be deleted by it.
"""

from memory_core.sync.plan import MAX_DELETED_FILES, MAX_DELETED_SHARE, batches, deletions_need_confirmation, plan_sync
from memory_core.sync.renames import detect_renames, files_to_hash
from memory_core.sync.values import (
    Action,
    Cause,
    FileOutcome,
    FileReport,
    PlannedFile,
    SyncPlan,
    SyncReport,
    source_id_of,
)

__all__ = [
    "MAX_DELETED_FILES",
    "MAX_DELETED_SHARE",
    "Action",
    "Cause",
    "FileOutcome",
    "FileReport",
    "PlannedFile",
    "SyncPlan",
    "SyncReport",
    "batches",
    "deletions_need_confirmation",
    "detect_renames",
    "files_to_hash",
    "plan_sync",
    "source_id_of",
]
