"""The template engine for Jinja2: the whole language, in the sandbox of ``hiera.expressions.sandbox``.

* ``trim_blocks`` is on and ``lstrip_blocks`` is off, as in Ansible. A first line ``#jinja2: lstrip_blocks: True``
  overrides options, as in Ansible, and is removed from the output. An invalid option is an error in that line.
* The output ends with at least as many line ends as the template, as in Ansible. A template that
  prints nothing has an empty output.
* ``include``, ``import`` and ``extends`` read templates of the bundle and its libraries. Templates given as text take
  precedence, and their paths have the same meaning as in a manifest. A file beside the including template comes next.
  Paths in a library file start at the root of that library, regardless of the including file.
* Values print as in Ansible: ``True``, ``['a']``, and nothing for null. Undefined names are errors.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple, cast

import jinja2
from jinja2.runtime import Context

from bundles.filesystem.atomic import read_limited
from foundation.problems import problems_of
from hiera import limits
from hiera.errors import LimitError as HieraLimitError
from hiera.expressions.expressions import Scope
from hiera.expressions.jinja import for_templates, translated
from hiera.expressions.sandbox import Sandbox
from hiera.expressions.undefined import callers, place_of
from hiera.limits import meter
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.templates.scope import BundleFunction, Function, TemplateScope
from puller.templates.template_errors import Budget, Exceeded, FunctionError, LimitError, TemplateError
from puller.values.foreign_text import MARK

# Templates read by ``include``, ``import`` and ``extends``.

_SIZE_LIMIT = 16 * 1024 * 1024  # bytes of an included template


class Includes:
    """The templates that a template can reach, from ``texts`` (path → text) or in ``files``."""

    def __init__(self, files: BundleFiles | None, texts: Mapping[str, str]) -> None:
        self._files = files
        self._texts = texts
        self._found: dict[str, str] = {}
        """Real paths by name."""
        self._places: dict[str, BundleFiles] = {}
        """Bundle files by name of template, for templates that are outside of ``files``."""

    def name(self, path: str, parent: str) -> str:
        """Return the unique name of ``path`` as the template ``parent`` uses it. Raises ``BundlePathError``."""
        files = self._places.get(parent, self._files)
        if files is None or (files is self._files and self._is_text(path, files)):
            return path
        file = self._beside(path, parent, files) or files.find(path)
        name = files.full_name(file) if self._texts else files.shown(file)
        self._found[name] = file
        if self._files is not None and (place := self._files.within(file)) is not self._files:
            self._places[name] = place
        return name

    def _beside(self, path: str, parent: str, files: BundleFiles) -> str | None:
        """Return the file beside the including template, as Ansible finds it, or ``None`` if it is missing.

        A file relative to the manifest has precedence. Raises ``BundlePathError`` for a path outside of the bundle.
        """
        if files.is_prefixed(path) or os.path.isfile(files.find(path)):
            return None
        try:
            file = files.at(os.path.dirname(self._found.get(parent) or files.find(parent))).find(path)
        except BundlePathError:
            return None
        return file if os.path.isfile(file) else None

    def text(self, name: str) -> str | None:
        """Return the template of this name, or ``None`` if it does not exist."""
        path = self._found.get(name)
        if path is None:
            return self._texts.get(name)
        if not os.path.isfile(path):
            return None
        return read_limited(path, _SIZE_LIMIT).decode("utf-8").removeprefix(MARK)

    def called(self, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the names of a scope, with functions that resolve paths relative to the calling file."""
        if self._files is None or not self._files.libraries:
            return names
        return {
            name: self._called(item) if isinstance(item, BundleFunction) else item
            for name, item in names.items()
        }

    def _is_text(self, path: str, files: BundleFiles) -> bool:
        return path in self._texts or (bool(self._texts) and not files.is_prefixed(path))

    def _called(self, function: BundleFunction) -> Any:
        @jinja2.pass_context
        def call(context: Context, *arguments: Any, **named: Any) -> Any:
            place = self._places.get(context.name or "")
            return (function if place is None else function.at(place))(*arguments, **named)

        return call


# Ansible's header line.

HEADER_MARK: Final = "#jinja2:"

_NEWLINES: Final = ("\n", "\r\n", "\r")
_SWITCHES: Final = frozenset({"keep_trailing_newline", "lstrip_blocks", "trim_blocks"})
_MARKS: Final = frozenset(
    f"{what}_{end}_string" for what in ("block", "comment", "variable") for end in ("end", "start")
)
_PREFIXES: Final = frozenset({"line_comment_prefix", "line_statement_prefix"})
_KEYS: Final = tuple(sorted({"newline_sequence", *_SWITCHES, *_MARKS, *_PREFIXES}))


class Header(NamedTuple):
    """A template without its header line, and the options of Jinja2 in that header."""

    text: str
    options: dict[str, Any]


def read_header(text: str) -> Header | None:
    """Return the header of a template, or ``None``.

    Raises FunctionError for an invalid header of Ansible.
    """
    if not text.startswith(HEADER_MARK):
        return None
    line, newline, remainder = text.partition("\n")
    if not newline:
        raise FunctionError(f"{HEADER_MARK} is a line of its own, with the template below it")
    options = dict(_option(pair) for pair in line.removeprefix(HEADER_MARK).rstrip("\r").split(","))
    # As with Ansible, a file always ends as its template does.
    options.pop("keep_trailing_newline", None)
    return Header(remainder, options)


def _option(pair: str) -> tuple[str, Any]:
    key, colon, written = (part.strip() for part in pair.partition(":"))
    if not colon:
        raise FunctionError(f"{HEADER_MARK} has {pair.strip()!r}, expected key: value, with commas between")
    if key not in _KEYS:
        raise FunctionError(f"{HEADER_MARK} has {key!r}, but only accepts {', '.join(_KEYS)}")
    try:
        value = ast.literal_eval(written)
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        value = None
    if (desired := _wanted(key, value)) is not None:
        raise FunctionError(f"{HEADER_MARK} {key} is {written}, expected {desired}")
    return key, value


def _wanted(key: str, value: Any) -> str | None:
    """Return the expected type of the value, or ``None`` if the value is valid."""
    if key in _SWITCHES:
        return None if isinstance(value, bool) else "True or False"
    if key == "newline_sequence":
        return None if value in _NEWLINES else r"'\n', '\r\n' or '\r'"
    return None if isinstance(value, str) and value.strip() else "text in quotes"


_LAST_END: Final = re.compile(r"(?:\r\n|\r|\n)\Z")


class JinjaEngine:
    """Jinja2 with its delimiters for expressions, and the source of included templates."""

    name = "jinja"

    def __init__(
        self,
        left_delimiter: str = "",
        right_delimiter: str = "",
        *,
        root: BundleFiles | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Includes come from ``files`` (path → text), or from ``root``. Without either, includes fail."""
        self.texts: dict[str, str] = {}
        self._headers: set[str] = set()  # names of templates whose header line is hidden from Jinja2
        self.used_secret = False
        """Whether the last rendering used a secret, which makes its text secret."""
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
        """Return the text, compiled by Jinja2. ``name`` appears in messages. Raises TemplateError.

        1. The text is kept, for the lines that errors show. A header line with settings is removed.
        2. Jinja2 parses and checks the text, and translates it to Python. Syntax, filters and tests are checked here.
        3. The Python code is bound to the sandbox. It can reach only the sandbox's globals and the names of the
           rendering.
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
        """Return the environment with the settings of a template's header line, and the template without that line."""
        self._headers.discard(name)
        header = read_header(text)
        if header is None:
            return self.sandbox, text
        try:
            sandbox = self.sandbox.overlay(**header.options)
        except AssertionError as error:
            raise FunctionError(f"{HEADER_MARK} {error}") from None
        self._headers.add(name)
        return sandbox, header.text

    def render(self, name: str, text: str, scope: Scope) -> str:
        """Return the text with its expressions and blocks resolved. Raises TemplateError."""
        return self.compile(name, text).render_names(scope.names)

    def _included(self, name: str) -> str | None:
        """Return the text of an included template, which is cached for the lines in errors.

        Raises FunctionError for a template with its own header.
        """
        text = self.includes.text(name)
        if text is not None:
            self.texts[name] = text
            if text.startswith(HEADER_MARK):
                raise FunctionError(
                    f"{name} is read like the template that includes it: remove its line {HEADER_MARK}"
                )
        return text

    def placed(self, error: Exception, name: str, names: Mapping[str, Any] | None = None) -> TemplateError:
        """Return any failure of a template as a TemplateError, at the line of the innermost template."""
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
        """Return the text. The keys of ``dot`` are the template's names. Raises TemplateError."""
        text = self.render_names(_names(dot, functions or {}))
        if budget is not None:
            try:
                budget.spend(len(text))
            except Exceeded as error:
                raise self.engine.placed(error, str(self.template.name)) from None
        return text

    def render_names(self, names: Mapping[str, Any]) -> str:
        """Return the text, for a template with ``names``. Raises TemplateError.

        1. The meter starts: it counts steps, items, characters and time, and notices secrets.
        2. The template runs, with these names and the sandbox's own.
        3. Its pieces are joined, within the limits.
        4. A failure is placed at the line of the innermost running template.
        5. The engine records whether a secret was used, for failures too.
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
        """Join the pieces and restore the line ends that Jinja2 removed. A template that prints nothing stays empty."""
        first = next(pieces, None)
        if first is None and not self.is_blank:
            return ""
        text = limits.concat(itertools.chain([first or ""], pieces))
        return text + self.sandbox.newline_sequence * (self.ends - _line_ends(text))

    @contextmanager
    def _apart(self, names: Mapping[str, Any]) -> Iterator[None]:
        """Run a rendering without callers, in which imports ``without context`` see ``names``."""
        sandbox, before, provided = self.sandbox, callers.begin(), self.sandbox.given
        sandbox.given = names
        try:
            yield
        finally:
            sandbox.given = provided
            callers.end(before)


def _line_ends(text: str) -> int:
    """Count the line ends at the end of a text."""
    ends = text[len(text.rstrip("\r\n")) :]
    return len(ends.replace("\r\n", "\n"))


def _names(dot: Any, functions: Mapping[str, Function]) -> Mapping[str, Any]:
    if isinstance(dot, TemplateScope):
        return Scope(dot["facts"], dot["data"], dot["environ"], functions).names
    keys = dot if isinstance(dot, Mapping) else {}
    # Pass on the caller's names to a partial, so that ``default`` does not replace an existing value.
    return {**callers.names(), **keys, **functions, "value": dot}


def _name_of(error: Exception) -> str:
    return problems_of(error)[0].name if isinstance(error, TemplateError) else ""


def _place(error: Exception, name: str) -> tuple[str, int, int]:
    """Return file, line and column of the failed template."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.filename or error.name or name, error.lineno, getattr(error, "column", 1)
    result = name, 1, 1
    for frame in _frames(error.__traceback__):
        template = frame.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, jinja2.Template):
            line, column = place_of(template.get_corresponding_lineno(frame.tb_lineno))
            result = template.name or name, line, column
    return result


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
