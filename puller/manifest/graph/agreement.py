"""Agreement of two declarations of one resource: the united declaration, or the properties that differ.

* The result is a new declaration. Both inputs stay unchanged, so a caller can discard the result.
* The order of the two declarations affects only the reported place, not the properties.
* Paths are compared by their target, templates with their data.
* A property that is unknown on this machine is not compared, since its resource fails in any case.
"""

import filecmp
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from foundation.masking import HIDDEN
from foundation.problems import KeyPath, Problem, ProblemCode
from hiera.values import has_secret
from puller.bundle_paths import BundlePathError
from puller.manifest.declaration import Declaration
from puller.resources.base import Properties
from puller.resources.claims import Contradiction, fields, linked
from puller.values.plain_values import identical

_LONGEST, _MOST_KEYS = 80, 5  # characters of a value, and keys of data, in a sentence


class Disagreement(Exception):
    """Two declarations of one resource with different properties. Secret values are masked."""

    def __init__(self, first: Declaration, second: Declaration, contradiction: Contradiction) -> None:
        self.first_declaration = first
        self.second_declaration = second
        self.differences = [
            (name, _shown(first, second, name, item), _shown(second, first, name, other))
            for name, item, other in contradiction.differences
        ]
        self.property, self.first, self.second = self.differences[0]
        super().__init__(self.sentence())

    @property
    def place(self) -> KeyPath:
        """The path of the property in the text of the second declaration."""
        return (*self.second_declaration.path, self.property)

    @property
    def subject(self) -> str:
        """The second declaration in a message."""
        second = self.second_declaration
        item = f" ({second.item})" if second.item else ""
        return f"{second.reference}{item}"

    def problem(self) -> Problem:
        """The problem of the second declaration."""
        return self.second_declaration.problems.problem(
            self.place,
            self.sentence(),
            self.subject,
            ProblemCode.DECLARED_TWICE,
            property=self.property,
            related=(self.first_declaration.problems.location(self.first_declaration.path),),
        )

    def _other_name(self) -> str:
        """The name of the first declaration, if it is another spelling."""
        first = self.first_declaration.reference
        return "" if first == self.second_declaration.reference else f" as {first}"

    def sentence(self) -> str:
        """The problem of the second declaration."""
        what = ", ".join(
            f"{name} is {second} here and {first} there" for name, first, second in self.differences
        )
        text = (
            f"is declared twice, first at {self.first_declaration.origin}{self._other_name()}, and the two"
            f" differ: {what}"
        )
        return f"{text} ({_advice_on(self.first_declaration, self.second_declaration)})"


def agreed(first: Declaration, second: Declaration) -> Declaration:
    """Return the united declaration. Raise ``Disagreement``, with the two places that do not agree."""
    try:
        return _united(first, second)
    except Contradiction as contradiction:
        raise _between(first, second, contradiction) from None


def _between(first: Declaration, second: Declaration, contradiction: Contradiction) -> Disagreement:
    """Return the disagreement of the places that disagree, for declarations that are already united."""
    for place in first.places():
        for other in second.places():
            try:
                _united(place, other)
            except Contradiction as found:
                return Disagreement(place, other, found)
    return Disagreement(first, second, contradiction)


def _united(first: Declaration, second: Declaration) -> Declaration:
    if first.child is not second.child:  # two bundles may use one name for two manifests
        one, other = (_Words(f"one of {place.problems.source}") for place in (first, second))
        raise Contradiction([("name", one, other)])
    # Relative paths belong to the manifest that contains them.
    giver = second if _depends(second) and not _depends(first) else first
    return msgspec.structs.replace(
        giver,
        properties=_properties(first, second),
        problems=first.problems,
        path=first.path,
        failures=first.failures or second.failures,
        dynamic=first.dynamic | second.dynamic,
        secret=first.secret | second.secret,
        unknown=first.unknown | second.unknown,
        child=first.child,
        united=(*first.places(), *second.places()),
        late=None,  # the result of a second evaluation would be ambiguous
    )


def _depends(declaration: Declaration) -> bool:
    """Return whether any of its properties depends on its manifest."""
    return any(
        _is_given(declaration, name) for name in declaration.type.relative_paths | declaration.type.rendered
    )


def _properties(first: Declaration, second: Declaration) -> Properties:
    one, other = first.properties, second.properties
    whole = first.type.properties_type
    if not isinstance(other, whole):
        return linked(one, other)
    if not isinstance(one, whole):
        return linked(other, one)
    _require_same_scope(first, second)
    # A property that one declaration cannot determine takes the value of the other.
    one = msgspec.structs.replace(one, **_of(other, first.unknown - second.unknown))
    other = msgspec.structs.replace(other, **_of(one, second.unknown))
    paths = dict(_same_paths(first, second))
    return first.type.agree(one, msgspec.structs.replace(other, **paths))


def _of(properties: Properties, names: frozenset[str]) -> dict[str, Any]:
    named = {field.encode_name: field.name for field in fields(type(properties))}
    return {named[name]: getattr(properties, named[name]) for name in names if name in named}


# Paths and data


def _same_paths(first: Declaration, second: Declaration) -> Iterator[tuple[str, str]]:
    """Yield the paths of the second declaration for the comparison. Equal files get the spelling of the first one."""
    for name in first.type.relative_paths - first.unknown - second.unknown:
        one, other = getattr(first.properties, name), getattr(second.properties, name)
        if one and other:
            ours, theirs = _file(first, one), _file(second, other)
            is_copied = (
                name not in first.type.rendered and not os.path.isabs(one) and not os.path.isabs(other)
            )
            is_same = ours == theirs or (is_copied and _same_bytes(ours, theirs))
            yield name, one if is_same else _Words(_worded(_called(second, other)))


def _file(declaration: Declaration, written: str) -> str:
    """Return the file of a path in its manifest. URLs, and paths without a file in the bundle, stay as they are."""
    if "://" in written or os.path.isabs(written):
        return written
    try:
        return declaration.home.files.find(written)
    except BundlePathError:  # a failure of the resource at its turn
        return written


def _called(declaration: Declaration, written: str) -> str:
    """Return the name of a file in messages, relative like the name of its manifest."""
    if "://" in written:
        return written
    return os.path.normpath(os.path.join(os.path.dirname(declaration.home.data.own.name), written))


def _same_bytes(first: str, other: str) -> bool:
    try:
        return os.path.isfile(first) and os.path.isfile(other) and filecmp.cmp(first, other, shallow=False)
    except OSError:  # reported when the file is copied
        return False


def _require_same_scope(first: Declaration, second: Declaration) -> None:
    """Raise ``Contradiction`` if both render a template with different facts, data or directories."""
    names = [
        name
        for name in sorted(first.type.rendered - first.unknown - second.unknown)
        if _is_given(first, name) and _is_given(second, name)
    ]
    if names and not _sees_the_same(first, second):
        raise Contradiction([(name, _rendered(first, name), _rendered(second, name)) for name in names])


def _is_given(declaration: Declaration, name: str) -> bool:
    return getattr(declaration.properties, name, None) not in (None, False, "")


def _sees_the_same(first: Declaration, second: Declaration) -> bool:
    one, other = first.home, second.home
    if not identical(_variables(first), _variables(second)):
        return False
    return one is other or (one.files.directory == other.files.directory and one.data.is_as(other.data))


def _variables(declaration: Declaration) -> dict[str, Any]:
    return {name: value for name, value in declaration.scope.functions.items() if not callable(value)}


def _rendered(declaration: Declaration, name: str) -> "_Words":
    return _Words(f"{_worded(getattr(declaration.properties, name))} with the data of {declaration.origin}")


# Messages


class _Words(str):
    """The description of a value. It is shown as it is, and differs from every value."""

    __slots__ = ()


def _shown(declaration: Declaration, other: Declaration, name: str, value: Any) -> str:
    if isinstance(value, _Words):
        return str(value)
    if name in declaration.hidden | other.hidden or has_secret(value):
        return HIDDEN
    if name in declaration.type.relative_paths and value:
        return _worded(_called(declaration, value))
    by = next((parent for parent in declaration.parents() if parent.properties.noop), None)
    if name == "noop" and value and by is not None:
        return f"true by {by.reference}"
    return _worded(value)


def _worded(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, str):
        text = repr(str(value))
    elif isinstance(value, list | tuple | dict | bool | int):
        text = msgspec.json.encode(value, enc_hook=str).decode()
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _advice_on(first: Declaration, second: Declaration) -> str:
    one, other = first.home, second.home
    keys = [] if one is other else one.data.differing(other.data)
    detail = "use the same values in both, or declare it once"
    if not keys:
        return detail
    named = ", ".join(keys[:_MOST_KEYS]) + (", …" if len(keys) > _MOST_KEYS else "")
    if one.child and other.child and one.child.path == other.child.path:
        name = os.path.basename(one.child.path)
        return f"{name} is applied with data that differ in {named}: give each a resource name of its own, or {detail}"
    return f"the data of the two manifests differ in {named}, so {detail}"
