"""Brings an embedded index up to date. In: the store's change feed and rows. Out: the newest view. Ranks nothing.

Nothing to take in needs no lock. Otherwise the process that gets the folder's lock takes it in; one that does not waits
for `WAIT_FOR_OTHERS_SECONDS` and then goes on with the last commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import groupby
from typing import Final, ParamSpec, TypeVar

import filelock
import structlog

from memory_core.adapters.embedded_folder import IndexFolder
from memory_core.adapters.embedded_plan import (
    Feed,
    UpdatePlan,
    feed_start,
    is_worth_a_record,
    needs_comparison,
    plan_update,
    to_ms,
)
from memory_core.adapters.embedded_record import CorruptIndexError
from memory_core.adapters.embedded_writer import DocumentRows, FolderWriter, View
from memory_core.errors import IndexUnavailableError, SearchError
from memory_core.store_ports import MemoryStore

_log = structlog.get_logger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

WAIT_FOR_OTHERS_SECONDS: Final = 2.0
_POLL_SECONDS = 0.01
_DOCUMENTS_A_READ = 50
_ROWS_A_COMMIT = 8_192


class Refresher:
    """One folder and the store it mirrors. One call at a time."""

    def __init__(self, folder: IndexFolder, store: MemoryStore) -> None:
        self._folder = folder
        self._store = store
        self.documents_behind = 0

    async def bring_up_to_date(self) -> View:
        """The newest commit, with everything in it that was stored before this call.

        Raises:
            IndexUnavailableError: another process is still building the index.
        """
        view = await self._load()
        feed = await self._read_feed(view)
        plan = plan_update(feed, self._folder.known)
        if view is not None and _is_complete(view) and not plan.size:
            self.documents_behind = 0
            if is_worth_a_record(view.rows.record, feed):
                view = await self._move_time_on(feed) or view
            return view
        return await self._take_in_or_wait(feed)

    async def _take_in_or_wait(self, feed: Feed) -> View:
        deadline = time.monotonic() + WAIT_FOR_OTHERS_SECONDS
        while True:
            with self._try_lock() as locked:
                if locked:
                    return await self._take_in()
            view = await self._load()
            plan = plan_update(feed, self._folder.known)
            if view is not None and _is_complete(view) and not plan.size:
                self.documents_behind = 0
                return view
            if time.monotonic() >= deadline:
                return self._answer_behind(view, plan)
            await asyncio.sleep(_POLL_SECONDS)

    def _answer_behind(self, view: View | None, plan: UpdatePlan) -> View:
        if view is None or not _is_complete(view):
            raise IndexUnavailableError("The search index is being built by another process: try again in a moment.")
        self.documents_behind = plan.size
        _log.warning("search.index_behind", documents=plan.size)
        return view

    async def _take_in(self) -> View:
        """Under the lock. The feed is read once more: another process may have done the work meanwhile."""
        view = await in_thread(self._folder.prepare_writing)
        feed = await self._read_feed(view)
        plan = plan_update(feed, self._folder.known)
        began = time.monotonic()
        if plan.size:
            await self._write(plan)
        record = view.rows.record
        view = await in_thread(
            self._folder.finish,
            read_at_ms=to_ms(feed.now),
            compared_at_ms=to_ms(feed.now) if feed.full else record.compared_at_ms,
        )
        self.documents_behind = 0
        _log.info(
            "search.index_updated",
            refreshed=len(plan.refresh),
            removed=len(plan.remove),
            rows=view.rows.record.rows,
            full=feed.full,
            ms=round((time.monotonic() - began) * 1000),
        )
        return view

    async def _write(self, plan: UpdatePlan) -> None:
        async with self._open_writer() as writer:
            await in_thread(_remove_all, writer, plan.remove)
            done = 0
            everyone = list(plan.refresh)
            for start in range(0, len(everyone), _DOCUMENTS_A_READ):
                ids = everyone[start : start + _DOCUMENTS_A_READ]
                documents = await self._read_documents(ids, plan.refresh)
                await in_thread(_take_in_all, writer, documents)
                done += len(ids)
                if writer.pending_rows >= _ROWS_A_COMMIT:
                    await in_thread(writer.commit)
                    _log.info("search.index_progress", done=done, total=len(plan.refresh))
            await in_thread(writer.commit)

    async def _read_documents(self, ids: Sequence[str], stamps: Mapping[str, int]) -> list[DocumentRows]:
        rows = sorted(await self._store.read_chunk_rows(ids), key=lambda row: (row.document_id, row.chunk_id))
        by_document = {one: tuple(of_it) for one, of_it in groupby(rows, key=lambda row: row.document_id)}
        return [DocumentRows(document_id=one, stamp_ms=stamps[one], rows=by_document.get(one, ())) for one in ids]

    async def _read_feed(self, view: View | None) -> Feed:
        start = feed_start(view.rows.record, self._folder.anchors) if view else None
        changes, now = await self._store.read_changes(start)
        feed = Feed(changes=changes, now=now, full=start is None)
        if view is None or feed.full or not needs_comparison(view.rows.record, self._folder.anchors, feed):
            return feed
        _log.info("search.index_compared")
        changes, now = await self._store.read_changes(None)
        return Feed(changes=changes, now=now, full=True)

    async def _move_time_on(self, feed: Feed) -> View | None:
        """Spare the next process a long feed, where nobody else writes just now."""
        with self._try_lock() as locked:
            if not locked:
                return None
            view = await in_thread(self._folder.prepare_writing)
            compared_at_ms = to_ms(feed.now) if feed.full else view.rows.record.compared_at_ms
            if not _is_complete(view) or view.rows.record.read_at_ms >= to_ms(feed.now):
                return None
            return await in_thread(self._folder.finish, read_at_ms=to_ms(feed.now), compared_at_ms=compared_at_ms)

    async def _load(self) -> View | None:
        return self._folder.view if self._folder.is_current() else await in_thread(self._folder.load)

    @contextmanager
    def _try_lock(self) -> Generator[bool]:
        try:
            self._folder.make_folder()
            self._folder.lock.acquire(timeout=0)
        except filelock.Timeout:
            yield False
            return
        except OSError as error:
            raise describe_failure(error) from error
        try:
            yield True
        finally:
            self._folder.lock.release()

    @asynccontextmanager
    async def _open_writer(self) -> AsyncGenerator[FolderWriter]:
        opened: list[FolderWriter] = []  # also where the caller is cancelled while it is being opened
        try:
            await in_thread(lambda: opened.append(self._folder.open_writer()))
            yield opened[0]
        except BaseException:
            for writer in opened:
                await in_thread(writer.close, undo=True)
            raise
        await in_thread(opened[0].close, undo=False)


async def in_thread(
    work: Callable[_Arguments, _Result], *arguments: _Arguments.args, **options: _Arguments.kwargs
) -> _Result:
    """Run it in a thread and wait for its end even when cancelled: the lock that is held must outlast the work."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **options))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
    except (OSError, CorruptIndexError) as error:
        raise describe_failure(error) from error


def describe_failure(error: OSError | CorruptIndexError) -> SearchError:
    """The one table from a failure of the files to an error of ours."""
    if isinstance(error, CorruptIndexError):
        return IndexUnavailableError(
            "The files of the search index changed while they were used: search again. If that does not help, remove "
            "the folder MEMORY_HOME/search; it is built again.",
            cause=str(error),
        )
    return SearchError(
        "The files of the search index cannot be read or written: check the free space and the permissions below "
        "MEMORY_HOME/search. The folder may be removed; it is built again.",
        cause=error.strerror or type(error).__name__,
    )


def _is_complete(view: View) -> bool:
    return view.rows.record.complete


def _remove_all(writer: FolderWriter, stamps: Mapping[str, int]) -> None:
    for document_id, stamp_ms in stamps.items():
        writer.remove(document_id, stamp_ms=stamp_ms)


def _take_in_all(writer: FolderWriter, documents: Iterable[DocumentRows]) -> None:
    for document in documents:
        writer.take_in(document)
