"""Stand-ins for the outside world, in memory. In: the ports' calls. Out: what the real thing would answer; no I/O.

They keep the promises of `memory_core.ports`, and the suites in tests/contract hold them and the real adapters to the
same words. `database.py` is what the stores share (one FakeDatabase is one server's database, so two stores over it
are two processes); `store.py`, `feeds.py`, `submissions.py` are the three stores; `embedder.py` is an embedder that
fails to a script.
"""

from memory_core.fakes.database import FakeDatabase
from memory_core.fakes.embedder import EmbeddingFault, ScriptedEmbedder
from memory_core.fakes.feeds import FakeFeedStore
from memory_core.fakes.store import FakeStore
from memory_core.fakes.submissions import FakeSubmissionStore

__all__ = [
    "EmbeddingFault",
    "FakeDatabase",
    "FakeFeedStore",
    "FakeStore",
    "FakeSubmissionStore",
    "ScriptedEmbedder",
]
