"""The names in the scope of an expression or a template, their places in files, and the findings about unknown names.

* A name that the same text reads with a guard (``is defined``, ``default``) may be missing.
* An unknown top-level fact may be a custom fact, so it is not checked. ``environ`` differs between hosts.
* In a branch, a name that no known item has may belong to other items. It is checked only if it looks misspelt.
* The place of a finding is the line and column of the wrong step of a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Unpack

import msgspec
import yaml

from foundation.problems import KeyPath, Location, ProblemCode, replaced
from foundation.suggestions import ALMOST_EQUAL, VERY_SIMILAR, Meant, meant, nearest
from hiera.errors import HieraError
from hiera.expressions.refused import ABSENT
from hiera.parsing import Places
from hiera.values import MISSING, find_value
from puller.authoring.lint import value_shapes
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.value_shapes import ANY, Shape, of_value
from puller.facts.fact_tree import is_legacy_name
from puller.manifest.problems import Problems

Path = tuple[str, ...]


class TextPart:
    """A part of a text, such as one value: mistakes in it become findings at their line and column."""

    def __init__(
        self, name: str, text: str, start: int, end: int, path: KeyPath = (), *, skipped: int = 0
    ) -> None:
        """``skipped`` is the number of lines before the text that a parser has read."""
        self.name = name
        self.text = text
        self._start, self._end = start, end
        self._path = path
        self._skipped = skipped

    def finding(
        self,
        code: ProblemCode,
        message: str,
        needle: Path = (),
        line: int = 0,
        offset: int = -1,
        **fields: Any,
    ) -> Finding:
        """Return the finding of a mistake.

        ``needle`` is a name as steps, and the last step is wrong. ``line`` and ``offset`` are positions in the text, if
        known.
        """
        del line, offset  # the span of a value is more exact
        place = self._location(_found(self.text, needle, self._start, self._end))
        return Finding.of(code, place, message, **{"name": needle[-1] if needle else "", **fields})

    def _location(self, offset: int) -> Location:
        line = self.text.count("\n", 0, offset) + 1
        return Location(self.name, line, offset - self.text.rfind("\n", 0, offset), self._path)


UNPLACED = TextPart("", "", 0, 0)
"""For callers that ignore the findings."""


class _RenderedPart(TextPart):
    """A part of a rendered text, which may differ with the facts of other hosts."""

    mask: Callable[[str], str]

    def finding(self, code: ProblemCode, message: str, *more: Any, **fields: Any) -> Finding:
        """Return the finding of a mistake. An error becomes a warning about the available facts."""
        result = super().finding(code, self.mask(message), *more, **fields)
        if result.severity is not Severity.ERROR:
            return result
        return msgspec.structs.replace(
            result,
            problem=replaced(result.problem, message=f"{result.problem.message}, with the available facts"),
            severity=Severity.WARNING,
            switched_by=ProblemCode.RESOURCE_FAILS,
        )


class TemplatePart(TextPart):
    """A whole template, whose parser knows the line or the offset of a name."""

    def finding(
        self,
        code: ProblemCode,
        message: str,
        needle: Path = (),
        line: int = 0,
        offset: int = -1,
        **fields: Any,
    ) -> Finding:
        """Return the finding of a mistake in a template."""
        if offset < 0:
            start = _line_start(self.text, line + self._skipped)
            # The line of a multi-line expression may be its first or its last.
            offset = _found(self.text, needle, start, min(len(self.text), start + 2000), otherwise=start)
        else:
            end = min(len(self.text), offset + 500)
            offset = _found(self.text, needle, offset, end, otherwise=offset)
        place = self._location(offset)
        return Finding.of(code, place, message, **{"name": needle[-1] if needle else "", **fields})


class YamlText:
    """One YAML text. Its places are parsed on first use."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._places: Places | None = None

    def part(self, path: Sequence[str | int]) -> TextPart:
        """Return the value at a path of keys."""
        return self._part(*self._span(path), tuple(path))

    def line_part(self, line: int) -> TextPart:
        """Return a line."""
        start = _line_start(self.text, line)
        end = self.text.find("\n", start)
        return self._part(start, len(self.text) if end < 0 else end, ())

    def _part(self, start: int, end: int, path: KeyPath) -> TextPart:
        return TextPart(self.name, self.text, start, end, path)

    def _span(self, path: Sequence[str | int]) -> tuple[int, int]:
        try:
            self._places = self._places or Places(self.text)
        except yaml.YAMLError:
            return 0, 0
        return self._places.span(path)


class RenderedText(YamlText):
    """One text that a template has rendered."""

    def __init__(self, problems: Problems) -> None:
        super().__init__(problems.source, problems.text)
        self._mask = problems.mask

    def _part(self, start: int, end: int, path: KeyPath) -> TextPart:
        part = _RenderedPart(self.name, self.text, start, end, path)
        part.mask = self._mask
        return part


def template_part(name: str, text: str, *, skipped: int = 0) -> TextPart:
    """Return a template as a part. Its parser has skipped ``skipped`` lines."""
    return TemplatePart(name, text, 0, len(text), skipped=skipped)


def _found(text: str, needle: Path, start: int, end: int, *, otherwise: int | None = None) -> int:
    """Return the offset of the last step of a name between ``start`` and ``end``."""
    for steps in (needle, needle[-1:]):
        if steps and (match := _pattern(steps).search(text, start, end)):
            return match.start(1)
    return start if otherwise is None else otherwise


def _pattern(steps: Path) -> re.Pattern[str]:
    *before, last = steps
    ahead = "".join(_step(step) + r"['\"\]\s]*[.\[][\s'\"]*" for step in before if step != "…")
    return re.compile(rf"{ahead}(?<!\w)({_step(last)})(?!\w)")


def _step(step: str) -> str:
    return r"[^\]]*" if step == "*" else re.escape(step)


def _line_start(text: str, line: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start


UNKNOWN_NAME: Final = ProblemCode.UNKNOWN_NAME
UNKNOWN_FUNCTION: Final = ProblemCode.UNKNOWN_FUNCTION
ROOTS: Final = ("facts", "data", "environ")
CAPITALS: Final = frozenset(name.capitalize() for name in ROOTS)
_METHODS: Final = ("get", "items", "keys", "values")
_DECLARE: Final = "declare data of the site or a host as null in data"
_SHOWN: Final = 60  # characters of a name in a sentence


class Known(msgspec.Struct, frozen=True):
    """The names of one scope."""

    names: Mapping[str, Shape]
    """Values and functions. Functions have any shape."""
    facts: Mapping[str, Any] = {}
    """The available facts. A host can have all of them."""
    functions: frozenset[str] = frozenset()
    """The names that are functions."""
    is_lenient: bool = False
    """Whether there may be further names, which depend on the use of the text."""

    @classmethod
    def of(cls, data: Shape, facts: Shape, at_hand: Mapping[str, Any], functions: Sequence[str]) -> Known:
        """Return the scope of a manifest."""
        roots = {"facts": facts, "data": data, "environ": ANY}
        capitals = {name.capitalize(): shape for name, shape in roots.items()}
        return cls({**roots, **capitals, **dict.fromkeys(functions, ANY)}, at_hand, frozenset(functions))

    def dot(self) -> Shape:
        """Return the values among the names, as the initial dot of Go and Jet."""
        values = {name: shape for name, shape in self.names.items() if name not in self.functions}
        return Shape(values, ANY if self.is_lenient else None)

    def with_names(self, names: Mapping[str, Shape]) -> Known:
        """Return the scope with further names, which take precedence."""
        return msgspec.structs.replace(self, names={**self.names, **names}) if names else self

    def with_data(self, data: Shape) -> Known:
        """Return the scope with other data."""
        return self.with_names({"data": data, "Data": data})


class Guards:
    """The paths that a text reads with a guard."""

    def __init__(self, paths: set[Path] | None = None) -> None:
        self.paths: set[Path] = paths or set()
        self.kinds: set[Path] = set()
        """Paths whose kind is tested. Keys below them may be missing."""

    def add(self, path: Path | None) -> None:
        """Note a path that may be missing."""
        if path:
            self.paths.add(_folded(path))

    def add_kind(self, path: Path | None) -> None:
        """Note a path whose value may be of any kind."""
        if path:
            self.kinds.add(_folded(path))

    def over(self, other: Guards) -> Guards:
        """Return the union of these guards and the surrounding guards."""
        both = Guards(self.paths | other.paths)
        both.kinds = self.kinds | other.kinds
        return both

    def cover_name(self, name: str) -> bool:
        """Return whether a name may be missing. Guards of its keys do not count."""
        return (name,) in self.paths

    def cover(self, missing: Path) -> bool:
        """Return whether a path may be missing."""
        folded = _folded(missing)
        # The parents of a missing path exist. Otherwise a parent would be missing.
        if any(_begins(path, folded) for path in self.paths):
            return True
        return any(len(path) < len(folded) and _begins(folded, path) for path in self.kinds)


class Judge:
    """The checks of the names of one text."""

    def __init__(self, guards: Guards, facts: Mapping[str, Any], part: TextPart) -> None:
        """``part`` is the text."""
        self.guards = guards
        self.facts = facts
        self._part = part
        self.findings: list[Finding] = []
        self.printed: set[str] = set()
        """The facts that programs of the bundle print."""

    def step(
        self, shape: Shape, path: Path | None, key: str | int, *, in_branch: bool, line: int, offset: int = -1
    ) -> Shape:
        """Return the value at a key of the value at ``path``, and note a key that no host has."""
        missing = (*(path or ("…",)), str(key))
        result = shape.child(key)
        if result is value_shapes.RUN:
            return self._printed(missing, line, offset)
        if result is not None:
            return result
        if self._is_of_host(missing):
            return ANY
        if self.guards.cover(missing):
            self._doubt(shape, missing, line, offset)
            return ANY
        if missing[0] in ("facts", "Facts") and missing[1] in self.printed:
            detail = f"{'.'.join(missing)} is missing in the output of a program here, and may exist on other machines"
            self._unchecked(detail, missing, line, offset, missing[1])
            return ANY
        if missing[0] in ("facts", "Facts") and len(missing) == 2:
            self._own_fact(shape, missing, line, offset)
            return ANY
        if not self._may_belong_to_others(shape, str(key), in_branch):
            message, fields = _missing(shape, missing)
            self._note(UNKNOWN_NAME, message, missing, line, offset, **fields)
        return ANY

    def field(self, shape: Shape, path: Path, key: str, *, in_branch: bool, offset: int) -> Shape:
        """Return the value at a key of dot or of the value at ``path``, and note a key that no host has."""
        if path:
            return self.step(shape, path, key, in_branch=in_branch, line=0, offset=offset)
        result = shape.child(key)
        if (
            result is not None
            or self.guards.cover((key,))
            or self._may_belong_to_others(shape, key, in_branch)
        ):
            return result or ANY
        known = [name for name in shape.keys if name not in CAPITALS]
        self.unknown(UNKNOWN_NAME, key, "", known, line=0, offset=offset)
        return ANY

    def unknown(
        self, code: ProblemCode, name: str, kind: str, known: Sequence[str], *, line: int, offset: int = -1
    ) -> None:
        """Note an unknown name, filter, test or function."""
        message = f"unknown {kind or 'name '}{name[:_SHOWN]!r}"
        if not kind and name in ABSENT:
            self.refuse(code, name, f"{message}: {ABSENT[name]}", line=line, offset=offset)
            return
        self._note(code, message, (name,), line, offset, **meant(name, known))

    def refuse(
        self,
        code: ProblemCode,
        name: str,
        message: str,
        *,
        line: int,
        offset: int = -1,
        **names: Unpack[Meant],
    ) -> None:
        """Note a mistake with a name."""
        self._note(code, message, (name,), line, offset, **names)

    def _note(
        self,
        code: ProblemCode,
        message: str,
        needle: Path,
        line: int,
        offset: int,
        **fields: Any,
    ) -> None:
        self.findings.append(self._part.finding(code, message, needle, line, offset, **fields))

    def _printed(self, path: Path, line: int, offset: int) -> Shape:
        """Return the shape of a program's fact on this machine. On other machines it may differ."""
        self.printed.add(path[1])
        value = _at(self.facts, path[1:])
        if value is not MISSING:
            return of_value(value, "\0")
        detail = f"{'.'.join(path)} is output of a program of the bundle"
        self._unchecked(detail, path, line, offset, path[1])
        return ANY

    def _own_fact(self, shape: Shape, missing: Path, line: int, offset: int) -> None:
        """Note an unknown top-level fact: a host's own, or a misspelt one."""
        detail = f"{'.'.join(missing)} is not a built-in fact, and may be a custom fact of a host"
        if near := nearest(missing[1], shape.keys, 1, similarity=VERY_SIMILAR):
            self._note(ProblemCode.MISSPELT_FACT, detail, missing, line, offset, suggestions=near)
        else:
            self._unchecked(detail, missing, line, offset)

    def _is_of_host(self, missing: Path) -> bool:
        if missing[0] not in ("facts", "Facts"):
            return False
        if len(missing) == 2 and is_legacy_name(missing[1]):
            return True
        return _at(self.facts, missing[1:]) is not MISSING

    def _doubt(self, shape: Shape, missing: Path, line: int, offset: int) -> None:
        """Note a guarded missing name that is very similar to an existing name."""
        if near := nearest(missing[-1], shape.keys, 1, similarity=ALMOST_EQUAL):
            detail = f"{'.'.join(missing)} is not declared, and may be missing"
            self._unchecked(detail, missing, line, offset, suggestions=near)

    def _unchecked(
        self, message: str, missing: Path, line: int, offset: int, name: str = "", **fields: Any
    ) -> None:
        """Note a name that only a host can check. ``name`` is the fact, if the last step is not."""
        fields |= {"name": name or missing[-1], "severity": Severity.UNCHECKED}
        self._note(UNKNOWN_NAME, message, missing, line, offset, **fields)

    @staticmethod
    def _may_belong_to_others(shape: Shape, key: str, in_branch: bool) -> bool:
        if not (shape.is_loose or (in_branch and (shape.is_example or shape.is_scalar))):
            return False
        return not nearest(key, (*shape.keys, *_METHODS))


def _at(facts: Mapping[str, Any], steps: Path) -> Any:
    """Return an available fact, or ``MISSING``, also if reading it fails."""
    try:
        return find_value(facts, steps)
    except HieraError:
        return MISSING


def _missing(shape: Shape, missing: Path) -> tuple[str, dict[str, Any]]:
    """Return the message about a missing key, and further fields of the problem."""
    where = ".".join(missing[:-1])
    key = missing[-1]
    if shape.is_scalar:
        return f"{where} is a single value without {key[:_SHOWN]!r}", {}
    if shape.items is not None and not shape.keys:
        return f"{where} is a list without {key[:_SHOWN]!r}", {}
    names = meant(key, shape.keys)
    is_declared = "suggestions" in names or missing[0] not in ("data", "Data")
    return f"{where} has no {key[:_SHOWN]!r} on any host", {**names, "hint": "" if is_declared else _DECLARE}


def _folded(path: Path) -> Path:
    """Return a path with the lower-case name of its root."""
    first = path[0].lower() if path[0].lower() in ROOTS else path[0]
    return (first, *path[1:])


def _begins(path: Path, start: Path) -> bool:
    return path[: len(start)] == start
