"""Several resources that manage parts of one object change together, fail together, and keep their dependencies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foundation.differences import Difference, presence
from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError, ResourceError
from puller.manifest.graph.host_catalog import HostCatalog
from puller.reporting.report import Event
from puller.resources import registry
from puller.resources.base import Declared, Properties, Resource
from puller.system.local import LocalSystem
from puller.values.common_properties import Reference

PAGES: dict[str, list[str]] = {}
WRITES: list[list[str]] = []
REFUSED: set[str] = set()
"""A page with one of these words is not written."""
MISSPELT: set[str] = set()
"""These words fail, and are left out of their page."""


class WordProperties(Properties, frozen=True):
    """Properties of a word."""

    page: str = "page"
    """The page of the word."""
    behind: tuple[str, ...] = ()
    """Words that precede this word by default."""


class Word(Resource[WordProperties, bool]):
    """A word on a page."""

    type_name = "word"
    properties_type = WordProperties

    def look(self) -> bool:
        if self.properties.name == "unreadable":
            raise ResourceError("cannot be read")
        return self.properties.name in PAGES.setdefault(self.properties.page, [])

    def differences(self, actual: bool, *, refresh: bool = False) -> Sequence[Difference]:
        return [] if actual else [presence("absent", "present")]

    def change(self, differences: Sequence[Difference], actual: bool) -> None:
        self.change_together([(self, actual)])

    @classmethod
    def change_together(cls, members: Sequence[tuple[Any, bool]]) -> dict[int, Exception]:
        words = [member.properties.name for member, _ in members]
        WRITES.append(words)
        if refused := REFUSED.intersection(words):
            raise ResourceError(f"{', '.join(sorted(refused))} is refused")
        PAGES[members[0][0].properties.page] += (word for word in words if word not in MISSPELT)
        return {
            place: ResourceError(f"{word} is misspelt")
            for place, word in enumerate(words)
            if word in MISSPELT
        }

    @classmethod
    def diff_together(cls, members: Sequence[tuple[Any, bool]]) -> str | None:
        return "".join(f"+{member.properties.name}\n" for member, _ in members)

    @classmethod
    def whole(cls, properties: WordProperties) -> Hashable | None:
        return ("page", properties.page)

    @classmethod
    def follows(cls, properties: WordProperties, declared: Declared) -> Iterable[Reference]:
        return [Reference(f"{kind}#{name}") for name in properties.behind for kind in ("word", "phrase")]

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterator[tuple[Any, Any, str]]:
        by_name = {properties.name: properties for properties in declared("word")}
        for phrase in declared("phrase"):
            if phrase.name in by_name:
                yield by_name[phrase.name], phrase, "is a word as well"

    def noop_message(self, differences: Sequence[Difference], actual: bool) -> str:
        return "Would have written the word"


class Phrase(Word):
    """Another type of parts of a page."""

    type_name = "phrase"


@pytest.fixture(autouse=True)
def types(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pages", SimpleNamespace(Word=Word, Phrase=Phrase))
    monkeypatch.setitem(registry._OWN, "word", "pages:Word")
    monkeypatch.setitem(registry._OWN, "phrase", "pages:Phrase")
    for kept in (PAGES, WRITES, REFUSED, MISSPELT):
        kept.clear()
    yield
    registry.find_type.cache_clear()


Apply = Callable[..., dict[str, Event]]


@pytest.fixture
def apply(load: Callable[..., Any], tmp_path: Path) -> Apply:
    def run(text: str, *, noop: bool = False) -> dict[str, Event]:
        pending = PendingRefreshes(tmp_path / "owed.json", "web", noop=True)
        settings = Settings(diffs=True, noop=noop)
        engine = Engine(load(text), LocalSystem(), lambda url: b"", pending, settings)
        return {event.reference: event for event in engine.apply()}

    return run


def words(*entries: str) -> str:
    return "resources:\n" + "".join(f"  - {entry}\n" for entry in entries)


ONE_PAGE = words("word: [{a: {}}]", "exec: [{'true': {}}]", "phrase: [{b: {}}]", "word: [{c: {}}]")


def test_shared_transaction_joins_two_types(apply: Apply) -> None:
    events = apply(ONE_PAGE)
    assert WRITES == [["a", "b", "c"]]
    assert [event.state for event in events.values()] == ["changed"] * 4
    assert [*map(str, events["phrase#b"].differences)] == ["ensure absent → present"]


def test_the_diff_of_all_is_with_the_first_in_noop_too(apply: Apply) -> None:
    for noop in (True, False):
        events = apply(ONE_PAGE, noop=noop)
        assert events["word#a"].diff == "+a\n+b\n+c\n"
        assert events["phrase#b"].diff == events["word#c"].diff == ""


def test_a_sensitive_part_hides_the_diff_of_all(apply: Apply) -> None:
    assert {event.diff for event in apply(ONE_PAGE.replace("b: {}", "b: {sensitive: true}")).values()} == {""}


def test_parts_of_two_wholes_are_apart(apply: Apply) -> None:
    apply(words("word: [{a: {}}]", "word: [{b: {page: other}}]", "word: [{c: {}}]"))
    assert WRITES == [["a", "c"], ["b"]]


def test_existing_members_are_stable_and_not_written(apply: Apply) -> None:
    PAGES["page"] = ["b"]
    assert apply(ONE_PAGE)["phrase#b"].state == "stable"
    assert WRITES == [["a", "c"]]


def test_member_waits_for_earlier_resources(apply: Apply) -> None:
    apply(ONE_PAGE.replace("c: {}", "c: {require: [exec#true]}"))
    assert WRITES == [["a", "b"], ["c"]]


def test_member_joins_its_required_member(apply: Apply) -> None:
    first = "exec: [{'test a = a': {}}]"
    apply(
        words(
            first,
            "word: [{a: {}}]",
            "word: [{b: {require: [word#a]}}]",
            "word: [{c: {after: ['exec#test a = a']}}]",
        )
    )
    assert WRITES == [["a", "b", "c"]]


def test_a_part_whose_requirement_failed_does_not_join(apply: Apply) -> None:
    events = apply(words("exec: [{'false': {}}]", "word: [{a: {}}]", "word: [{b: {require: [exec#false]}}]"))
    assert WRITES == [["a"]]
    assert events["word#b"].state == "skipped"


def test_members_fail_together_and_are_not_retried_alone(apply: Apply) -> None:
    REFUSED.add("b")
    events = apply(ONE_PAGE)
    assert WRITES == [["a", "b", "c"]]
    assert [events[name].state for name in ("word#a", "phrase#b", "word#c")] == ["failed"] * 3
    assert events["word#c"].errors == ["b is refused"]
    assert PAGES["page"] == []


@pytest.mark.parametrize("wrong", [{"a"}, {"b"}, {"c"}, {"a", "c"}])
def test_parts_that_fail_by_themselves_take_no_other_with_them(apply: Apply, wrong: set[str]) -> None:
    MISSPELT.update(wrong)
    events = {event.name: event for event in apply(ONE_PAGE).values() if event.type != "exec"}
    assert PAGES["page"] == [word for word in "abc" if word not in wrong]
    assert {name for name, event in events.items() if event.state == "failed"} == wrong
    assert all(events[word].errors == [f"{word} is misspelt"] for word in wrong)
    assert WRITES == [["a", "b", "c"]]


@pytest.mark.parametrize(
    "properties",
    ["control: {if: 'false'}", "noop: true", "require: [exec#false]", "control: {if: 'data.nothing'}"],
)
def test_a_part_that_is_not_managed_is_not_written(apply: Apply, properties: str) -> None:
    apply(
        words(
            "exec: [{'false': {}}]", "word: [{a: {}}]", f"word: [{{b: {{{properties}}}}}]", "word: [{c: {}}]"
        )
    )
    assert WRITES == [["a", "c"]]


def test_member_under_a_true_condition_joins(apply: Apply) -> None:
    apply(ONE_PAGE.replace("b: {}", "b: {control: {if: 'true'}}"))
    assert WRITES == [["a", "b", "c"]]


def test_unreadable_member_does_not_block_others(apply: Apply) -> None:
    events = apply(words("word: [{a: {}}, {unreadable: {}}, {c: {}}]"))
    assert WRITES == [["a", "c"]]
    assert events["word#unreadable"].errors == ["cannot be read"]


def test_nothing_is_written_that_a_failure_between_should_stop(apply: Apply) -> None:
    stopping = "fail_on_error: true\n"
    apply(stopping + ONE_PAGE)
    assert WRITES == [["a"], ["b", "c"]]


def test_subscribers_of_every_part_are_refreshed(apply: Apply) -> None:
    text = ONE_PAGE + "  - exec: [{'test b': {refreshonly: true, subscribe: [phrase#b]}}]\n"
    assert apply(text)["exec#test b"].state == "refreshed"


def test_a_part_that_is_undone_between_is_changed_alone(
    apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    REFUSED.clear()
    original = Word.change_together.__func__  # type: ignore[attr-defined]

    def forgets(cls: type[Word], members: Sequence[tuple[Any, bool]]) -> None:
        original(cls, members)
        if len(members) > 1:
            PAGES["page"].remove("c")

    monkeypatch.setattr(Word, "change_together", classmethod(forgets))
    assert apply(ONE_PAGE)["word#c"].state == "changed"
    assert WRITES == [["a", "b", "c"], ["c"]]


# Implied order and its contradictions


def test_implied_order_is_kept(apply: Apply) -> None:
    apply(words("word: [{a: {behind: [b], page: one}}, {b: {page: two}}, {c: {page: three}}]"))
    assert WRITES == [["b"], ["a"], ["c"]]


def test_declared_order_overrides_the_implied_order(apply: Apply) -> None:
    apply(
        words(
            "word: [{a: {behind: [b, c], page: one}}, {b: {require: [word#a], page: two}}, {c: {page: three}}]"
        )
    )
    assert WRITES == [["c"], ["a"], ["b"]]


def test_implied_orders_that_contradict_each_other_are_no_cycle(apply: Apply) -> None:
    events = apply(words("word: [{a: {behind: [b], page: one}}, {b: {behind: [a, b], page: two}}]"))
    assert [event.state for event in events.values()] == ["changed"] * 2


def test_contradicting_resources_are_a_problem_with_both_lines(
    load: Callable[..., Any],
) -> None:
    output = r"manifest\.yaml:3: resources\[1\] phrase#a: is a word as well: word#a at web/manifest\.yaml:2"
    with pytest.raises(ManifestError, match=output):
        load(words("word: [{a: {}}]", "phrase: [{a: {}}]"))


def test_conditional_resources_do_not_contradict(apply: Apply) -> None:
    apply(words("word: [{a: {control: {if: 'true'}}}]", "phrase: [{a: {control: {unless: 'true'}}}]"))
    assert WRITES == [["a"]]


def test_bundles_that_contradict_each_other_do_not_fit(load: Callable[..., Any]) -> None:
    first, second = (load(words(f"{kind}: [{{a: {{}}}}]")) for kind in ("word", "phrase"))
    with pytest.raises(ManifestError, match="is a word as well: word#a at "):
        HostCatalog.of([first, second])
