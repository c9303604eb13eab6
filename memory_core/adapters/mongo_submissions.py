"""SubmissionStore on MongoDB: the durable queue between the doors and the flow runs.

A submission's text lies in the parts of `contents`; the version that is stored from it adopts those parts. `openKey`
exists only while the submission is open, so that a finished one never answers for a new call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from bson.errors import InvalidId
from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from memory_core.adapters import mongo_rows as rows
from memory_core.adapters.mongo_connection import MongoConnection, Row, ask_server, run_transaction
from memory_core.adapters.mongo_indexes import CONTENTS, DOCUMENTS, SUBMISSIONS, TRASH
from memory_core.adapters.mongo_leases import lease_row, new_lease, read_holder
from memory_core.models import Holder, Outcome, StoreRequest, hash_text
from memory_core.store_request import Provenance, StoreContentRequest
from memory_core.wire import late_outcome_json
from memory_core.work_ports import OpenSubmission, Submission, SubmissionState

MAX_ATTEMPTS = 3
_OPEN = [SubmissionState.STAGED.value, SubmissionState.RUNNING.value]


class MongoSubmissionStore:
    """Submissions in one database."""

    def __init__(self, connection: MongoConnection) -> None:
        self._connection = connection

    async def stage(
        self, request: StoreRequest, *, key: str, holder: Holder, seconds: float, now: datetime
    ) -> Submission:
        """See SubmissionStore."""
        return await self._connection.run(self._stage, request, key, holder, seconds, now)

    def _stage(self, request: StoreRequest, key: str, holder: Holder, seconds: float, now: datetime) -> Submission:
        if joined := self._connection.collection(SUBMISSIONS).find_one({"openKey": key}):
            return self._load([joined])[0]
        server = ask_server(self._connection)
        identifier = ObjectId()
        row: Row = {
            "_id": identifier,
            "openKey": key,
            "state": SubmissionState.STAGED.value,
            "bodyId": f"submission-{identifier}",
            "contentHash": hash_text(request.request.content),
            "adopted": False,
            "request": _request_row(request),
            "attempts": 0,
            "outcome": None,
            "stagedAt": now,
            "lease": new_lease(holder, until=server.now + timedelta(seconds=seconds)),
        }
        parts = rows.body_rows(row["bodyId"], request.request.content)
        try:
            if server.has_transactions:
                run_transaction(self._connection, lambda session: self._insert(row, parts, session))
            else:
                self._insert(row, parts, None)
        except DuplicateKeyError:  # the same call at the same moment: join it
            self._connection.collection(CONTENTS).delete_many({"bodyId": row["bodyId"]})
            return self._stage(request, key, holder, seconds, now)
        return self._load([row])[0]

    def _insert(self, row: Row, parts: Sequence[Row], session: ClientSession | None) -> None:
        """The body first: a submission that is visible can always be run, also where there is no transaction."""
        self._connection.collection(CONTENTS).insert_many(parts, session=session)
        self._connection.collection(SUBMISSIONS).insert_one(row, session=session)

    async def claim(
        self, ids: Sequence[str], *, holder: Holder, seconds: float, dead_tokens: Sequence[str] = ()
    ) -> Sequence[Submission]:
        """See SubmissionStore."""
        return await self._connection.run(self._claim, ids, holder, seconds, dead_tokens)

    def _claim(
        self, ids: Sequence[str], holder: Holder, seconds: float, dead_tokens: Sequence[str]
    ) -> list[Submission]:
        submissions = self._connection.collection(SUBMISSIONS)
        wanted = {"_id": {"$in": _object_ids(ids)}, "state": {"$in": _OPEN}}
        free = {
            **wanted,
            "$or": [
                {"lease": {"$exists": False}},
                {"lease.token": {"$in": [holder.token, *dead_tokens]}},
                {"$expr": {"$lt": ["$lease.until", "$$NOW"]}},
            ],
        }
        self._settle_stored(free)
        submissions.update_many(
            {**free, "attempts": {"$gte": MAX_ATTEMPTS}},
            {"$set": {"state": SubmissionState.PARKED.value}, "$unset": {"openKey": "", "lease": ""}},
        )
        submissions.update_many(
            {**free, "adopted": False},
            [
                {
                    "$set": {
                        "lease": lease_row(holder, seconds),
                        "state": SubmissionState.RUNNING.value,
                        "attempts": {"$add": ["$attempts", 1]},
                    }
                }
            ],
        )
        mine = submissions.find({**wanted, "state": SubmissionState.RUNNING.value, "lease.token": holder.token})
        return self._load(list(mine.sort([("stagedAt", 1), ("_id", 1)])))

    def _settle_stored(self, free: Row) -> None:
        """Finish what was stored by a run that was killed before it said so: a version has adopted its body already.

        Run again, it would put its text over everything that was stored since.
        """
        submissions = self._connection.collection(SUBMISSIONS)
        for row in list(submissions.find({**free, "adopted": True}, {"bodyId": 1, "request.fields.sourceId": 1})):
            outcome = self.__stored_outcome(row)
            submissions.update_one(
                {**free, "_id": row["_id"]},
                [
                    {
                        "$set": {
                            "state": SubmissionState.DONE.value,
                            "outcome": {"$literal": outcome},
                            "finishedAt": "$$NOW",
                            "bodyId": None,
                        }
                    },
                    {"$unset": ["openKey", "lease"]},
                ],
            )

    def __stored_outcome(self, row: Row) -> Row:
        owned = {"versions.bodyId": row["bodyId"]}
        fields = {"sourceId": 1, "title": 1, "versions": 1, "chunking.chunkCount": 1}
        owner = next(
            (
                found
                for name in (DOCUMENTS, TRASH)
                if (found := self._connection.collection(name).find_one(owned, fields))
            ),
            None,
        )
        if owner is None:  # the version is no longer kept
            return late_outcome_json(row["request"]["fields"].get("sourceId"))
        (version,) = [entry["version"] for entry in owner["versions"] if entry["bodyId"] == row["bodyId"]]
        return late_outcome_json(
            owner["sourceId"],
            document_id=str(owner["_id"]),
            title=owner["title"],
            version=version,
            chunk_count=owner["chunking"]["chunkCount"],
        )

    async def renew(self, ids: Sequence[str], *, holder: Holder, seconds: float) -> None:
        """See SubmissionStore."""
        await self._connection.run(self._renew, ids, holder, seconds)

    def _renew(self, ids: Sequence[str], holder: Holder, seconds: float) -> None:
        self._connection.collection(SUBMISSIONS).update_many(
            {"_id": {"$in": _object_ids(ids)}, "lease.token": holder.token},
            [{"$set": {"lease": lease_row(holder, seconds)}}],
        )

    async def find_open(self, *, limit: int) -> Sequence[OpenSubmission]:
        """See SubmissionStore."""
        return await self._connection.run(self._find_open, limit)

    def _find_open(self, limit: int) -> list[OpenSubmission]:
        found = self._connection.collection(SUBMISSIONS).find({"state": {"$in": _OPEN}}, {"lease": 1})
        return [
            OpenSubmission(submission_id=str(row["_id"]), holder=read_holder(row["lease"]) if "lease" in row else None)
            for row in found.sort([("stagedAt", 1), ("_id", 1)]).limit(limit)
        ]

    async def release(self, ids: Sequence[str], *, holder: Holder) -> None:
        """See SubmissionStore."""
        await self._connection.run(self._release, ids, holder)

    def _release(self, ids: Sequence[str], holder: Holder) -> None:
        self._connection.collection(SUBMISSIONS).update_many(
            {"_id": {"$in": _object_ids(ids)}, **_held_by(holder)}, {"$unset": {"lease": ""}}
        )

    async def finish(self, outcomes: Mapping[str, Mapping[str, object]], *, holder: Holder, now: datetime) -> None:
        """See SubmissionStore."""
        await self._connection.run(self._finish, outcomes, holder, now)

    def _finish(self, outcomes: Mapping[str, Mapping[str, object]], holder: Holder, now: datetime) -> None:
        if not outcomes:
            return
        operations: list[UpdateOne] = []
        for identifier, outcome in outcomes.items():
            failed = outcome.get("outcome") == Outcome.FAILED
            state = SubmissionState.FAILED if failed else SubmissionState.DONE
            operations.append(
                UpdateOne(
                    {"_id": ObjectId(identifier), **_held_by(holder)},
                    {
                        "$set": {"state": state.value, "outcome": dict(outcome), "finishedAt": now},
                        "$unset": {"openKey": "", "lease": ""},
                    },
                )
            )
        self._connection.collection(SUBMISSIONS).bulk_write(operations, ordered=False)
        self._drop_unadopted(list(outcomes))

    def _drop_unadopted(self, ids: Sequence[str]) -> None:
        """Remove staged bodies of done submissions that no version adopted; an adopted one belongs to its version."""
        submissions = self._connection.collection(SUBMISSIONS)
        done = {"_id": {"$in": _object_ids(ids)}, "state": SubmissionState.DONE.value, "bodyId": {"$ne": None}}
        bodies = [row["bodyId"] for row in submissions.find({**done, "adopted": False}, {"bodyId": 1})]
        if bodies:
            self._connection.collection(CONTENTS).delete_many({"bodyId": {"$in": bodies}})
        submissions.update_many(done, {"$set": {"bodyId": None}})

    async def read(self, submission_id: str) -> Submission | None:
        """See SubmissionStore."""
        return await self._connection.run(self._read, submission_id)

    def _read(self, submission_id: str) -> Submission | None:
        found = list(self._connection.collection(SUBMISSIONS).find({"_id": {"$in": _object_ids([submission_id])}}))
        return self._load(found)[0] if found else None

    def _load(self, found: Sequence[Row]) -> list[Submission]:
        """Rows with their bodies, read in one query."""
        bodies = [row["bodyId"] for row in found if row["bodyId"]]
        texts: dict[str, list[str]] = {}
        if bodies:
            parts = self._connection.collection(CONTENTS).find({"bodyId": {"$in": bodies}})
            for part in parts.sort([("bodyId", 1), ("part", 1)]):
                texts.setdefault(part["bodyId"], []).append(part["text"])
        return [_read_submission(row, "".join(texts.get(row["bodyId"] or "", []))) for row in found]


def _held_by(holder: Holder) -> Row:
    return {"lease.token": holder.token, "state": {"$in": _OPEN}}


def _object_ids(ids: Sequence[str]) -> list[ObjectId]:
    known: list[ObjectId] = []
    for text in ids:
        try:
            known.append(ObjectId(text))
        except InvalidId:
            continue  # an id that cannot exist names nothing
    return known


def _request_row(request: StoreRequest) -> Row:
    """The request without its content, and which of its fields the caller gave: omitted keeps, empty clears."""
    provenance = request.provenance
    return {
        "fields": request.request.model_dump(mode="json", by_alias=True, exclude={"content"}, exclude_unset=True),
        "notes": list(request.notes),
        "previousSourceId": request.previous_source_id,
        "provenance": {
            "channel": provenance.channel,
            "feed": provenance.feed,
            "clientName": provenance.client_name,
            "clientVersion": provenance.client_version,
            "tokenName": provenance.token_name,
        },
    }


def _read_submission(row: Mapping[str, Any], content: str) -> Submission:
    request, provenance = row["request"], row["request"]["provenance"]
    return Submission(
        submission_id=str(row["_id"]),
        state=SubmissionState(row["state"]),
        request=StoreRequest(
            request=StoreContentRequest.model_validate({**request["fields"], "content": content}),
            provenance=Provenance(
                channel=provenance["channel"],
                feed=provenance["feed"],
                client_name=provenance["clientName"],
                client_version=provenance["clientVersion"],
                token_name=provenance["tokenName"],
                submission_id=str(row["_id"]),
            ),
            notes=tuple(request["notes"]),
            previous_source_id=request["previousSourceId"],
            body_id=row["bodyId"],
            staged_at=row["stagedAt"],
        ),
        attempts=row["attempts"],
        outcome=row["outcome"],
        staged_at=row["stagedAt"],
    )
