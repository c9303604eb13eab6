"""The two sets of `benchmarks/evaluate.py` as they are read: a set that is read wrongly gives figures all the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The benchmarks are commands, not a package: they find each other in their own folder, and we find it from its parent.
sys.path.append(str(Path(__file__).parents[2]))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from benchmarks.evaluate import PASS_BARS, place_chunks, read_chunking, read_contextual, shares
from memory_core.evaluate import Place

pytestmark = pytest.mark.corpora


def test_golden_chunks_are_given_chunks(corpora: Path) -> None:
    """737 chunks, trimmed; each of 306 golden ones is one of them, and of equal texts always the same one."""
    corpus = read_contextual(corpora / "contextual-eval")
    contents = {one.request.source_id: one.request.content for one in corpus.requests}
    assert (len(contents), len(corpus.questions), len(corpus.twins)) == (90, 248, 737)
    assert sum(map(len, corpus.chunks.values())) == 737
    golden = [place for question in corpus.questions for place in question.places]
    assert len(golden) == 306
    for place in golden:
        text = contents[place.source_id][place.start : place.end]
        assert text in corpus.chunks[place.source_id]
        assert text == text.strip()
        assert corpus.twins[place] == place
    texts = {place: contents[place.source_id][place.start : place.end] for place in corpus.twins}
    assert all(texts[place] == texts[twin] for place, twin in corpus.twins.items())
    assert len(set(corpus.twins.values())) == len(set(texts.values()))


def test_excerpts_stand_in_their_documents(corpora: Path) -> None:
    """472 questions with 790 excerpts, none of them beyond its document; the documents keep their file names."""
    corpus = read_chunking(corpora / "chunking-eval")
    contents = {one.request.source_id: one.request.content for one in corpus.requests}
    excerpts = [place for question in corpus.questions for place in question.places]
    assert (len(contents), len(corpus.questions), len(excerpts)) == (5, 472, 790)
    assert all(0 <= place.start < place.end <= len(contents[place.source_id]) for place in excerpts)
    assert {one.request.uri for one in corpus.requests} == {f"file:///{name}.md" for name in contents}


def test_chunks_are_placed_in_order() -> None:
    """The second of two equal texts stands behind the first; a text that is not there is an error."""
    assert place_chunks("a", "one two one", ["one", "two", "one"]) == [
        Place("a", 0, 3),
        Place("a", 4, 7),
        Place("a", 8, 11),
    ]
    with pytest.raises(ValueError, match="substring"):
        place_chunks("a", "one two", ["two", "one"])
    assert shares(PASS_BARS) == "84.0/90.0/93.0"
