from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.adapters.text_terms import TextTerms, fold
from memory_core.errors import ConfigError


@pytest.fixture(scope="module")
def english() -> TextTerms:
    return TextTerms("english")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("readPrivateField", ["readprivatefield", "read", "privat", "field"]),
        ("parse_url", ["parse_url", "pars", "url"]),
        ("HTTPServer2", ["httpserver2", "http", "server", "2"]),
        ("SHA256 utf8", ["sha256", "sha", "256", "utf8", "utf", "8"]),
        ("C++ C# C++11", ["c++", "c#", "c++", "11"]),
        ("running runs", ["run", "run"]),
        ("don't", ["don't", "don"]),
        ("İstanbul CAFÉ cafe\u0301", ["istanbul", "cafe", "cafe"]),
        ("\ufb01eld \uff37idth", ["field", "width"]),
        ("数据库 犬", ["数", "据", "库", "数据", "据库", "犬"]),
        ("Python数据", ["python", "数", "据", "数据"]),
        ("हिन्दी", ["हिन्दी"]),
        ("... -- !", []),
    ],
)
def test_words_become_terms(english: TextTerms, text: str, terms: list[str]) -> None:
    """Whole words and the parts of identifiers, folded and stemmed; scripts without blanks in pairs."""
    assert english.index_terms(text) == terms


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("How are the private fields accessed?", ("privat", "field", "access")),
        ("to be or not to be", ("to", "be", "or", "not")),
        ("don't panic", ("panic",)),
        ("isValid", ("isvalid", "valid")),
        ("field Field FIELD", ("field",)),
        ("数据库", ("数据", "据库")),
        ("犬", ("犬",)),
    ],
)
def test_a_query_asks_with_its_telling_terms(english: TextTerms, query: str, terms: tuple[str, ...]) -> None:
    """Each once, without stop words unless nothing else is there."""
    assert english.query_terms(query) == terms


@given(text=st.text(max_size=60))
def test_a_query_only_asks_for_terms_that_its_own_text_has(text: str) -> None:
    """Index and query share one analysis: a text is found by itself."""
    terms = TextTerms("english")
    indexed = terms.index_terms(text)
    assert set(terms.query_terms(text)) <= set(indexed)
    assert bool(terms.query_terms(text)) == bool(indexed)
    assert not any(any(char.isspace() for char in term) or not term for term in indexed)


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("german", "die schönen Häuser", "haus"),
        ("french", "les chevaux", "cheval"),
        ("russian", "большие дома", "домами"),
    ],
)
def test_other_languages_have_their_stemmer(language: str, one: str, other: str) -> None:
    """SEARCH_LANGUAGE chooses stemmer and stop words."""
    terms = TextTerms(language)
    assert set(terms.query_terms(other)) & set(terms.query_terms(one))
    assert len(terms.query_terms(one)) <= 2


def test_a_language_without_stop_words_drops_none() -> None:
    """A missing list costs nothing."""
    assert TextTerms("hungarian").query_terms("ez a ház")[-1] == "haz"


def test_an_unknown_language_names_the_known_ones() -> None:
    """The error is a sentence with the setting and the choice."""
    with pytest.raises(ConfigError, match=r"SEARCH_LANGUAGE: no stemmer .* english, "):
        TextTerms("klingon")


def test_a_name_of_a_language_is_folded() -> None:
    """Blanks and capitals in the setting do no harm."""
    assert TextTerms(" English ").language == "english"


def test_letters_of_other_scripts_keep_their_marks() -> None:
    """An accent on a Latin letter is decoration; the breve of й and the signs of Hindi are not."""
    assert [fold("É"), fold("Ñ"), fold("λό"), fold("Й"), fold("が"), fold("Straße")] == [
        "e",
        "n",
        "λο",
        "й",
        "が",
        "strasse",
    ]


def test_a_megabyte_without_blanks_is_one_short_term(english: TextTerms) -> None:
    """Data is not taken apart and not remembered."""
    assert [len(term) for term in english.index_terms("aB" * 500_000)] == [128]


def test_threads_share_one_analysis() -> None:
    """Many threads get the same terms: a stemmer is used by one at a time."""
    text = " ".join(f"running{number} accessor{number}Fields" for number in range(300))
    expected = TextTerms("english").index_terms(text)
    shared = TextTerms("english")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(terms == expected for terms in pool.map(shared.index_terms, [text] * 16))
    finally:
        sys.setswitchinterval(interval)
