"""A single lookup in a tree, and the interpolation of ``%{…}`` in data and in ``hiera.yaml`` with its variables.

A lookup (Puppet's ``Invocation``) has parameters and limits:

* Looking up a name during its own lookup is a recursion, and an error.
* The work is limited: data with doubling references ends in an error, not in an endless lookup.

Interpolation:

* ``%{name}`` is a variable. The functions are ``%{lookup('k')}``, ``%{alias('k')}``, ``%{scope('v')}`` and
  ``%{literal('t')}``, and ``hiera`` is another name of ``lookup``. In ``hiera.yaml`` only variables are allowed.
* A missing variable is the empty text.
* Results are interpolated once more, except for the results of ``alias``.
* A text that contains a decrypted value is a secret.
* The variables come from facts, as in ``puppet lookup``.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from foundation.problems import DependsOn, Location, Problem, ProblemCode
from hiera.errors import DocumentError, HieraError, LimitError, LookupFailure
from hiera.tree import explain, ruby_values
from hiera.tree.explain import ABSENT, SILENT, Absent, Step
from hiera.values import Decrypted, Secret, has_secret, revealed

MAX_NESTING = 250  # nested lookups, slightly more than Puppet's stack allows
MAX_DEPTH = 1000  # nested lists and mappings in a result
MAX_LOOKUPS = 100_000
MAX_VALUES = 2_000_000
MAX_TEXT = 16 * 1024 * 1024  # characters of one interpolated text

_FRAMES = 12_000  # a nested lookup takes about twenty, a level of nested data one


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit to the limits of this module. The default of 1,000 frames allows only 45 lookups.

    Since Python 3.11 a call from Python to Python needs no space on the C stack, which the default limit protects.
    Other code of the process has no such limits, so the old limit is restored.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


Outer = Callable[[str], Any]
"""Returns the value of a whole key from outside of the tree, or ``MISSING``."""


class Place(NamedTuple):
    """The place of a value, for messages: in a data file, or in a ``hiera.yaml``."""

    file: str
    level: str = ""
    key: str = ""

    def __str__(self) -> str:
        pieces = {
            "file: ": self.file,
            "level ": self.level and repr(self.level),
            "key ": self.key and repr(self.key),
        }
        return ", ".join(name + value for name, value in pieces.items() if value)


class Invocation:
    """A single lookup in the tree.

    ``override`` has priority over the data, and ``defaults`` come after the data. Both also apply to interpolations.
    ``outer`` answers lookups in the data from outside of the tree, or returns ``MISSING``.
    """

    def __init__(
        self,
        override: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        outer: Outer | None = None,
    ) -> None:
        self.override = override or {}
        self.defaults = defaults or {}
        self.outer = outer
        self.place: Place | None = None
        """The place that is being read."""
        self._names: list[str] = []
        self._lookups = MAX_LOOKUPS
        self._values = MAX_VALUES
        self._depth = 0

    @contextmanager
    def resolving(self, name: str) -> Iterator[None]:
        """Mark ``name`` as being looked up in the block.

        Raises ``LookupFailure`` for a recursive lookup, ``LimitError`` for too many nested lookups.
        """
        if name in self._names:
            raise LookupFailure("", f"Recursive lookup detected in [{', '.join(self._names)}]")
        if len(self._names) >= MAX_NESTING:
            raise LimitError("", f"more than {MAX_NESTING} lookups inside one another")
        self._names.append(name)
        try:
            yield
        finally:
            self._names.pop()

    def spend_lookup(self) -> None:
        """Count a key that data looks up. Raises ``LimitError``."""
        self._lookups -= 1
        if self._lookups < 0:
            raise LimitError("", f"more than {MAX_LOOKUPS} lookups for one answer")

    def enter(self, count: int) -> None:
        """Count a list or mapping of ``count`` values that is processed until ``leave``. Raises ``LimitError``."""
        self._values -= count
        self._depth += 1
        if self._values < 0:
            raise LimitError("", f"more than {MAX_VALUES} values for one answer")
        if self._depth > MAX_DEPTH:
            raise LimitError("", f"more than {MAX_DEPTH} lists and mappings inside one another")

    def leave(self) -> None:
        """Leave the collection that was entered last."""
        self._depth -= 1


# Variables.
#
# * Every fact is a variable with its name. ``facts``, ``trusted``, ``environment`` and ``server_facts`` are reserved.
# * Facts are converted as in Puppet: null becomes the empty text, and values of other types become their text.
# * A fact is read when it is first used, because gathering can be slow.

IDENTITY = ("hostname", "domain", "fqdn", "clientcert")


class Facts(Mapping[str, Any]):
    """Cleaned facts, each cleaned on first use."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self._clean: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._clean:
            self._clean[name] = _clean(self._facts[name])
        return self._clean[name]

    def __contains__(self, name: object) -> bool:
        return name in self._facts

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


class Scope:
    """Variables by name, with or without a leading ``::``."""

    def __init__(
        self, facts: Mapping[str, Any], *, environment: str = "production", certname: str | None = None
    ) -> None:
        """``certname`` is the trusted name of a host without the fact ``clientcert``."""
        self._facts = Facts(facts)
        self._certname = certname
        self._local: dict[str, Any] = {}
        self._fixed: dict[str, Any] = {
            "facts": self._facts,
            "environment": environment,
            "server_facts": {},
            **_COMPILER,
            "settings::environment": environment,
        }

    def get(self, name: str) -> Any | Absent:
        """Return the value of a variable, or ``ABSENT``."""
        while name.startswith("::"):
            name = name[2:]
        for variables in (self._local, self._fixed):
            if name in variables:
                return variables[name]
        if name == "trusted":
            self._fixed[name] = self._trusted()
            return self._fixed[name]
        # Facts are variables of the top scope. A qualified name belongs to a class, and no classes are evaluated.
        return self._facts.get(name, ABSENT) if "::" not in name else ABSENT

    @contextmanager
    def binding(self, name: str, value: Any) -> Iterator[None]:
        """Set ``name`` to ``value`` while the block runs. It has priority over facts."""
        self._local = {name.removeprefix("::"): value}
        try:
            yield
        finally:
            self._local = {}

    def _trusted(self) -> dict[str, Any]:
        provided = self._facts.get("trusted")
        # ``puppet lookup`` runs as root and also accepts this fact in place of the certificate.
        if isinstance(provided, dict) and {"authenticated", "certname", "extensions"} <= provided.keys():
            return provided
        certname = self._facts.get("clientcert", self._certname)
        hostname, _, domain = ruby_values.to_s(certname).partition(".")
        return {
            "authenticated": "local",
            "certname": certname,
            "extensions": {},
            "hostname": hostname or None,
            "domain": domain or None,
            "external": {},
        }


# Variables of the compiler, which runs ``puppet lookup``.
_COMPILER = {"module_name": "", "caller_module_name": "", "name": "main", "title": "main"}


def verify_complete(facts: Mapping[str, Any]) -> None:
    """Check that standalone facts are not empty, and name the host completely or not at all.

    Raises ``DocumentError``.
    """
    if not facts:
        raise DocumentError("facts", "No facts available for target node: facts are empty")
    missing = [name for name in IDENTITY if name not in facts]
    if missing and len(missing) < len(IDENTITY):
        expected = (
            f"When overriding any of the {','.join(IDENTITY)} facts with a file, they must all be overridden"
        )
        raise DocumentError("facts", f"{expected}: {', '.join(missing)} is missing")


def _clean(value: Any) -> Any:
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return Facts(value)  # a caller's own mapping may be lazy, so only the used values are read
    if isinstance(value, dict):
        return {ruby_values.key(_clean(name)): _clean(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return ruby_values.to_s(value)


Lookup = Callable[[str, Invocation, Step], Any | Absent]
Warn = Callable[[Problem], None]


def warning(message: str, file: str = "") -> Problem:
    """Return a warning about a tree, with its file."""
    return Problem(code=ProblemCode.HOST_WARNING, message=message, location=Location(file))


_EXPRESSION = re.compile(r"%\{([^}]*)\}")
_CALL = re.compile(r"""^(\w+)\((?:"([^"]+)"|'([^']+)')\)$""", re.ASCII | re.MULTILINE)
_EMPTY = frozenset(("", "::", '""', "''", '"::"', "'::'"))
_BLANKS = "\0\t\n\v\f\r "
_METHODS = frozenset(("lookup", "hiera", "alias", "scope", "literal"))


class Given(NamedTuple):
    """A value from outside of the tree, which is final: nothing in it is interpolated."""

    value: Any

    def in_text(self) -> Any:
        """Return the value with secrets that make the text around them secret, as encrypted values do."""
        return _decrypted(self.value)


def _decrypted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _decrypted(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_decrypted(item) for item in value]
    return Decrypted(value.reveal()) if isinstance(value, Secret) else value


class Interpolator:
    """Puts variables of ``scope`` and values of ``lookup`` into texts. ``warn`` receives unknown variables."""

    def __init__(self, scope: Scope, lookup: Lookup, warn: Warn) -> None:
        self.scope = scope
        self._lookup = lookup
        self._warn = warn

    def resolve(self, value: Any, invocation: Invocation, step: Step, *, methods: bool = True) -> Any:
        """Return a copy of ``value`` with every expression in it replaced. Raises ``LookupFailure``.

        ``methods`` allows functions as well as variables.
        """
        if isinstance(value, str):
            return self._text(value, invocation, step, methods) if "%{" in value else value
        if isinstance(value, list | Mapping):
            invocation.enter(len(value))
            resolved = self._collection(value, invocation, step, methods)
            invocation.leave()
            return resolved
        return self._decrypted(value, invocation) if isinstance(value, Decrypted) else value

    def _collection(
        self, value: list[Any] | Mapping[Any, Any], invocation: Invocation, step: Step, methods: bool
    ) -> Any:
        if isinstance(value, list):
            return [self.resolve(item, invocation, step, methods=methods) for item in value]
        return {
            self._name(name, invocation, step, methods): self.resolve(item, invocation, step, methods=methods)
            for name, item in value.items()
        }

    def _decrypted(self, value: Decrypted, invocation: Invocation) -> Any:
        """Interpolate a decrypted text, as Puppet does. Its content appears in no record and no message."""
        plain = value.reveal()
        if not isinstance(plain, str) or "%{" not in plain:  # SOPS encrypts numbers and booleans too
            return value
        quiet = Interpolator(self.scope, self._lookup, lambda _: None)
        try:
            text = quiet.resolve(plain, invocation, SILENT)
        except HieraError as error:
            raise LookupFailure(
                "", f"an expression in a decrypted text fails ({type(error).__name__})"
            ) from None
        return text if has_secret(text) else Decrypted(text)

    def _name(self, name: Any, invocation: Invocation, step: Step, methods: bool) -> Any:
        if isinstance(name, str) and "%{" in name:
            return ruby_values.key(self._text(name, invocation, step, methods))
        return name

    def _text(self, subject: str, invocation: Invocation, step: Step, methods: bool) -> Any:
        step = step.add("interpolation", subject)
        pieces = _Parts()
        end = 0
        closed = subject.rfind("}") + 1  # beyond it, each %{ would be tried up to the end
        for match in _EXPRESSION.finditer(subject, 0, closed):
            pieces.add(subject[end : match.start()])
            end = match.end()
            expression = match[1].strip(_BLANKS)
            if expression in _EMPTY:
                continue
            method, argument = _method(expression, methods)
            if method == "alias":
                if match[0] != subject:
                    detail = "is only permitted if the expression is equal to the entire string"
                    raise LookupFailure("", f"'alias' interpolation {detail}")
                value = self._found(argument, invocation, step)
                return value.value if isinstance(value, Given) else value
            value = self._value(method, argument, subject, invocation, step)
            if isinstance(value, Given):
                pieces.add(value.in_text())
                continue
            # As in Puppet, the result is interpolated again. The stack of names detects a cycle.
            with invocation.resolving(f"scope:{argument}" if method == "scope" else argument):
                pieces.add(self.resolve(value, invocation, step, methods=methods))
        pieces.add(subject[end:])
        return pieces.joined()

    def _value(self, method: str, argument: str, subject: str, invocation: Invocation, step: Step) -> Any:
        if method == "literal":
            return argument
        if method == "scope":
            return self.variable(argument, subject, invocation, step)
        return self._found(argument, invocation, step)

    def _found(self, key: str, invocation: Invocation, step: Step) -> Any:
        invocation.spend_lookup()
        value = self._lookup(key, invocation, step)
        if isinstance(value, Given) and value.value is ABSENT:
            return ""
        return "" if value is ABSENT else value

    def variable(self, expression: str, subject: str, invocation: Invocation, step: Step) -> Any:
        """Return the value of ``expression``, such as ``facts.os.name``, or null.

        Raises ``LookupFailure`` for a malformed expression.
        """
        segments = explain.split(expression)
        if segments is None:
            raise LookupFailure("", f"Syntax error in string: {subject}")
        root = segments[0]
        value, event = self._root(root, invocation)
        inner = step.add("scope", "Global Scope")
        if value is ABSENT:
            return None
        # Recording all facts would hide relevant details, and gather unused facts.
        inner.found(root, "…" if isinstance(value, Facts) else value, event)
        try:
            value = explain.dig(expression, segments[1:], value, step)
        except LookupFailure as error:
            raise error.depending(DependsOn.FACTS) from None
        return None if value is ABSENT else value

    def _root(self, name: str | int, invocation: Invocation) -> tuple[Any | Absent, str]:
        """Return the value of a whole variable, and the event that explains its source."""
        if isinstance(name, int):
            raise LookupFailure("", f"Scope variable name {name} is a Integer, not a string")
        if name in invocation.override:
            return invocation.override[name], "found_in_overrides"
        value = self.scope.get(name)
        if value is not ABSENT:
            return value, "found"
        self._warn_of(name, invocation)
        return invocation.defaults.get(name, ABSENT), "found_in_defaults"

    def _warn_of(self, name: str, invocation: Invocation) -> None:
        if not (name.isascii() and name.isdecimal()):
            space, qualified, _ = name.removeprefix("::").rpartition("::")
            detail = f" class {space} could not be found" if qualified else ""
            place = f" ({invocation.place})" if invocation.place else ""
            self._warn(warning(f"Undefined variable '{name}';{detail}{place}"))


def _method(expression: str, allowed: bool) -> tuple[str, str]:
    """Return the function that ``expression`` calls and its argument. A variable is an argument of ``scope``."""
    match = _CALL.search(expression)
    if not match:
        return "scope", expression
    if not allowed:
        raise LookupFailure("", "Interpolation using method syntax is not allowed in this context")
    if match[1] not in _METHODS:
        raise LookupFailure("", f"Unknown interpolation method '{match[1]}'")
    return match[1], match[2] or match[3]


class _Parts:
    """The pieces of a text under construction, and whether any piece was a secret."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._is_secret = False

    def add(self, value: Any) -> None:
        if not isinstance(value, str):
            if has_secret(value):
                bare = revealed(value, Decrypted)
                self._is_secret = self._is_secret or bare != value
                value = bare
            value = ruby_values.to_s(value)
        self._length += len(value)
        if self._length > MAX_TEXT:
            raise LimitError("", f"a text of more than {MAX_TEXT} characters")
        self._parts.append(value)

    def joined(self) -> "str | Decrypted":
        text = "".join(self._parts)
        return Decrypted(text) if self._is_secret else text
