"""Template files in Jinja2: the whole language, in the sandbox of ``hiera.expressions.sandbox``.

* ``trim_blocks`` is on and ``lstrip_blocks`` off, as Ansible has them; a first line ``#jinja2:`` says otherwise.
* A text ends with as many line ends as its template, at least, as Ansible does it; of nothing nothing comes.
* ``include``, ``import`` and ``extends`` read templates of the bundle and its libraries (``includes.py``).
* Values print as Jinja2 prints them: ``True``, ``None``, ``['a']``. What does not exist is an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, cast

import jinja2

from foundation.problems import problems_of
from hiera import limits
from hiera.errors import LimitError as HieraLimitError
from hiera.expressions.callers import callers
from hiera.expressions.columns import place_of
from hiera.expressions.expressions import Scope
from hiera.expressions.jinja import for_templates, translated
from hiera.expressions.sandbox import Sandbox
from hiera.limits import meter
from puller.bundle_paths import BundleFiles
from puller.templates.errors import FunctionError, LimitError, TemplateError
from puller.templates.includes import Includes
from puller.templates.jinja_header import MARK, read_header
from puller.templates.limits import Budget, Exceeded
from puller.templates.scope import Function, TemplateScope

_LAST_END: Final = re.compile(r"(?:\r\n|\r|\n)\Z")


class JinjaEngine:
    """Jinja2 with its delimiters for expressions, and the place where templates include others from."""

    name = "jinja"

    def __init__(
        self,
        left_delimiter: str = "",
        right_delimiter: str = "",
        *,
        root: BundleFiles | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Includes come from ``files`` (path → text), or from ``root``; else there are none."""
        self.texts: dict[str, str] = {}
        self._headers: set[str] = set()  # names of templates whose first line Jinja2 does not see
        self.used_secret = False
        """Whether the last rendering looked at a secret, so that its text is one."""
        self.includes = Includes(root, files or {})
        loader = jinja2.FunctionLoader(self._included)
        try:
            self.sandbox = for_templates(
                loader,
                self.includes.name,
                variable_start_string=left_delimiter or "{{",
                variable_end_string=right_delimiter or "}}",
            )
        except AssertionError as error:
            raise ValueError(f"delimiters {left_delimiter!r} and {right_delimiter!r}: {error}") from None

    def compile(self, name: str, text: str) -> JinjaTemplate:
        """The parsed text, by way of Jinja2's compiler; ``name`` stands in messages. Raises TemplateError.

        1. The text is kept, for the lines that errors show; a first line of settings is taken off.
        2. Jinja2 cuts, parses and checks it, and makes Python of it: syntax, filters and tests are checked here.
        3. The Python is bound to the sandbox, whose globals are all it can reach beside the names it is given.
        """
        self.texts[name] = text  # 1.
        try:
            sandbox, text = self._settled(name, text)
            # 2. and 3. as from_string does, which would leave a template without a name in messages
            code = sandbox.compile(_LAST_END.sub("", text, count=1), name, name)
            parsed = sandbox.template_class.from_code(sandbox, code, sandbox.make_globals(None))
        except Exception as error:  # noqa: BLE001  the compiler of another project, on any text
            raise self.placed(error, name) from None
        return JinjaTemplate(self, parsed, text)

    def _settled(self, name: str, text: str) -> tuple[Sandbox, str]:
        """The environment that the first line of a template asks for, and the template without that line."""
        self._headers.discard(name)
        header = read_header(text)
        if header is None:
            return self.sandbox, text
        try:
            sandbox = self.sandbox.overlay(**header.options)
        except AssertionError as error:
            raise FunctionError(f"{MARK} {error}") from None
        self._headers.add(name)
        return sandbox, header.text

    def render(self, name: str, text: str, scope: Scope) -> str:
        """The text with its expressions and blocks resolved. Raises TemplateError."""
        return self.compile(name, text).render_names(scope.names)

    def _included(self, name: str) -> str | None:
        """The text of a template that another includes, which is kept for the lines that errors show.

        Raises FunctionError for one with a header of its own.
        """
        text = self.includes.text(name)
        if text is not None:
            self.texts[name] = text
            if text.startswith(MARK):
                raise FunctionError(
                    f"{name} is read as the template that asks for it: leave out its line {MARK}"
                )
        return text

    def placed(self, error: Exception, name: str, names: Mapping[str, Any] | None = None) -> TemplateError:
        """Any failure of a template as one of ours, at the line of the innermost template."""
        file, line, column = _place(error, name)
        line += file in self._headers
        lines = self.texts.get(file, "").splitlines()
        source_line = lines[line - 1] if line <= len(lines) else ""
        if isinstance(error, (Exceeded, LimitError)):
            return LimitError(file, line, column, str(error), source_line)
        if isinstance(error, (FunctionError, TemplateError)) and not meter.secret:
            return TemplateError(file, line, column, str(error), source_line, _name_of(error))
        ours = translated(error, self.texts.get(file, ""), names)
        kind = LimitError if isinstance(ours, HieraLimitError) else TemplateError
        return kind(file, line, column, str(ours), source_line, ours.name)


class JinjaTemplate:
    """A parsed template."""

    def __init__(self, engine: JinjaEngine, template: jinja2.Template, text: str) -> None:
        self.engine = engine
        self.template = template
        self.ends = _line_ends(text)
        self.is_blank = not text.strip("\r\n")
        self.sandbox = cast("Sandbox", template.environment)

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Function] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        """The text. The keys of ``dot`` are the names that the template sees. Raises TemplateError."""
        text = self.render_names(_names(dot, functions or {}))
        if budget is not None:
            try:
                budget.spend(len(text))
            except Exceeded as error:
                raise self.engine.placed(error, str(self.template.name)) from None
        return text

    def render_names(self, names: Mapping[str, Any]) -> str:
        """The text, for a template that sees ``names``. Raises TemplateError.

        1. The meter starts: it counts steps, items, characters and time, and notices secrets.
        2. The template runs, with these names and those of the sandbox.
        3. Its pieces are joined, within the limits.
        4. A failure is placed at the line of the innermost template that was at work.
        5. The engine remembers whether a secret was looked at, for failures too.
        """
        names = self.engine.includes.called(names)
        with meter, self._apart(names):  # 1.
            try:  # 2. and 3.
                pieces = self.template.root_render_func(self.template.new_context(dict(names)))
                text = self._ended(pieces)
            except Exception as error:  # noqa: BLE001  whatever functions and filters raise
                # 4.
                raise self.engine.placed(error, str(self.template.name), names) from error.__cause__
            finally:  # 5.
                self.engine.used_secret = meter.secret
        return text

    def _ended(self, pieces: Iterator[str]) -> str:
        """The text of the pieces, with the line ends that Jinja2 took off; nothing where a template prints nothing."""
        first = next(pieces, None)
        if first is None and not self.is_blank:
            return ""
        text = limits.concat(itertools.chain([first or ""], pieces))
        return text + self.sandbox.newline_sequence * (self.ends - _line_ends(text))

    @contextmanager
    def _apart(self, names: Mapping[str, Any]) -> Iterator[None]:
        """A rendering that has no callers, and in which what is imported ``without context`` sees ``names``."""
        sandbox, before, given = self.sandbox, callers.begin(), self.sandbox.given
        sandbox.given = names
        try:
            yield
        finally:
            sandbox.given = given
            callers.end(before)


def _line_ends(text: str) -> int:
    """How many line ends there are at the end of a text."""
    ends = text[len(text.rstrip("\r\n")) :]
    return len(ends.replace("\r\n", "\n"))


def _names(dot: Any, functions: Mapping[str, Function]) -> Mapping[str, Any]:
    if isinstance(dot, TemplateScope):
        return Scope(dot["facts"], dot["data"], dot["environ"], functions).names
    keys = dot if isinstance(dot, Mapping) else {}
    # A partial sees what its caller sees, so that no ``default`` takes the place of a value that is there.
    return {**callers.names(), **keys, **functions, "value": dot}


def _name_of(error: Exception) -> str:
    return problems_of(error)[0].name if isinstance(error, TemplateError) else ""


def _place(error: Exception, name: str) -> tuple[str, int, int]:
    """File, line and column of the template that was at work."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.filename or error.name or name, error.lineno, getattr(error, "column", 1)
    found = name, 1, 1
    for frame in _frames(error.__traceback__):
        template = frame.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, jinja2.Template):
            line, column = place_of(template.get_corresponding_lineno(frame.tb_lineno))
            found = template.name or name, line, column
    return found


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
