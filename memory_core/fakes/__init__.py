"""Stand-ins for the outside world, in memory. In: the ports' calls. Out: what the real thing would answer; no I/O.

They keep the promises of `memory_core.ports`, and the suites in tests/contract hold them and the real adapters to the
same words. `database.py` is what the stores share (one FakeDatabase is one server's database, so two stores over it
are two processes); `store.py`, `feeds.py`, `submissions.py` are the three stores; `embedder.py` is an embedder that
fails to a script, `transport.py` a provider that does,
`chat.py` a chat model that does, `embedding_cache.py` keeps paid vectors, and `foreign.py` is another program's memory.
"""

from memory_core.fakes.chat import ChatCall, ScriptedChatModel
from memory_core.fakes.database import FakeDatabase
from memory_core.fakes.embedder import EmbeddingFault, ScriptedEmbedder
from memory_core.fakes.embedding_cache import CacheRow, FakeEmbeddingCache
from memory_core.fakes.feeds import FakeFeedStore
from memory_core.fakes.store import FakeStore
from memory_core.fakes.submissions import FakeSubmissionStore
from memory_core.fakes.transport import ScriptedTransport

__all__ = [
    "CacheRow",
    "ChatCall",
    "EmbeddingFault",
    "FakeDatabase",
    "FakeEmbeddingCache",
    "FakeFeedStore",
    "FakeStore",
    "FakeSubmissionStore",
    "ScriptedChatModel",
    "ScriptedEmbedder",
    "ScriptedTransport",
]
