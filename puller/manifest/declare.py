"""Declarations from entries of a manifest: resolves expressions, checks properties and records all problems.

* A static mistake is a problem of the manifest. An expression that fails on this machine is a failure of its
  resource, reported when the resource is reached.
* An invalid or unknown property is omitted. The other properties are still checked.
* An expression without a value is evaluated again when its resource is reached, since an earlier resource may have
  created its input. Names and references are not evaluated again. Facts and data stay those of the start of the run.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.formatting import prefixed
from foundation.masking import Mask
from foundation.problems import DependsOn, Problem, ProblemCode, replaced
from hiera.errors import HieraError
from hiera.expressions.expressions import (
    Scope,
    depends_of_value,
    evaluate,
    has_expression,
    resolve_keys,
    resolve_tree,
)
from hiera.values import has_secret, revealed
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.manifest import as_user_rules
from puller.manifest.declaration import Agent, Declaration, Home, Late
from puller.manifest.entries import FOR, Entry
from puller.manifest.manifest import Inputs
from puller.manifest.problems import Problems, as_texts, decode, decode_known, find_problems, value_at
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.resources.registry import find_type
from puller.templates.functions import OF_FILES
from puller.values.plain_values import QUOTE

if TYPE_CHECKING:
    from puller.manifest.loops import Repeated


_NO_TEXTS: "Mapping[str, Repeated]" = MappingProxyType({})


def declare(
    entry: Entry,
    problems: Problems,
    home: Home,
    inputs: Inputs,
    mask: Mask | None,
    scope: Scope | None = None,
    repeated: "Mapping[str, Repeated]" = _NO_TEXTS,
) -> Declaration | None:
    """Return the declaration of one entry. ``None`` if it is rejected, with the problem on record.

    ``scope`` defaults to the scope of the manifest. ``repeated`` has texts that are already parsed.

    1. Replace other spellings by the type's own properties.
    2. Replace expressions by their values. An expression without a value is a failure of the resource.
    3. Mark the resource as sensitive if a template rendered the list with secrets (``mask``).
    4. Decode the values to typed properties. Invalid values are left out.
    """
    # 1. Spellings.
    draft = draft_of(entry, problems, home)
    if draft is None:
        return None
    # 2. Expressions.
    scope = scope or home.scope
    if inputs.watch is not None:
        scope = inputs.watch(problems.source, entry.key, home.scope, scope, home.files)
    draft.resolve(scope, repeated)
    # 3. Secrets.
    if mask is not None:
        draft.mark_secrets(mask)
    # 4. Types.
    return draft.declaration(home)


def draft_of(entry: Entry, problems: Problems, home: Home) -> "Draft | None":
    """Return the draft of an entry, in the type's own properties. ``None`` if it is rejected."""
    resource_type = find_type(entry.type_name)
    if resource_type is None:  # read_entries has reported it
        return None
    draft = Draft(entry, resource_type, problems, agent=home.agent)
    if not draft.accept():
        return None
    if home.removed is not None and draft.raw.get("removed") is None:
        draft.raw["removed"] = str(home.removed)
    return draft


def declare_unlooped(
    entry: Entry, problems: Problems, home: Home, failures: tuple[Problem, ...]
) -> Declaration | None:
    """Return the declaration for a loop without items, or for a loop with ``failures``.

    The properties that all items share are checked. ``None`` if the entry is rejected, with the problem on record.
    """
    draft = draft_of(entry, problems, home)
    if draft is None:
        return None
    draft.leave_open()
    draft.failures["for"] = failures
    return draft.typed(home)


class Draft(msgspec.Struct):
    """One resource before it becomes a declaration."""

    entry: Entry
    type: ResourceType
    problems: Problems
    """The problems of its text."""
    raw: dict[str, Any] = {}
    """Its properties. Expressions are replaced by their values."""
    given: dict[str, Any] = {}
    """The original texts of properties with expressions."""
    secret: set[str] = set()
    """Properties with expressions that use a secret."""
    unknown: set[str] = set()
    """Properties without a usable value."""
    failures: dict[str, tuple[Problem, ...]] = {}
    """The failures on this machine, by property."""
    open: set[str] = set()
    """Properties whose expressions have no value yet."""
    agent: Agent = Agent.OF_THE_MACHINE
    scope: Scope | None = None
    """The scope of its expressions."""

    def accept(self) -> bool:
        """Replace other spellings of the type. Return ``False`` after a problem, which is recorded."""
        written = self.entry.properties
        while True:
            try:
                self.raw = self.type.accept(written)
            except PropertyError as error:
                self._refuse(error)
                self.unknown.add(error.property)
                if error.property not in written:
                    return False
                # Try again without it, to check all other properties.
                written = {key: value for key, value in written.items() if key != error.property}
            else:
                return self.agent is Agent.OF_THE_MACHINE or self._accept_of_user()

    def _accept_of_user(self) -> bool:
        """Check the limits of a user's agent, and set its defaults. Return ``False`` if the type is rejected."""
        if sentence := as_user_rules.refusal(self.entry.type_name):
            self.problems.add(self.entry.path, sentence, self._subject("name"), ProblemCode.REQUIRES_ROOT)
            return False
        as_user_rules.complete(self.entry.type_name, self.raw)
        return True

    def resolve(self, scope: Scope, repeated: "Mapping[str, Repeated]" = _NO_TEXTS) -> None:
        """Replace expressions by their values. ``repeated`` has texts that are already parsed."""
        self.scope = scope
        if self.type.unused:
            self._leave_out_unused(scope, repeated)
        for key, value in list(self.raw.items()):
            # Inline, because most properties of ten thousand resources end here.
            if isinstance(value, str):
                if "{{" not in value:  # as ``has_expression``
                    continue
                if key == "ensure" and self.type.unused:  # resolved before all others
                    continue
            elif not isinstance(value, list | dict):
                continue
            # These are resolved when the resource is applied. In TinyCM content, braces are format fields.
            if key in self.type.expressions_kept or (
                key == "content" and self.raw.get("interpolate") is True
            ):
                continue
            self._resolve_one(key, value, scope, repeated)
        if self.secret:  # hides old content on the machine too, which may contain it
            self.raw["sensitive"] = True

    def resolve_again(self, late: Late, scope: Scope) -> None:
        """Resolve the expressions that had no value before."""
        self.scope = scope
        if self.type.unused:
            self._leave_out_unused(scope, _NO_TEXTS)
        for key in late.open:
            if key in self.raw and not (key == "ensure" and self.type.unused):
                self._resolve_one(key, self.given[key], scope, _NO_TEXTS)
        if self.secret:
            self.raw["sensitive"] = True

    def _leave_out_unused(self, scope: Scope, repeated: "Mapping[str, Repeated]") -> None:
        """Remove the properties that do not apply to the state in ``ensure``, before their evaluation."""
        ensure = self.raw.get("ensure")
        if isinstance(ensure, str) and "{{" in ensure:
            self._resolve_one("ensure", ensure, scope, repeated)
            ensure = self.raw["ensure"]
        if isinstance(ensure, str) and (unused := self.type.unused.get(ensure)):
            self.raw = {key: value for key, value in self.raw.items() if key not in unused}

    def _resolve_one(self, key: str, value: Any, scope: Scope, repeated: "Mapping[str, Repeated]") -> None:
        try:
            text = repeated.get(value) if repeated and isinstance(value, str) else None
            written = _with_resolved_rules(value, scope) if key == "health_checks" else value
            new = resolve_tree(written, scope) if text is None else text.value(scope)
        except HieraError as error:
            self._fail(key, *(replaced(prefixed(problem, key), property=key) for problem in error.problems))
            self.given[key] = value
            self.open.add(key)
            return
        if new is not value:
            self.given[key] = value
            if has_secret(new):
                new = revealed(new)
                if key != "ensure" or not _is_literal(new, value):
                    self.secret.add(key)
            self.raw[key] = new

    def leave_open(self) -> None:
        """Mark properties with expressions as unknown."""
        # Outside of expressions, the text of a mapping never contains two opening braces in a row.
        self.given = {
            key: value
            for key, value in self.raw.items()
            if key not in self.type.expressions_kept and has_expression(str(value))
        }
        self.given["name"] = self.raw.get("name")
        self.unknown |= set(self.given)

    def mark_secrets(self, mask: Mask) -> None:
        """Mark a resource as sensitive if a template rendered it with secrets.

        The use of the secrets in the template is unknown. All properties that the type hides are treated as secret, and
        all properties that contain a secret.
        """
        self.raw["sensitive"] = True
        hidden = self.type.hidden_when_sensitive()
        self.secret |= {
            key for key, value in self.raw.items() if key in hidden or mask(str(value)) != str(value)
        }

    def declaration(self, home: Home) -> Declaration | None:
        """Return the declaration. ``None`` if the resource has no usable name, with the problem on record."""
        if self.agent is not Agent.OF_THE_MACHINE:
            self._refuse_root_features()
        declaration = self.typed(home)
        if self.secret and self._shows_secret():  # all messages show these properties
            return None
        if "name" not in self.unknown:
            return declaration
        if self._is_left_out():
            return None
        # References to it are impossible, so the manifest is rejected.
        if "name" in self.failures and home.has_data:
            for problem in self.failures["name"]:
                noted = replaced(problem, subject=self._subject("name"))
                self.problems.note(self.problems.placed(noted, self.entry.path))
        declaration.check()
        return None

    def _is_left_out(self) -> bool:
        """Return whether ``control`` leaves it out, so that its name is not needed. ``False`` if a condition fails."""
        control = self.raw.get("control")
        if not isinstance(control, dict) or self.scope is None or self.problems.any:
            return False
        for name, value in (("if", False), ("unless", True)):
            condition = control.get(name)
            with suppress(HieraError):
                if isinstance(condition, str):
                    condition = evaluate(condition, self.scope)
                if condition is value:
                    return True
        return False

    def _refuse_root_features(self) -> None:
        is_here = self.agent is Agent.OF_THIS_USER
        for error in as_user_rules.problems(self.entry.type_name, self.raw, is_here=is_here):
            self._note(error)

    def typed(self, home: Home) -> Declaration:
        """Return the declaration, with any name."""
        return Declaration(
            self.type,
            self._decoded(),
            self.problems,
            self.entry.path,
            home,
            tuple(itertools.chain.from_iterable(self.failures.values())) if self.failures else (),
            frozenset(self.given) if self.given else _NOTHING,
            frozenset(self.secret) if self.secret else _NOTHING,
            frozenset(self.unknown) if self.unknown else _NOTHING,
            looped=self.entry.item,
            loop=self.entry.loop,
            own_label=self.entry.label,
            late=self._late() if self.open else None,
        )

    def _late(self) -> Late | None:
        """Return the data for a second evaluation. ``None`` if names, links or children depend on it."""
        if not self.open.isdisjoint(_BEFORE) or self.type.type_name == "apply":
            return None
        secret = frozenset(self.secret)
        return Late(self.entry, dict(self.raw), dict(self.given), secret, frozenset(self.open))

    def _decoded(self) -> Properties:
        try:
            return decode(self.type, self.raw)
        except msgspec.ValidationError:
            pass
        as_texts(self.type, self.raw, self.given)
        for error in find_problems(self.type, self.raw):
            self._note(error)
            # The property that a misspelt one means has no usable value. It is not reported as missing.
            if not error.place:
                self.unknown |= set(error.names.get("suggestions", ())) - self.raw.keys()
        return decode_known(self.type, self.raw, self.unknown)

    def _note(self, error: PropertyError) -> None:
        """Record a property that does not decode: a written value as a problem, a computed value as a failure."""
        name = error.property
        if name in self.unknown and name in self.given:  # still the text of an open expression
            return
        if name in self.given:
            problem = error.problem(secret=self._is_hidden(name))
            # The value of an expression cannot be quoted.
            if error.is_unquoted and isinstance(value_at(self.raw, (name, *error.place)), bool):
                problem = replaced(problem, hint="add | string to its expression")
            self._fail(name, replaced(problem, depends_on=self._depends_on(name)))
        else:
            self._refuse(error)
            self.unknown.add(name)

    def _depends_on(self, name: str) -> DependsOn:
        """Return why the value of an expression may differ on another host."""
        return depends_of_value(self.given[name])

    def _fail(self, name: str, *problems: Problem) -> None:
        self.failures[name] = (*self.failures.get(name, ()), *problems)
        self.unknown.add(name)

    def _refuse(self, error: PropertyError) -> None:
        path = (*self.entry.path, error.property, *error.place)
        is_hidden = self._is_hidden(error.property)
        problem = error.problem(secret=is_hidden)
        shows_value = error.shows_value and not is_hidden
        if error.is_unquoted and shows_value and (written := self.problems.original(path)) is not None:
            problem = replaced(problem, hint=f"{QUOTE}, as '{written}'")
        if error.property == FOR:
            problem = replaced(problem, hint="write the loop beside the name of its resource")
        problem = replaced(problem, subject=self._subject(error.property))
        self.problems.note(self.problems.placed(problem, path))

    def _is_hidden(self, name: str) -> bool:
        hidden = self.type.hidden_when_sensitive() if self.raw.get("sensitive") is True else _NOTHING
        return name in self.secret or name in hidden

    def _shows_secret(self) -> bool:
        """Return whether a property that messages always show contains a secret. Such a property is a problem."""
        shown = sorted(self.secret & _ALWAYS_SHOWN)
        for name in shown:
            detail = f"{name} contains a secret, and messages always show this property"
            hint = _HINTS.get(name, "")
            self.problems.add(
                self.entry.path, detail, self._subject(name), ProblemCode.EXPOSED_SECRET, hint=hint
            )
        return bool(shown)

    def _subject(self, of: str) -> str:
        """Return the subject of a problem. Problems that all items of a loop share name only the loop."""
        item = self.entry.item
        if item is not None:
            return str(item.loop.reference) + (f" ({item})" if of in self.given else "")
        name = self.raw.get("name", self.entry.properties.get("name"))
        if "name" in self.secret:
            name = self.given.get("name", name)
        return f"{self.entry.type_name}#{name}"


_NOTHING: frozenset[str] = frozenset()
_BEFORE = frozenset({"name", "alias", "require", "after", "subscribe", "reload"})
"""Properties that must be known before the first resource is applied."""
_ALWAYS_SHOWN = frozenset({"name", "alias", "ensure", "provider", "require", "after", "subscribe", "reload"})
_HINTS = {
    "ensure": "test the secret in the expression of ensure: {{ 'present' if data.secret else 'absent' }}"
}
_TEXT = r"""'([^'\\]*)'|"([^"\\]*)\""""  # compiled on first use


def _is_literal(value: Any, expression: Any) -> bool:
    """Return whether a value is written as text in its expression.

    Such an expression selects one of the author's texts. It exposes as much of a secret as a comparison.
    """
    return (
        isinstance(value, str)
        and isinstance(expression, str)
        and value in map("".join, re.findall(_TEXT, expression))
    )


# Expressions that are evaluated again when their resource is reached.


def evaluate_again(declaration: Declaration) -> list[str]:
    """Evaluate open expressions again and update ``declaration``. Return the paths that the expressions used.

    Remaining and new problems are in its ``failures``.
    """
    late, before = declaration.late, declaration.properties
    if late is None:
        return []
    requested: list[str] = []
    declaration.late = None
    around = declaration.problems
    problems = Problems(around.source, around.locate, around.original, around.text, around.mask)
    provided, secret = dict(late.given), set(late.secret)
    draft = Draft(late.entry, declaration.type, problems, dict(late.raw), provided, secret)
    draft.agent = declaration.home.agent
    draft.resolve_again(late, _noting(declaration.scope, declaration.home.files, requested))
    now = draft.declaration(declaration.home)
    if now is not None:
        now.check()
    if now is None or problems.any:
        declaration.failures = tuple(problems.all())
        return requested
    # Properties that a parent handed down stay.
    retained = {name: True for name in ("noop", "sensitive") if getattr(before, name)}
    declaration.properties = msgspec.structs.replace(now.properties, **retained)
    declaration.failures, declaration.unknown = now.failures, now.unknown
    declaration.dynamic, declaration.secret = now.dynamic, now.secret
    return requested


def _noting(scope: Scope, files: BundleFiles, requested: list[str]) -> Scope:
    """Return the scope with functions that record the paths of their files."""

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            with suppress(BundlePathError, TypeError):
                requested.append(files.find(path))
            return function(path, *arguments, **named)

        return call

    return scope.with_names({name: noting(scope.functions[name]) for name in OF_FILES})


def _with_resolved_rules(checks: Any, scope: Scope) -> Any:
    """Return health checks with the keys of ``goss_rules`` resolved: names of tests, such as URLs."""
    if not isinstance(checks, list) or _RULES not in str(checks):
        return checks
    resolved = [
        {**check, _RULES: resolve_keys(check[_RULES], scope)}
        if isinstance(check, dict) and _RULES in check
        else check
        for check in checks
    ]
    return checks if resolved == checks else resolved


_RULES = "goss_rules"
