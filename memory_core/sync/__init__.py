"""A directory scan, a manifest and the stored states in; a plan, batches, a report out. Reads no file, clock or store.

The order of a run: read the feed's states, then scan, then `plan_sync`, hash `files_to_hash` and `detect_renames`, read
and store `batches`, delete, report. The states must be read *before* the scan: then a document that somebody stores
while the directory is listed is unknown to the plan and cannot be deleted by it.
"""
