"""Lookups of keys in Hiera data: those of ``puller hiera``, and the function ``hiera()`` of manifests.

``puller hiera`` asks a Hiera tree, a single document, or a bundle with both:

* In a bundle the tree has priority over the document of the manifest. Mappings in both are merged.
* An error is the answer for one key. It does not affect other keys.
* An explanation is recorded during the lookup. Secrets in it are masked.

``hiera('profile::web::port', default=…, merge=…)`` is Puppet's lookup, over all data of a manifest:

* Without ``merge`` the result is the value in ``data``. Keys follow Puppet's rules: dots dig, and quotes keep them.
* With ``merge`` the sources act as levels of a hierarchy, the highest first.
* Values of the tree are plain: Ruby's symbols and odd keys become text. Secrets stay secrets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from foundation.formatting import text_of
from hiera import values
from hiera.document.document import Document, Resolved
from hiera.errors import ExpressionError, HieraError, KeyNotFound, UndefinedError
from hiera.tree import explain, strategies
from hiera.tree.explain import ABSENT, SILENT, Key, Step, literal, recorder
from hiera.values import MISSING, described, hidden, hidden_at, hidden_below, merge_sources
from puller.data.bundle_data import BundleData
from puller.data.sources import Origin, Surroundings

if TYPE_CHECKING:
    from hiera.document.layers import Explanation
    from hiera.tree.lookup import Tree


class Question(NamedTuple):
    """The options of a lookup. ``default`` is the answer for a missing key."""

    merge: str | Mapping[str, Any] | None = None
    default: Any = None
    has_default: bool = False
    value_type: str | None = None
    explained: bool = False


class Answer:
    """The answer for one key: a value, a missing key, or an error.

    ``lines`` is the explanation for people, ``record`` for programs. ``places`` are the places of the value, highest
    priority first. A plain class, because importing ``dataclasses`` takes longer than the lookup.
    """

    __slots__ = ("error", "found", "key", "lines", "places", "record", "value")

    def __init__(
        self,
        key: str,
        found: bool = False,
        value: Any = None,
        error: str = "",
        lines: Sequence[str] = (),
        record: Any = None,
        places: tuple[str, ...] = (),
    ) -> None:
        self.key = key
        self.found = found
        self.value = value
        self.error = error
        self.lines = list(lines)
        self.record = record
        self.places = places

    def as_data(self) -> dict[str, Any]:
        """Return one entry of ``lookup --format json``. The value must already be printable."""
        if self.error:
            return {"error": self.error}
        return {"found": True, "value": self.value} if self.found else {"found": False}


class Answers(Protocol):
    """Data of one host."""

    def ask(self, key: str, question: Question) -> Answer:
        """Return the answer for one key. Errors are answers too."""
        ...

    def ask_all(self, question: Question) -> dict[str, Answer]:
        """Return the answer for every top-level key. Raise ``HieraError`` if the keys cannot be determined."""
        ...

    def holders(self) -> dict[str, list[str]]:
        """Return every top-level key with its places. Raise ``HieraError``."""
        ...


class TreeAnswers:
    """A Hiera 5 tree. Keys that are ``sensitive`` elsewhere in a bundle are secrets here, too."""

    def __init__(
        self, tree: Tree, sensitive: Collection[object] = (), outer: Callable[[str], Any] | None = None
    ) -> None:
        """``outer`` returns the value of a key outside of the tree for ``%{lookup('…')}``, or ``MISSING``."""
        self._tree = tree
        self._sensitive = sensitive
        self._outer = outer

    def ask(self, key: str, question: Question) -> Answer:
        step = recorder() if question.explained else SILENT
        answer = Answer(key)
        # Passed only if present, because null is a valid default.
        extra = {"default": question.default} if question.has_default else {}
        try:
            answer.value = self._tree.lookup(
                key,
                merge=question.merge,
                value_type=question.value_type,
                step=step,
                outer=self._outer,
                **extra,
            )
            answer.found = True
        except KeyNotFound:
            pass
        except HieraError as error:
            answer.error = str(error)
        if self._sensitive and self._is_sensitive(key):
            answer.value = hidden(answer.value)
            step.conceal()
        if question.explained:
            answer.lines, answer.record = str(step).splitlines(), step.as_data()
            answer.places = tuple(f'level "{level}" ({path})' for level, path in step.holders())
        return answer

    def _is_sensitive(self, key: str) -> bool:
        try:
            return explain.parse(key).root in self._sensitive
        except HieraError:  # the answer reports the invalid key
            return False

    def ask_all(self, question: Question) -> dict[str, Answer]:
        # Keys of files are whole keys, so their dots do not dig.
        return {key: self.ask(literal(key), question) for key in self._tree.holders()}

    def holders(self) -> dict[str, list[str]]:
        held = self._tree.holders()
        return {
            key: [f'{item.layer} level "{item.level}" ({item.path})' for item in held[key]] for key in held
        }


class DocumentAnswers:
    """A single document. Keys are dotted paths into its data.

    ``is_checked``: a value that violates its annotations is an error. The values of a bundle are not checked, because
    the host may override them.
    """

    def __init__(self, document: Document, facts: Mapping[str, Any], *, is_checked: bool = False) -> None:
        self.document = document
        self.facts = facts
        self._is_checked = is_checked
        self.resolve: Callable[[], Resolved] = self._resolved_alone
        """Returns its data, resolved with other data of the bundle."""
        self._done: Resolved | None = None

    @property
    def sensitive_keys(self) -> frozenset[object]:
        """The top-level keys with sensitive values."""
        annotations = self.document.annotations
        return frozenset(path[0] for path in annotations.sensitive) if annotations else frozenset()

    def _resolved(self) -> Resolved:
        # At the first lookup, so that a resolution error becomes its answer.
        if self._done is None:
            self._done = self.resolve()
        return self._done

    def _resolved_alone(self) -> Resolved:
        return self.document.resolve(facts=self.facts, environ=dict(os.environ))

    def ask(self, key: str, question: Question) -> Answer:
        try:
            steps = values.parse_path(key)
            value = values.find_value(self._resolved().data, steps)
        except HieraError as error:
            return Answer(key, error=str(error))
        if value is values.MISSING:
            return self._answer(key, steps[0], question.has_default, question.default)
        return self._answer(key, steps[0], True, value)

    @cached_property
    def _violations(self) -> dict[object, str]:
        """The errors of top-level keys with values that violate their annotations."""
        annotations = self.document.annotations
        if annotations is None or not self._is_checked:
            return {}
        problems = annotations.failures(self._resolved().data)
        return {values.parse_path(problem.name)[1]: text_of(problem) for problem in reversed(problems)}

    def _answer(self, key: str, root: str, found: bool, value: Any) -> Answer:
        if error := self._violations.get(root):
            return Answer(key, error=error)
        explanation = self._resolved().explanation
        lines, record = list(explanation.lines()), explanation.as_data()
        return Answer(key, found, value, "", lines, record, tuple(self._places(root)))

    def ask_all(self, question: Question) -> dict[str, Answer]:
        data = self._resolved().data
        return {str(key): self._answer(str(key), str(key), True, value) for key, value in data.items()}

    def _places(self, key: str) -> list[str]:
        explanation = self._resolved().explanation
        return [f"{explanation.source}: {section}" for section in reversed(explanation.keys.get(key, ()))]

    def holders(self) -> dict[str, list[str]]:
        return {str(key): self._places(str(key)) for key in self._resolved().data}


class BundleTogether:
    """The document and the tree of a bundle. Their expressions use the data of both."""

    def __init__(self, document: DocumentAnswers, tree: Tree, name: str) -> None:
        self._document = document.document
        self._here = Surroundings(document.facts, dict(os.environ))
        self._tree = tree
        self._name = name
        document.resolve = self.resolve

    @cached_property
    def _data(self) -> BundleData:
        own = self._here.choose(self._document, self._name, Origin.MANIFEST)
        return BundleData(own, self._tree, (), here=self._here)

    def resolve(self) -> Resolved:
        """Return the data of the document. Raise ``HieraError``."""
        own = self._data.own
        data: dict[str, Any] = dict(own.data)
        for path in self._data.sensitive():
            data = hidden_at(data, path)
        return Resolved(data, cast("Explanation", own.explanation))  # each document has one

    def of_documents(self, root: str) -> Any:
        """Return the value of a key of the document. ``MISSING`` for other and for unresolved keys."""
        try:
            return self._data.of_documents(root)
        except HieraError:  # the answer of the document has the error
            return MISSING


class BundleAnswers:
    """Several sources, the highest priority first."""

    def __init__(self, sources: Iterable[Answers]) -> None:
        self._sources = tuple(sources)

    def ask(self, key: str, question: Question) -> Answer:
        """Return the merged mappings of several sources, or the first other value."""
        # Without the default, because the default of the first source would hide all others.
        answers = [source.ask(key, question._replace(has_default=False)) for source in self._sources]
        answer = _combined(answers)
        if not answer.found and not answer.error and question.has_default:
            answer.found, answer.value = True, question.default
        return answer

    def ask_all(self, question: Question) -> dict[str, Answer]:
        everything = [source.ask_all(question) for source in self._sources]
        names = dict.fromkeys(key for part in everything for key in part)
        return {key: _combined([part[key] for part in everything if key in part]) for key in names}

    def holders(self) -> dict[str, list[str]]:
        held: dict[str, list[str]] = {}
        for source in self._sources:
            for key, places in source.holders().items():
                held.setdefault(key, []).extend(places)
        return held


def _combined(answers: list[Answer]) -> Answer:
    # An error hides lower sources, because the value of its source is unknown.
    first, *others = [answer for answer in answers if answer.found or answer.error] or answers
    for other in others:
        if first.found and other.found and isinstance(first.value, dict) and isinstance(other.value, dict):
            first.value = merge_sources(other.value, first.value)
            first.places += other.places
    first.lines = [line for answer in answers for line in answer.lines]
    first.record = [answer.record for answer in answers if answer.record is not None]
    return first


# The function ``hiera()`` of manifests.


def look_up(data: BundleData, name: str, default: Any = MISSING, merge: Any = None) -> Any:
    """Return the value of a key, or ``default``. Raise ``UndefinedError`` without both, or ``HieraError``."""
    if not isinstance(name, str):
        raise ExpressionError("", f"hiera requires a key such as 'profile::web::port', not {described(name)}")
    key = explain.parse(name)
    value = _found(data, key) if merge is None else _merged(data, key, merge)
    if value is not MISSING:
        return value
    if default is MISSING:
        raise UndefinedError("", f"the key {name!r} is missing in all data sources", key.root, data.all)
    return default


def _found(data: BundleData, key: Key) -> Any:
    is_elsewhere = any(key.root in source.data for source in data.documents)
    if data.tree is not None and not is_elsewhere:
        # A lookup in the tree finds more: the default hierarchy of a module may have the missing part.
        return _hidden(data, key, data.ask(key.text))
    return _dug(key, data.all.get(key.root, ABSENT))


def _merged(data: BundleData, key: Key, merge: Any) -> Any:
    """Return the values of all sources, combined by the strategy. Digging follows the merge, as in a tree."""
    # The tree keeps its position between the sources: above the manifest, below the sources from outside.
    places: list[Mapping[str, Any] | Tree] = [source.data for source in reversed(data.above)]
    places += [] if data.tree is None else [data.tree]
    places += [source.data for source in reversed(data.below)]

    def ask(place: Mapping[str, Any] | Tree, step: Step) -> Any:
        if isinstance(place, Mapping):
            return place.get(key.root, ABSENT)
        # The whole value, because digging may need a mapping that only the merge creates.
        value = data.ask(explain.literal(key.root), merge)
        return ABSENT if value is MISSING else value

    value = strategies.strategy(merge).gather(places, ask, SILENT)
    for path in data.sensitive(key.root):
        value = value if value is ABSENT else hidden_at({key.root: value}, path)[key.root]
    return _dug(key, value)


def _dug(key: Key, value: Any) -> Any:
    result = ABSENT if value is ABSENT else explain.dig(key.text, key.segments, value, SILENT)
    return MISSING if result is ABSENT else result


def _hidden(data: BundleData, key: Key, value: Any) -> Any:
    """Return a part of the tree's value. Sensitive parts become secrets."""
    requested = (key.root, *key.segments)
    for path in data.sensitive(key.root):
        value = value if value is MISSING else hidden_below(value, path, requested)
    return value
