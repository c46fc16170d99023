"""Declarations from entries of a manifest: resolves expressions, checks properties and records all problems.

* A static mistake is a problem of the manifest. An expression that fails on this machine is a failure of its
  resource, reported when the resource is reached.
* An invalid or unknown property is omitted. The other properties are still checked.
* An expression without a value is evaluated again when its resource is reached, since an earlier resource may have
  created its input. Names and references are not evaluated again. Facts and data stay those of the start of the run.
"""

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.formatting import prefixed
from foundation.problems import DependsOn, Problem, ProblemCode, replaced
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, depends_of_value, evaluate, has_expression, resolve_tree
from hiera.values.secrets import has_secret, revealed
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.manifest.declaration import Agent, Declaration, Home, Late
from puller.manifest.entries import FOR, Entry
from puller.manifest.manifest import Inputs
from puller.manifest.problems import Problems, as_texts, decode, decode_known, find_problems, value_at
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.resources.registry import find_type
from puller.templates.functions import OF_FILES
from puller.values.convert import QUOTE

if TYPE_CHECKING:
    from hiera.expressions.repeated import Repeated
    from puller.manifest.masking import Mask


_NO_TEXTS: "Mapping[str, Repeated]" = MappingProxyType({})


def declare(
    entry: Entry,
    problems: Problems,
    home: Home,
    inputs: Inputs,
    mask: "Mask | None",
    scope: Scope | None = None,
    repeated: "Mapping[str, Repeated]" = _NO_TEXTS,
) -> Declaration | None:
    """The declaration of one entry; ``None`` with the reason noted when nothing can be made of it.

    ``scope`` is that of its manifest unless it is given; ``repeated`` are texts that are read already.

    1. Other spellings become the type's own properties.
    2. Expressions are replaced by what they give; what one cannot give is the resource's failure.
    3. A list that a template has written with secrets at hand (``mask``) makes the resource sensitive.
    4. The values become typed properties, those that are wrong left out.
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
    """The draft of an entry, in the type's own properties; ``None`` with the reason noted when there can be none."""
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
    """The declaration that stands for a loop without items, or for one that has ``failures``.

    What is the same for all items is checked. ``None`` with the reason noted when nothing can be made of it.
    """
    draft = draft_of(entry, problems, home)
    if draft is None:
        return None
    draft.leave_open()
    draft.failures["for"] = failures
    return draft.typed(home)


class Draft(msgspec.Struct):
    """One resource on its way to a declaration."""

    entry: Entry
    type: ResourceType
    problems: Problems
    """Of the text that it stands in."""
    raw: dict[str, Any] = {}
    """Its properties; expressions are replaced by what they give."""
    given: dict[str, Any] = {}
    """Those that expressions give, as they were written."""
    secret: set[str] = set()
    """Those of them that a secret went into."""
    unknown: set[str] = set()
    """Those that have no value that could be worked with."""
    failures: dict[str, tuple[Problem, ...]] = {}
    """Why it cannot be applied on this machine, by property."""
    open: set[str] = set()
    """Properties whose expressions give nothing."""
    agent: Agent = Agent.OF_THE_MACHINE
    scope: Scope | None = None
    """The scope that its expressions were resolved in."""

    def accept(self) -> bool:
        """Take the type's other spellings; false with the reason noted when nothing can be made of them."""
        written = self.entry.properties
        while True:
            try:
                self.raw = self.type.accept(written)
            except PropertyError as error:
                self._refuse(error)
                self.unknown.add(error.property)
                if error.property not in written:
                    return False
                # Without it, so that all that is wrong with the others is found, too.
                written = {key: value for key, value in written.items() if key != error.property}
            else:
                return self.agent is Agent.OF_THE_MACHINE or self._accept_of_user()

    def _accept_of_user(self) -> bool:
        """Take what a user's agent can manage, and say what is its own; false with the reason noted otherwise."""
        from puller.manifest import as_user_rules  # the machine's own agent needs none of it

        if sentence := as_user_rules.refusal(self.entry.type_name):
            self.problems.add(self.entry.path, sentence, self._subject("name"), ProblemCode.REQUIRES_ROOT)
            return False
        as_user_rules.complete(self.entry.type_name, self.raw)
        return True

    def resolve(self, scope: Scope, repeated: "Mapping[str, Repeated]" = _NO_TEXTS) -> None:
        """Replace what holds expressions; ``repeated`` are texts that are read already."""
        self.scope = scope
        if self.type.unused:
            self._leave_out_unused(scope, repeated)
        for key, value in list(self.raw.items()):
            # Not a function of its own: most properties of ten thousand resources go no further than this.
            if isinstance(value, str):
                if "{{" not in value:  # as ``has_expression``
                    continue
                if key == "ensure" and self.type.unused:  # resolved before all others
                    continue
            elif not isinstance(value, list | dict):
                continue
            # Those are resolved when the resource is applied; in TinyCM's content braces are format fields.
            if key in self.type.expressions_kept or (
                key == "content" and self.raw.get("interpolate") is True
            ):
                continue
            self._resolve_one(key, value, scope, repeated)
        if self.secret:  # the type's own content must not be shown either: what is on the machine may hold it
            self.raw["sensitive"] = True

    def resolve_again(self, late: Late, scope: Scope) -> None:
        """Replace what could not be resolved before."""
        self.scope = scope
        if self.type.unused:
            self._leave_out_unused(scope, _NO_TEXTS)
        for key in late.open:
            if key in self.raw and not (key == "ensure" and self.type.unused):
                self._resolve_one(key, self.given[key], scope, _NO_TEXTS)
        if self.secret:
            self.raw["sensitive"] = True

    def _leave_out_unused(self, scope: Scope, repeated: "Mapping[str, Repeated]") -> None:
        """Drop what has no part in the state that ``ensure`` names, before anything of it is evaluated."""
        ensure = self.raw.get("ensure")
        if isinstance(ensure, str) and "{{" in ensure:
            self._resolve_one("ensure", ensure, scope, repeated)
            ensure = self.raw["ensure"]
        if isinstance(ensure, str) and (unused := self.type.unused.get(ensure)):
            self.raw = {key: value for key, value in self.raw.items() if key not in unused}

    def _resolve_one(self, key: str, value: Any, scope: Scope, repeated: "Mapping[str, Repeated]") -> None:
        try:
            text = repeated.get(value) if repeated and isinstance(value, str) else None
            new = resolve_tree(value, scope) if text is None else text.value(scope)
        except HieraError as error:
            self._fail(key, *(replaced(prefixed(one, key), property=key) for one in error.problems))
            self.given[key] = value
            self.open.add(key)
            return
        if new is not value:
            self.given[key] = value
            if has_secret(new):
                new = revealed(new)
                self.secret.add(key)
            self.raw[key] = new

    def leave_open(self) -> None:
        """Let what holds expressions have no value."""
        # No mapping's text begins another's with a brace, so two of them are those of an expression.
        self.given = {
            key: value
            for key, value in self.raw.items()
            if key not in self.type.expressions_kept and has_expression(str(value))
        }
        self.given["name"] = self.raw.get("name")
        self.unknown |= set(self.given)

    def mark_secrets(self, mask: "Mask") -> None:
        """Mark a resource as sensitive that a template has written with secrets at hand.

        What the template did with them is not known: what a type calls secret may be made of them, and so is, of
        course, anything that they stand in.
        """
        self.raw["sensitive"] = True
        hidden = self.type.hidden_when_sensitive()
        self.secret |= {
            key for key, value in self.raw.items() if key in hidden or mask(str(value)) != str(value)
        }

    def declaration(self, home: Home) -> Declaration | None:
        """The declaration; ``None`` with the reason noted for a resource without a name that could be referred to."""
        if self.agent is not Agent.OF_THE_MACHINE:
            self._refuse_what_wants_root()
        declaration = self.typed(home)
        if self.secret and self._shows_secret():  # as anything else would that is said of it
            return None
        if "name" not in self.unknown:
            return declaration
        if self._is_left_out():
            return None
        # Nothing could refer to it, so this is no failure of its own: it refuses the manifest.
        if "name" in self.failures and home.has_data:
            for problem in self.failures["name"]:
                noted = replaced(problem, subject=self._subject("name"))
                self.problems.note(self.problems.placed(noted, self.entry.path))
        declaration.check()
        return None

    def _is_left_out(self) -> bool:
        """Whether ``control`` leaves it out, so that its name is not needed. What fails leaves nothing out."""
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

    def _refuse_what_wants_root(self) -> None:
        from puller.manifest import as_user_rules

        is_here = self.agent is Agent.OF_THIS_USER
        for error in as_user_rules.problems(self.entry.type_name, self.raw, is_here=is_here):
            self._note(error)

    def typed(self, home: Home) -> Declaration:
        """The declaration, whatever its name is."""
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
        """For what is tried again when its turn comes: nothing that others are found by, or are to be read with."""
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
        return decode_known(self.type, self.raw, self.unknown)

    def _note(self, error: PropertyError) -> None:
        """Something does not decode: what was written is reported, what an expression gave is a failure."""
        name = error.property
        if name in self.unknown and name in self.given:  # it is open, and its text stands there still
            return
        if name in self.given:
            problem = error.problem(secret=self._is_hidden(name))
            # A boolean that an expression gives cannot be quoted.
            if error.is_unquoted and isinstance(value_at(self.raw, (name, *error.place)), bool):
                problem = replaced(problem, hint="add | string to its expression")
            self._fail(name, replaced(problem, depends_on=self._depends_on(name)))
        else:
            self._refuse(error)
            self.unknown.add(name)

    def _depends_on(self, name: str) -> DependsOn:
        """Why a value that an expression gave may be another one on another host."""
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
            problem = replaced(problem, hint="a loop stands beside the name of its resource")
        problem = replaced(problem, subject=self._subject(error.property))
        self.problems.note(self.problems.placed(problem, path))

    def _is_hidden(self, name: str) -> bool:
        hidden = self.type.hidden_when_sensitive() if self.raw.get("sensitive") is True else _NOTHING
        return name in self.secret or name in hidden

    def _shows_secret(self) -> bool:
        """Whether a secret stands where it is always shown, which is noted."""
        shown = sorted(self.secret & _ALWAYS_SHOWN)
        for name in shown:
            what = f"{name} is made of a secret, and would be shown"
            self.problems.add(self.entry.path, what, self._subject(name), ProblemCode.EXPOSED_SECRET)
        return bool(shown)

    def _subject(self, of: str) -> str:
        """The resource in a sentence about one property: what is the same for all items of a loop is said once."""
        item = self.entry.item
        if item is not None:
            return str(item.loop.reference) + (f" ({item})" if of in self.given else "")
        name = self.raw.get("name", self.entry.properties.get("name"))
        if "name" in self.secret:
            name = self.given.get("name", name)
        return f"{self.entry.type_name}#{name}"


_NOTHING: frozenset[str] = frozenset()
_BEFORE = frozenset({"name", "alias", "require", "after", "subscribe", "reload"})
"""What must be known before the first resource is applied."""
_ALWAYS_SHOWN = frozenset({"name", "alias", "ensure", "provider", "require", "after", "subscribe", "reload"})


# Expressions that are evaluated again when their resource is reached.


def evaluate_again(declaration: Declaration) -> list[str]:
    """Evaluate what gave nothing before, and make ``declaration`` what it is now; gives the paths that were asked for.

    What is wrong with it now, or still, is its ``failures``.
    """
    late, before = declaration.late, declaration.properties
    if late is None:
        return []
    asked: list[str] = []
    declaration.late = None
    around = declaration.problems
    problems = Problems(around.source, around.locate, around.original, around.text, around.mask)
    given, secret = dict(late.given), set(late.secret)
    draft = Draft(late.entry, declaration.type, problems, dict(late.raw), given, secret)
    draft.agent = declaration.home.agent
    draft.resolve_again(late, _noting(declaration.scope, declaration.home.files, asked))
    now = draft.declaration(declaration.home)
    if now is not None:
        now.check()
    if now is None or problems.any:
        declaration.failures = tuple(problems.all())
        return asked
    # What a parent has handed down to it stays.
    kept = {name: True for name in ("noop", "sensitive") if getattr(before, name)}
    declaration.properties = msgspec.structs.replace(now.properties, **kept)
    declaration.failures, declaration.unknown = now.failures, now.unknown
    declaration.dynamic, declaration.secret = now.dynamic, now.secret
    return asked


def _noting(scope: Scope, files: BundleFiles, asked: list[str]) -> Scope:
    """The scope with functions that note which files they are asked for."""

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            with suppress(BundlePathError, TypeError):
                asked.append(files.find(path))
            return function(path, *arguments, **named)

        return call

    return scope.with_names({name: noting(scope.functions[name]) for name in OF_FILES})
