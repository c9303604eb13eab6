"""What a person sees: whole answers on standard output, and stored text that steers no terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.console import (
    print_answer,
    print_chunks,
    print_json,
    print_listing,
    print_report,
    print_text,
    show_progress,
    tell,
)
from deployments.visible_text import visible, visible_line
from memory_core.answers import Hit, HitRow, SearchAnswer, SearchMode, SourceListing, StoredDocument
from memory_core.chunk_values import Chunk, ChunkingResult, ChunkingStats, ChunkOptions
from memory_core.models import Attributes, ChunkTally, ContentType, ContextBasis, DocumentState, Fingerprint
from memory_core.ports import Progress
from memory_core.sync.values import FileOutcome, FileReport, SyncReport
from memory_core.work_ports import Feed

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SPACE = Fingerprint(provider="local", model="mini", dimensions=384, context_policy="prefix-1")
HOSTILE = "\x1b[31mred\x1b[0m \u202egnp.exe \x07 [bold]markup[/bold] :smile: \U000e0041\u2028 \r over"

Captured = pytest.CaptureFixture[str]


def hit(text: str, *, highlights: tuple[str, ...] = ()) -> Hit:
    row = HitRow(
        chunk_id="c",
        document_id="d",
        source_id="notes/a",
        title=text,
        uri=None,
        content_type=ContentType.TEXT,
        tags=(),
        chunk_index=0,
        heading_path=(text,),
        char_start=1_000,
        char_end=2_000,
        token_count=1,
        text=text,
    )
    return Hit(
        row=row, score=0.5, vector_score=0.5, text_score=None, vector_rank=2, text_rank=None, highlights=highlights
    )


def answer(*hits: Hit, explanation: str | None = None) -> SearchAnswer:
    return SearchAnswer(
        query="q",
        mode=SearchMode.HYBRID,
        effective_mode=SearchMode.HYBRID,
        engine="embedded",
        hits=hits,
        fingerprint=SPACE,
        explanation=explanation,
    )


def stored(source_id: str, title: str) -> StoredDocument:
    state = DocumentState(
        document_id="d",
        source_id=source_id,
        revision="r",
        version=2,
        content_hash="h",
        recipe="r",
        strategy="paragraph",
        fingerprint=SPACE.key,
        chunk_count=4,
        tally=ChunkTally(count=4, revisions=frozenset(), content_hashes=frozenset(), fingerprints=frozenset()),
        attributes=Attributes(
            title=title, uri=None, content_type=ContentType.TEXT, tags=("a",), metadata={}, owners={}
        ),
        context_basis=ContextBasis(title=title, words=()),
        context_stale=False,
        feed=None,
        body_id="b",
        created_at=NOW,
        updated_at=NOW,
    )
    return StoredDocument(state=state, content_length=1, fingerprint=SPACE, options=ChunkOptions(), versions=())


def feed(name: str = "docs") -> Feed:
    return Feed(name=name, root="/docs", exclude=("*.tmp",))


def report(*files: FileReport, chunks: int = 0) -> SyncReport:
    return SyncReport(files=files, chunks=chunks, tokens_embedded=10 * chunks, texts_embedded=chunks, seconds=1.25)


def file(path: str, outcome: FileOutcome, error: str | None = None) -> FileReport:
    return FileReport(path=path, source_id=None, outcome=outcome, error=error)


def assert_harmless(text: str) -> None:
    """Nothing in it moves a cursor, changes a colour or turns the direction of writing."""
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0041]", text
    )


@given(text=st.text())
def test_stored_text_steers_no_terminal(text: str) -> None:
    """Every control and direction character becomes a dot; the length stays."""
    shown = visible(text)
    assert_harmless(shown)
    assert len(shown) == len(text)


def test_a_file_name_that_is_no_text_can_be_shown() -> None:
    """Half a surrogate pair stands for a byte that is no UTF-8; no stream takes it."""
    assert visible("a\udc80b") == "a·b"


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f467",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "é 日本語",
        "a\tb\nc",
        "e\u0301",
    ],
)
def test_signs_that_are_made_of_several_stay_whole(text: str) -> None:
    """Emoji families and Persian words need their joiners."""
    assert visible(text) == text


def test_a_title_or_a_path_cannot_begin_a_line() -> None:
    """A line break inside it is shown as a dot."""
    assert visible_line(Path("a\nmemory: all is well\t.md")) == "a·memory: all is well·.md"


def test_a_stored_text_is_harmless_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """`memory get` shows what it holds and obeys none of it."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_text(HOSTILE)
    shown = capsys.readouterr().out
    assert_harmless(shown)
    assert shown.endswith("over\n")
    assert "[bold]markup[/bold]" in shown


@pytest.mark.parametrize("text", [HOSTILE, "no line end", "line end\n", "日本語"])
def test_a_stored_text_goes_through_a_pipe_as_it_is(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Every byte, whatever the locale says."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print_text(text)
    sys.stdout.flush()
    assert raw.getvalue() == text.encode()


def test_an_answer_shows_the_place_of_each_hit(capsys: Captured) -> None:
    """Number, title, score and ranks; id and characters; headings; the passage that matches."""
    print_answer(answer(hit("Title"), hit("Other", highlights=("one  part", "two")), explanation="Half of it."))
    shown = capsys.readouterr().out
    for part in (
        "Half of it.",
        "1. Title  score 0.5000 (vector #2)",
        "notes/a  characters 1,000 to 2,000",
        "2. Other",
        "one part … two",
    ):
        assert part in shown


def test_nothing_that_is_printed_obeys_stored_text(capsys: Captured) -> None:
    """No control character, no markup, no emoji code, in any view."""
    print_answer(answer(hit(HOSTILE), explanation=HOSTILE))
    print_listing(SourceListing(sources=(stored("a", HOSTILE),), total=1, offset=0, limit=1))
    print_report(feed(HOSTILE), report(file(HOSTILE, FileOutcome.FAILED, HOSTILE)), completed=False)
    chunk = Chunk(index=0, text=HOSTILE, char_start=0, char_end=1, token_count=1, heading_path=(HOSTILE,))
    stats = ChunkingStats(input_chars=1, chunk_count=1, total_tokens=1)
    hostile = replace(chunk, lead=HOSTILE, readable=HOSTILE)
    cut = ChunkingResult(chunks=(hostile,), strategy="paragraph", stats=stats)
    print_chunks(cut, HOSTILE, name=HOSTILE, options=ChunkOptions())
    tell(HOSTILE)
    with show_progress() as listen:
        listen(Progress(message=HOSTILE))
        listen(Progress(done=1, total=2))
    captured = capsys.readouterr()
    for shown in (captured.out, captured.err):
        assert_harmless(shown)
        assert "[bold]" in shown.replace("\n", "")
        assert "\U0001f604" not in shown


def test_a_report_counts_and_names_what_went_wrong(capsys: Captured) -> None:
    """Ten files of a kind by name, the rest as a number."""
    failed = [file(f"{number:02}.md", FileOutcome.FAILED, "it is broken") for number in range(12)]
    skipped = file("a.png", FileOutcome.QUARANTINED, "it is binary")
    print_report(feed(), report(*failed, skipped, file("b.md", FileOutcome.CREATED), chunks=1_234), completed=False)
    shown = capsys.readouterr().out
    for part in (
        "Feed docs: 1 created, 1 skipped, 12 FAILED, in 1.2 s.",
        "1,234 chunks written, 12,340 tokens embedded.",
        "failed: 09.md: it is broken",
        "failed: and 2 more",
        "quarantined: a.png: it is binary",
    ):
        assert part in shown
    assert "10.md" not in shown


def test_a_second_run_says_that_nothing_changed(capsys: Captured) -> None:
    """And that nothing was paid."""
    print_report(feed(), report(file("a.md", FileOutcome.UNCHANGED)), completed=True)
    assert "Everything is unchanged; nothing was embedded." in capsys.readouterr().out
    print_report(feed(), report(file("a.md", FileOutcome.UNCHANGED)), completed=False)  # deletions wait
    assert "Everything is unchanged" not in capsys.readouterr().out
    print_report(feed(), report(), completed=True)
    assert "nothing to do" in capsys.readouterr().out


def test_a_listing_shows_whole_ids_and_the_next_page(capsys: Captured) -> None:
    """However long an id is: it is what the next command needs."""
    source_id = "notes/" + "z" * 200
    page = SourceListing(sources=(stored(source_id, "T"),), total=3, offset=1, limit=1, next_cursor="AAB_c-")
    print_listing(page)
    shown = capsys.readouterr().out
    assert shown.count("z") == 200
    assert "2 to 2 of 3; --after AAB_c- shows the next." in shown
    print_listing(replace(page, offset=None, total=10_000, total_is_exact=False, next_cursor=None))
    assert "1 of 10000+." in capsys.readouterr().out


def test_an_empty_page_is_not_an_empty_memory(capsys: Captured) -> None:
    """Past the end is said as such."""
    print_listing(SourceListing(sources=(), total=3, offset=9, limit=1))
    assert "Nothing at offset 9; there are 3 in all." in capsys.readouterr().out
    print_listing(SourceListing(sources=(), total=3, offset=None, limit=1))
    assert "Nothing behind this cursor; there are 3 in all." in capsys.readouterr().out
    print_listing(SourceListing(sources=(), total=0, offset=0, limit=1))
    assert "Nothing is stored that fits." in capsys.readouterr().out


def test_answers_go_to_one_stream_and_words_to_the_other(capsys: Captured) -> None:
    """`--json` can be piped."""
    print_json({"text": "é \u2028", "n": None})
    tell("Waiting.")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"text": "é \u2028", "n": None}
    assert "é" in captured.out
    assert captured.err == "Waiting.\n"


@pytest.mark.parametrize(("encoding", "text"), [("ascii", "é"), ("cp1252", "日本"), ("utf-8", "\udc80")])
def test_json_is_printed_on_every_terminal(monkeypatch: pytest.MonkeyPatch, encoding: str, text: str) -> None:
    """What the terminal cannot show is escaped."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    print_json({"text": text})
    sys.stdout.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == {"text": text}


def test_json_on_a_terminal_steers_it_neither(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """What a terminal would obey is escaped; the value is the same."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    value = {HOSTILE: HOSTILE + "\x9b31m é 日本"}
    print_json(value)
    shown = capsys.readouterr().out
    assert_harmless(shown)
    assert "é 日本" in shown
    assert json.loads(shown) == value


def make_chunks(*texts: str) -> tuple[str, list[Chunk]]:
    """A content of these texts, and a chunk of each."""
    content = "\n\n".join(texts)
    starts = [content.index(text) for text in texts]
    return content, [
        Chunk(index=index, text=text, char_start=start, char_end=start + len(text), token_count=10 * (index + 1))
        for index, (text, start) in enumerate(zip(texts, starts, strict=True))
    ]


def show_chunks(content: str, *chunks: Chunk, merged: int = 0, cluster_cuts: int = 0) -> None:
    stats = ChunkingStats(
        input_chars=len(content),
        chunk_count=len(chunks),
        total_tokens=sum(chunk.token_count for chunk in chunks),
        merged_count=merged,
        cluster_cuts=cluster_cuts,
    )
    result = ChunkingResult(chunks=chunks, strategy="csv-rows", stats=stats)
    print_chunks(result, content, name="a.csv", options=ChunkOptions(size=50, overlap=5, minimum=3))


def test_chunks_are_shown_with_their_places(capsys: Captured) -> None:
    """How the file was cut, then each chunk: number, tokens, lines, characters, path, lead and its first lines."""
    content, (first, second, third) = make_chunks("a,b\n1,2", "row\n" * 6 + "end", "x" * 150)
    second = replace(second, heading_path=("H", "I"), lead="a,b")
    show_chunks(content + "\n", first, second, third, merged=2)
    assert capsys.readouterr().out.splitlines() == [
        "a.csv: csv-rows, 3 chunks, 60 tokens",
        "      tokens a chunk: 10 least, 20 mean, 30 most (size 50, overlap 5, minimum 3)",
        "      189 characters in 12 lines; small pieces merged: 2",
        "",
        "[0]   10 tokens  lines 1 to 2  characters 0 to 7",
        "      | a,b",
        "      | 1,2",
        "",
        "[1]   20 tokens  lines 4 to 10  characters 9 to 36",
        "      path: H > I",
        "      lead: a,b",
        "      | row",
        "      | row",
        "      | row",
        "      | row",
        "      | … 3 more lines",
        "",
        "[2]   30 tokens  line 12  characters 38 to 188",
        f"      | {'x' * 100}…",
    ]


def test_chunks_of_a_page_show_what_is_read_of_them(capsys: Captured) -> None:
    """Beside the slice there is what a reader sees; a script shows nothing."""
    content, (shown, script) = make_chunks("<p>Fish &amp;\nchips</p>", "<script>let a</script>")
    show_chunks(content, replace(shown, readable="Fish &\nchips"), replace(script, readable=" "), cluster_cuts=1)
    lines = capsys.readouterr().out.splitlines()
    assert "      reads: Fish & chips" in lines
    assert "      | <p>Fish &amp;" in lines
    assert "      reads: nothing, so it is never a hit" in lines
    assert lines[2].endswith("; cuts inside a character of several signs: 1")


def test_a_hit_inside_a_table_shows_the_header_of_its_columns(capsys: Captured) -> None:
    """The rows of a table say little without it."""
    found = hit("1,2")
    print_answer(answer(replace(found, row=replace(found.row, lead="count,price"))))
    assert "   lead: count,price" in capsys.readouterr().out.splitlines()
