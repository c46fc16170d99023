"""Errors of data, by the person who must act.

HieraError
* DocumentError       the author of a document: unreadable text, or an invalid structure
  - EnvelopeError         the author of an encrypted value, or the owner of its key
* ExpressionError     the author of an expression: it cannot be compiled, or fails while it runs
  - UndefinedError        the author or the machine: a missing fact, key or name
* ConfigError         the author of a ``hiera.yaml``
* LookupFailure       a key of a Hiera tree that cannot be answered
  - KeyNotFound         a key that is missing in all layers, without a default
* LimitError          input that is too deep, too large or endless
"""

from collections.abc import Callable, Iterable
from typing import Self

import msgspec

from foundation.formatting import place_text, text_of
from foundation.problems import NOWHERE, DependsOn, Location, Problem, ProblemCode
from foundation.suggestions import nearest


class HieraError(Exception):
    """Base of all errors of this package. ``str()`` formats its problem.

    ``where`` is the place: a location in a file, a path of keys, or an expression. It may be empty until a caller with
    the place adds it with ``at``. ``keys`` leads from the resolved value to the wrong part, and ``under`` extends it.
    """

    code = ProblemCode.LOOKUP_FAILS
    """The default code."""

    def __init__(
        self,
        where: str | Location,
        what: str,
        *,
        code: ProblemCode | None = None,
        name: str = "",
        hint: str = "",
        depends_on: DependsOn | None = None,
    ) -> None:
        super().__init__(where, what)
        self.location = where if isinstance(where, Location) else NOWHERE
        self.where = str(where)
        self.what = what
        self.keys: tuple[str | int, ...] = ()
        self.code = code or type(self).code
        self.name = name
        self.hint = hint
        self.source = ""
        """The innermost failed expression."""
        self._depends_on = depends_on
        self._reads: Callable[[str], DependsOn] | None = None
        self._context = "" if isinstance(where, Location) else where
        self._related: tuple[Location, ...] = ()
        self._is_placed = False

    def __str__(self) -> str:
        return "\n".join(map(text_of, self.problems))

    @property
    def depends_on(self) -> DependsOn:
        """The reason why other hosts may lack the problem, by default the values that the expression reads."""
        if self._depends_on is not None:
            return self._depends_on
        # Computed only for a message, since it parses the expression again, and a hierarchy has missing facts in every
        # run.
        return self._reads(self.source) if self._reads is not None else DependsOn.NOTHING

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problem as a value."""
        return (
            Problem(
                code=self.code,
                message=": ".join(filter(None, (self._context, self.what))),
                location=self.location,
                name=self.name,
                hint=self.hint,
                related=self._related,
                depends_on=self.depends_on,
            ),
        )

    def under(self, key: str | int) -> Self:
        """Record that the error is below ``key``. Return itself, for ``raise``."""
        self.keys = (key, *self.keys)
        return self

    def at(self, where: str | Location) -> Self:
        """Put ``where`` in front of the known place. Return itself, for ``raise``."""
        self.where = ": ".join(part for part in (str(where), self.where) if part)
        if not where:
            return self
        if self.location != NOWHERE:  # location in an inner text, such as text that a filter reads
            self._related = (*self._related, self.location)
            self._context = ": ".join(part for part in (place_text(self.location), self._context) if part)
            self.location = NOWHERE
        if isinstance(where, Location):
            self.location = where
        else:
            self._context = ": ".join(part for part in (where, self._context) if part)
        return self

    def of_expression(self, source: str, reads: Callable[[str], DependsOn]) -> Self:
        """Record the expression that raised the error, unless an inner expression did. Return itself, for ``raise``.

        ``reads`` gives the reason why the expression may have another value on another host.
        """
        if not self.source:
            self.source, self._reads = source, reads
        return self

    def depending(self, on: DependsOn) -> Self:
        """Record the reason why other hosts may lack the problem. Return itself, for ``raise``."""
        self._depends_on = on
        return self

    def beside(self, place: str) -> Self:
        """Add the place in data behind the message, unless it has one. Return itself, for ``raise``."""
        if place and not self._is_placed:
            self.what = f"{self.what} ({place})"
        self._is_placed = True
        return self

    def placed(self) -> Self:
        """Record that the message already names its file. Return itself, for ``raise``."""
        self._is_placed = True
        return self


class DocumentError(HieraError):
    """A document that cannot be read, or has an invalid structure for its place."""

    code = ProblemCode.INVALID_DOCUMENT


class EnvelopeError(DocumentError):
    """An unusable encrypted value or key."""

    code = ProblemCode.UNREADABLE_SECRET


class RecipientError(EnvelopeError):
    """A file that is encrypted for other recipients than this host."""


class ExpressionError(HieraError):
    """An expression that cannot be compiled, or that fails while it runs."""

    code = ProblemCode.EXPRESSION_FAILS


class UndefinedError(ExpressionError):
    """A missing fact, key or name that an expression reads.

    ``among`` are the existing names. They are read only for a message, because a hierarchy looks up missing facts all
    the time, and listing all facts can be slow.
    """

    def __init__(
        self,
        where: str,
        what: str,
        name: object = None,
        among: Iterable[object] = (),
        *,
        code: ProblemCode | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(where, what, code=code, name="" if name is None else str(name), hint=hint)
        self.among = among
        self._is_code_known = code is not None
        if code is ProblemCode.UNKNOWN_NAME:
            self._depends_on = DependsOn.NOTHING  # a name outside of the language is missing on all hosts

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problem, with the similar names."""
        try:
            similar = nearest(self.name, map(str, self.among))
        except HieraError:
            similar = ()  # the names are computed on demand, and may fail like any other value
        (problem,) = super().problems
        code = problem.code if self._is_code_known else _UNDEFINED[problem.depends_on]
        return (msgspec.structs.replace(problem, code=code, suggestions=similar),)


_UNDEFINED = {
    DependsOn.NOTHING: ProblemCode.UNKNOWN_NAME,
    DependsOn.FACTS: ProblemCode.UNDEFINED_FACT,
    DependsOn.DATA: ProblemCode.UNDEFINED_DATA,
    DependsOn.BUNDLES: ProblemCode.UNKNOWN_NAME,
    DependsOn.KEY: ProblemCode.UNKNOWN_NAME,
}


class ConfigError(HieraError):
    """An invalid ``hiera.yaml``."""

    code = ProblemCode.INVALID_HIERARCHY


class LookupFailure(HieraError):
    """A key of a Hiera tree that cannot be answered."""


class KeyNotFound(LookupFailure):
    """A key that is missing in all layers, without a default from the caller."""


class LimitError(HieraError):
    """Input that is too deep, too large, or endless."""

    code = ProblemCode.LIMIT_EXCEEDED
