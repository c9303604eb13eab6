"""Who may write to a database: its schema, its recipe, its embedding spaces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory_core.errors import ForeignDatabaseError
from memory_core.spaces import SCHEMA_VERSION, adopt_recipe, refuse_other
from memory_core.store_ports import ActiveSpace

OURS, THEIRS = "2/400-0-32/words", "2/200-0-32/words"


@pytest.fixture
def make_space() -> Callable[..., ActiveSpace]:
    """What `meta` says."""

    def make(*, schema: int = SCHEMA_VERSION, recipe: str | None = OURS, pending: str | None = None) -> ActiveSpace:
        return ActiveSpace(schema_version=schema, fingerprint="a", lineage="l", pending=pending, recipe=recipe)

    return make


@pytest.mark.parametrize(("fingerprint", "recipe"), [("a", OURS), ("b", OURS), ("a", None)])
def test_a_process_that_agrees_may_write(
    make_space: Callable[..., ActiveSpace], fingerprint: str, recipe: str | None
) -> None:
    """Of the active and of the pending space; without a recipe it cuts nothing."""
    refuse_other(make_space(pending="b"), fingerprint=fingerprint, recipe=recipe)


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [(SCHEMA_VERSION - 1, "run `memory migrate`"), (SCHEMA_VERSION + 1, "use a newer version of this program")],
)
def test_another_schema_is_refused_with_its_way_out(
    make_space: Callable[..., ActiveSpace], schema: int, remedy: str
) -> None:
    """Whatever else agrees."""
    with pytest.raises(ForeignDatabaseError) as refusal:
        refuse_other(make_space(schema=schema), fingerprint="a", recipe=OURS)
    assert f"schema {schema} " in refusal.value.message
    assert f"schema {SCHEMA_VERSION}." in refusal.value.message
    assert remedy in refusal.value.message


def test_another_recipe_is_refused_with_both_names_and_both_ways_out(make_space: Callable[..., ActiveSpace]) -> None:
    """Set the settings back, or cut everything anew."""
    with pytest.raises(ForeignDatabaseError) as refusal:
        refuse_other(make_space(), fingerprint="a", recipe=THEIRS)
    told = refusal.value.message
    assert all(word in told for word in (OURS, THEIRS, "CHUNK_SIZE_TOKENS", "`memory reembed --rechunk`"))


def test_a_memory_without_a_recipe_takes_the_first_writers(make_space: Callable[..., ActiveSpace]) -> None:
    """And no other one after it."""
    fresh = make_space(recipe=None)
    refuse_other(fresh, fingerprint="a", recipe=OURS)
    settled = adopt_recipe(fresh, OURS)
    assert settled == adopt_recipe(settled, OURS) == make_space()
    with pytest.raises(ForeignDatabaseError):
        adopt_recipe(settled, THEIRS)
