from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.highlight import (
    MAX_FRAGMENTS,
    WINDOW_CHARS,
    cut_fragments,
    find_matches,
    mark_fragments,
    mark_html,
    read_terms,
)

FILLER = "Nothing of interest stands here and it goes on for a while. "


def marked(text: str, query: str) -> list[str]:
    return [text[match.start : match.end] for match in find_matches(text, query)]


class TestTerms:
    """What of a query is looked for."""

    @pytest.mark.parametrize(
        ("query", "terms"),
        [
            ("Private Fields private", ("private", "fields")),
            ("how are the fields accessed", ("fields", "accessed")),
            ("a b cats", ("cats",)),
            ("to be or not to be", ("to", "be", "or", "not")),
            ("x", ("x",)),
            ("?! --", ()),
            ("C++ and C#", ("c++", "c#")),
            ("snake_case name", ("snake_case", "name")),
            ("数据库", ("数据", "据库")),
            ("犬", ("犬",)),
        ],
    )
    def test_telling_words_are_kept(self, query: str, terms: tuple[str, ...]) -> None:
        """Folded, each once, without stop words and single letters unless nothing else is there."""
        assert read_terms(query) == terms

    def test_a_long_query_is_cut(self) -> None:
        """Twelve terms are enough to find a place."""
        assert len(read_terms(" ".join(f"word{number}" for number in range(40)))) == 12


class TestMatches:
    """Where a text answers."""

    @pytest.mark.parametrize(
        ("text", "query", "found"),
        [
            ("Fields and a field", "field", ["Field", "field"]),
            ("accessing it, it was accessed", "accesses", ["access", "access"]),
            ("an afield is no match", "field", []),
            ("readPrivateField", "private field", ["Private", "Field"]),
            ("snake_field here", "field", ["field"]),
            ("HTTP/2 server", "http server", ["HTTP", "server"]),
            ("I write C++ and C", "C++", ["C++"]),
            ("the café and the CAFE\u0301 of résumés", "cafe resume", ["café", "CAFE\u0301", "résumé"]),
            ("连接数据库时", "数据库", ["数据", "据库"]),
        ],
    )
    def test_matches_begin_words(self, text: str, query: str, found: list[str]) -> None:
        """Prefixes of words match, insides do not; camelCase and snake_case have several words."""
        assert marked(text, query) == found

    def test_letters_that_fold_to_two_do_not_move_the_marks(self) -> None:
        """The dotted capital I and the sharp s are longer when folded; offsets are still those of the text."""
        text = "İİİ İstanbul, STRASSE, Straße"
        assert marked(text, "istanbul") == ["İstanbul"]
        assert marked(text, "strasse") == ["STRASSE", "Straße"]

    def test_at_most_32_matches_a_term(self) -> None:
        """A text of one word only does not cost a mark for each."""
        assert len(find_matches("cat " * 100, "cat")) == 32

    @given(text=st.text(max_size=80), query=st.text(max_size=20))
    def test_ranges_are_legal_for_any_text(self, text: str, query: str) -> None:
        """Matches lie inside the text, are not empty and come in order."""
        matches = find_matches(text, query)
        assert list(matches) == sorted(matches)
        assert all(0 <= match.start < match.end <= len(text) for match in matches)


class TestMarks:
    """HTML that can be shown."""

    def test_everything_is_escaped_once(self) -> None:
        """The five characters, and nothing twice."""
        assert mark_html("""a & b < c > d " e ' &amp;""", "zzz") == "a &amp; b &lt; c &gt; d &quot; e &#x27; &amp;amp;"

    @pytest.mark.parametrize(
        "text",
        ["<script>alert(1)</script>", '<img onerror="alert(1)" src=x>', "<svg/onload=alert(1)>", "<mark>x</mark>"],
    )
    def test_the_only_markup_is_mark(self, text: str) -> None:
        """Whatever text and query bring, `<mark>` is all that is left of markup."""
        html = mark_html(text, text)
        assert re.findall(r"<[^>]*>", html.replace("<mark>", "").replace("</mark>", "")) == []
        assert "<mark>" in html

    def test_terms_do_not_hit_entities(self) -> None:
        """`amp` and `lt` are looked for in the text, not in what escaping made of it."""
        assert mark_html("a & b < c", "amp lt") == "a &amp; b &lt; c"
        assert mark_html("amp & lamp", "amp") == "<mark>amp</mark> &amp; lamp"

    def test_touching_matches_are_one_mark(self) -> None:
        """Overlapping and adjacent ranges are merged."""
        assert mark_html("数据库", "数据库") == "<mark>数据库</mark>"
        assert mark_html("fieldname", "field fieldname") == "<mark>fieldname</mark>"

    @given(text=st.text(alphabet="ab <>&\"'İß", max_size=60), query=st.text(alphabet="ab <>&İß", max_size=8))
    def test_without_marks_it_is_the_escaped_text(self, text: str, query: str) -> None:
        """Marks only ever stand around pieces; no character is lost, doubled or moved."""
        bare = mark_html(text, query).replace("<mark>", "").replace("</mark>", "")
        assert bare == mark_html(text, "")


class TestFragments:
    """Snippets around the match."""

    def test_a_blank_text_has_none(self) -> None:
        """There is nothing to show."""
        assert cut_fragments("  \n ", "cat") == ()

    def test_a_short_text_is_shown_whole(self) -> None:
        """No ellipsis where nothing is left out; blanks are collapsed."""
        assert cut_fragments("the  cat\n\nsleeps ", "cat") == ("the cat sleeps",)

    def test_the_answer_is_in_the_snippet_however_deep_it_stands(self) -> None:
        """An answer behind the first thousand characters is shown, with an ellipsis on both sides."""
        text = FILLER * 20 + "The password is swordfish. " + FILLER * 20
        (fragment,) = cut_fragments(text, "password")
        assert "swordfish" in fragment
        assert fragment.startswith("…")
        assert fragment.endswith("…")
        assert len(fragment) <= WINDOW_CHARS + 2

    def test_the_real_edges_have_no_ellipsis(self) -> None:
        """Only a side where something was left out says so."""
        assert not cut_fragments("cat " + FILLER * 20, "cat")[0].startswith("…")
        assert not cut_fragments(FILLER * 20 + "cat", "cat")[0].endswith("…")

    def test_without_a_match_the_head_is_shown(self) -> None:
        """A hit by meaning alone still has a snippet."""
        (fragment,) = cut_fragments(FILLER * 20, "zebra")
        assert fragment.startswith("Nothing of interest")
        assert fragment.endswith("…")

    def test_the_window_with_most_different_terms_is_first(self) -> None:
        """Three different words beat one word three times; both are shown."""
        text = "cat cat cat. " + FILLER * 10 + "a cat and a dog and a cow. " + FILLER * 10
        fragments = cut_fragments(text, "cat dog cow")
        assert len(fragments) == MAX_FRAGMENTS
        assert "dog and a cow" in fragments[0]
        assert "cat cat cat" in fragments[1]

    def test_windows_do_not_overlap_and_are_capped(self) -> None:
        """No sentence is shown twice."""
        text = " ".join(f"cat{number} {FILLER}" for number in range(30))
        fragments = cut_fragments(text, "cat", limit=5)
        assert len(fragments) == 5
        names = [name for fragment in fragments for name in re.findall(r"cat\d+", fragment)]
        assert len(names) == len(set(names))

    def test_words_are_not_cut(self) -> None:
        """Edges move to a blank near by."""
        text = FILLER * 5 + "the cat sleeps. " + FILLER * 5
        words = set(text.split())
        for fragment in cut_fragments(text, "cat", window=60):
            assert len(fragment) <= 62
            assert set(fragment.strip("…").split()) <= words

    def test_graphemes_are_not_cut(self) -> None:
        """A text without blanks is cut between clusters, not inside an emoji or before an accent."""
        family = "\U0001f469\u200d\U0001f467"
        (fragment,) = cut_fragments(family * 200, "zebra")
        assert fragment.strip("…").replace(family, "") == ""
        (accents,) = cut_fragments("e\u0301" * 300, "zebra", window=41)
        assert not unicodedata.combining(accents[0])

    def test_marked_fragments_are_safe(self) -> None:
        """The HTML variant escapes the same snippets."""
        text = FILLER * 10 + "<b>cat</b> " + FILLER * 10
        (fragment,) = mark_fragments(text, "cat")
        assert "&lt;b&gt;<mark>cat</mark>&lt;/b&gt;" in fragment

    @given(text=st.text(max_size=600), query=st.text(max_size=10))
    def test_any_text_gives_bounded_fragments(self, text: str, query: str) -> None:
        """Hostile text makes no error and no long snippet."""
        for fragment in cut_fragments(text, query, window=60):
            assert len(fragment) <= 62
