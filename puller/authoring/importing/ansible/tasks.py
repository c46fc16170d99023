"""Tasks of Ansible as read, their values, and the rows of the table ``modules.yaml``.

A row names the resource type of a module, and the property of each argument. Values that Puller lacks raise
``Untranslatable``.
"""

import functools
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from hiera import parsing
from puller.authoring.importing.ansible.jinja_expressions import (
    Names,
    as_expression,
    has_expression,
    translate_value,
)
from puller.authoring.importing.draft import Draft, Origin, Resource
from puller.authoring.importing.reading import SourceTree, UnsafeText, VaultText
from puller.authoring.importing.written_expressions import Untranslatable

_TABLE: Final = Path(__file__).with_name("modules.yaml")


@functools.cache
def table() -> Mapping[str, Any]:
    """Return the table of facts and modules."""
    value = parsing.load_yaml(_TABLE.read_text(), _TABLE.name)
    return {"facts": dict(value["facts"]), "modules": dict(value["modules"])}


class Unfinished(Untranslatable):
    """A task with a proposal that needs a part from you."""

    def __init__(self, reason: str, resources: list[Resource]) -> None:
        super().__init__(reason)
        self.resources = resources


class Task(msgspec.Struct):
    """One task as written, with the keywords of its blocks."""

    origin: Origin
    name: str
    module: str
    """Without the collection."""
    arguments: dict[str, Any]
    free_form: str = ""
    when: list[Any] = []
    loop: tuple[str, Any] | None = None
    """Kind and value: ``("loop", …)``, ``("items", …)``, ``("dict", …)``."""
    loop_variable: str = "item"
    index_variable: str = ""
    register: str = ""
    notify: list[str] = []
    listen: list[str] = []
    tags: list[str] = []
    variables: dict[str, Any] = {}
    environment: Any = None
    keywords: dict[str, Any] = {}
    become_user: str = ""

    @property
    def is_query(self) -> bool:
        """Whether a command never reports a change."""
        return self.module in ("command", "shell", "raw") and self.keywords.get("changed_when") is False

    @property
    def command(self) -> str:
        """The text of a command, or empty."""
        text = self.free_form or self.arguments.get("cmd") or self.arguments.get("_raw_params") or ""
        if not text and isinstance(self.arguments.get("argv"), list):
            return " ".join(
                word if has_expression(word) else shlex.quote(word)
                for word in map(str, self.arguments["argv"])
            )
        return " ".join(str(text).split()) if "\n" not in str(text).strip() else str(text).strip() + "\n"


class RoleContext(msgspec.Struct):
    """The role of a task, and the state shared by all tasks of a draft."""

    tree: SourceTree
    directory: str
    """Path of the role in the source."""
    target: str
    """Directory of the role's manifest in the draft, empty for the bundle itself."""
    draft: Draft
    names: Names
    known: Mapping[str, Any] = {}
    """Values of variables without expressions."""
    registered: dict[str, Task] = {}
    results: dict[str, list[Resource]] = {}
    """Resources of the tasks that register a variable."""
    consumed: set[str] = set()
    """Registered variables that guards have replaced."""
    notified: dict[str, list[str]] = {}
    """References by the name of a handler."""
    unmapped_notifications: set[str] = set()
    services: list[Resource] = []
    labels: set[str] = set()
    child_data: bool = False
    """Whether the manifest receives ``data``, so other manifests cannot resolve its names."""

    def find_file(self, kind: str, path: str) -> str | None:
        """Return a file or directory of the role by its path in the draft, or ``None``."""
        for start in (f"{kind}/", "", "tasks/"):
            place = "/".join(part for part in (self.directory, f"{start}{path}") if part)
            if ".." not in path.split("/") and (self.tree.is_file(place) or self.tree.is_directory(place)):
                return f"{start}{path}" if start == f"{kind}/" or path.startswith(f"{kind}/") else None
        return None


class Work:
    """One task during its translation. Functions of modules take its arguments and note remarks."""

    def __init__(self, task: Task, context: RoleContext, names: Names) -> None:
        self.task = task
        self.context = context
        self.names = names
        self.arguments = dict(task.arguments)
        self.reasons: list[str] = []

    def raw(self, *names: str, default: Any = None) -> Any:
        """Remove arguments and return the first one that is present."""
        values = [self.arguments.pop(name) for name in names if name in self.arguments]
        values = [value for value in values if value is not None]
        return values[0] if values else default

    def value(self, *names: str, default: Any = None) -> Any:
        """Remove arguments and return the translated value of the first one that is present."""
        value = self.raw(*names)
        return default if value is None else self.translated(value)

    def translated(self, value: Any) -> Any:
        """Return a value with translated expressions. Raises ``Untranslatable``."""
        if isinstance(value, VaultText):
            raise Untranslatable("a value that Vault has encrypted")
        if isinstance(value, UnsafeText):
            return value.text.replace("{{", "{{ '{{' }}")
        return translate_value(value, self.names)

    def text(self, *names: str, default: str | None = None) -> str | None:
        """Remove arguments and return the first one as text."""
        value = self.value(*names)
        return default if value is None else as_text(value)

    def required(self, *names: str) -> str:
        """Remove arguments and return the first one as text. Raises ``Untranslatable``."""
        value = self.text(*names)
        if not value:
            raise Untranslatable(f"the argument {names[0]} is missing")
        return value

    def source(self) -> str:
        """Remove ``src`` and return it. The lookup of DebOps names the file that a role provides."""
        value = str(self.raw("src") or "")
        if match := re.fullmatch(
            r"{{ lookup\(['\"](?:[\w.]*)(?:template|file)_src['\"], ['\"]([^'\"]+)['\"]\) }}", value
        ):
            return match[1]
        self.arguments["src"] = value
        return self.required("src")

    def boolean(self, *names: str, default: bool | None = None) -> Any:
        """Remove arguments and return the first one as a boolean, or as an expression."""
        value = self.raw(*names)
        return default if value is None else boolean_of(self.translated(value))

    def ignore(self, *names: str) -> None:
        """Remove arguments that do not change the result."""
        for name in names:
            self.arguments.pop(name, None)

    def remark(self, reason: str) -> None:
        """Note a part that is missing or needs a check."""
        if reason not in self.reasons:
            self.reasons.append(reason)

    def finish(self) -> None:
        """Note all arguments that no function has taken."""
        for name in sorted(self.arguments):
            if self.arguments[name] is not None:
                self.remark(f"the argument {name} is not mapped")
        self.arguments.clear()


def as_text(value: Any) -> str:
    """Return a scalar as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def boolean_of(value: Any) -> Any:
    """Return a boolean. An expression stays."""
    if isinstance(value, str):
        if value.lower() in ("yes", "true", "on", "1", "y", "t"):
            return True
        if value.lower() in ("no", "false", "off", "0", "n", "f"):
            return False
    return bool(value) if isinstance(value, int) else value


def mode_of(value: Any) -> Any:
    """Return a mode as a text, since YAML reads 0644 as a decimal number. Raises ``Untranslatable``."""
    if isinstance(value, bool):
        raise Untranslatable("the mode is a boolean")
    if isinstance(value, int):
        return f"{value:04o}"
    text = str(value)
    if text == "preserve":
        return None
    if re.fullmatch(r"[+=-][rwxXst]*(,.*)?", text):
        return f"a{text}"
    return f"0{text}" if re.fullmatch(r"[0-7]{3}", text) else text


def _convert(form: str, value: Any, work: Work) -> Any:
    if form == "mode":
        return mode_of(value)
    if form == "boolean":
        return boolean_of(value)
    if form == "text":
        return as_text(value)
    if form == "validate":
        return as_text(value).replace("%s", "{}")
    if form == "optional":  # an empty text is the default of the module
        expression = re.fullmatch(r"{{((?:(?!}}).)*)}}", value) if isinstance(value, str) else None
        return f"{{{{ ({expression[1].strip()}) or none }}}}" if expression else value or None
    if form == "words":
        return as_text(value).split()
    if form in ("list", "commas"):
        if isinstance(value, str) and has_expression(value):
            return _list_expression(value)
        return (
            [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value
        )
    raise Untranslatable(f"the form {form} is unknown")


def _list_expression(value: str) -> Any:
    """Return an expression for a list, from an expression for a list or a text with commas."""
    if value.startswith("{{") and value.endswith("}}") and value.count("{{") == 1:
        inner = value[2:-2].strip()
        split = f"({inner}).split(',') | map('trim') | list"
        return f"{{{{ {split} if ({inner}) is string else ({inner}) | default([], true) }}}}"
    return [part.strip() for part in value.split(",")]


# Rows of the table.


def from_row(row: Mapping[str, Any], work: Work) -> list[Resource]:
    """Return the resources of a task by its row of the table."""
    name = work.raw(*row["name"])
    properties: dict[str, Any] = dict(row.get("default", {}))
    for argument in list(work.arguments):
        rule = row["arguments"].get(argument)
        if rule is None:
            continue
        value = work.raw(argument)
        if value is None:
            continue
        if isinstance(rule, Mapping) and "remark" in rule:
            if boolean_of(value) is not rule.get("unless", False):
                work.remark(str(rule["remark"]))
        elif rule != "ignore":
            _set_property(properties, rule, argument, work.translated(value), work)
    properties |= row.get("set", {})
    if "assume" in row:
        work.context.draft.assume(str(row["assume"]))
    return _named(row, name, properties, work)


def _set_property(properties: dict[str, Any], rule: Any, argument: str, value: Any, work: Work) -> None:
    target = rule if isinstance(rule, str) else rule["to"]
    if isinstance(rule, Mapping) and "values" in rule:
        value = mapped_value(rule["values"], argument, value, work)
    elif isinstance(rule, Mapping):
        value = _convert(rule["as"], value, work)
    if value is None:
        return
    key, _, inner = target.partition(".")
    if inner:
        properties.setdefault(key, {})[inner] = value
    else:
        properties[key] = value


def mapped_value(values: Mapping[str, Any], argument: str, value: Any, work: Work) -> Any:
    """Return a value by a table. For an expression, the table becomes part of it. Raises ``Untranslatable``."""
    if isinstance(value, str) and has_expression(value):
        known = known_value(value, work)
        if isinstance(known, str) and values.get(known, "") == known:
            return value
        inner = value[2:-2].strip() if value.startswith("{{") and value.endswith("}}") else ""
        pairs = {old: new for old, new in values.items() if new is not None and old != new}
        if not inner or value.count("{{") != 1:
            raise Untranslatable(f"{argument} is {value!r}")
        if not pairs:
            return value
        mapping = ", ".join(f"'{old}': '{str(new).lower()}'" for old, new in pairs.items())
        return f"{{{{ {{{mapping}}}.get({inner}, {inner}) }}}}"
    text = as_text(value)
    text = value if value in values else text
    if text not in values:
        raise Untranslatable(f"{argument} is {value!r}, which Puller lacks")
    if values[text] is None and text not in ("always",):
        raise Untranslatable(f"{argument} is {value!r}, which Puller lacks")
    return values[text]


def known_value(value: str, work: Work) -> Any:
    """Return the default value of an expression that is only a variable."""
    match = re.fullmatch(r"{{ data\.(\w+) }}", value)
    return work.context.known.get(match[1]) if match else None


def _named(row: Mapping[str, Any], name: Any, properties: dict[str, Any], work: Work) -> list[Resource]:
    kind = row["type"]
    if name is None or name == "":
        if row.get("function") in ("package", "service"):
            return [Resource(kind, "", properties)]
        raise Untranslatable("the name is missing")
    if not row.get("each"):
        return [Resource(kind, as_text(work.translated(name)), properties)]
    if isinstance(name, str) and not has_expression(name):
        name = [part.strip() for part in name.split(",") if part.strip()]
    if isinstance(name, list):
        if all(not has_expression(item) and not isinstance(item, list) for item in name):
            return [
                Resource(kind, as_text(item), dict(properties)) for item in dict.fromkeys(map(as_text, name))
            ]
        if all(isinstance(item, str) and _is_text(item, work) for item in name):
            return [Resource(kind, work.translated(item), dict(properties)) for item in name]
        items = f"{as_expression(name, work.names)} | flatten"
        return [Resource(kind, "{{ name }}", properties, loop=f"name in {items}")]
    translated = work.translated(name)
    if _is_text(name, work):
        return [Resource(kind, translated, properties)]
    known = known_value(translated, work)
    expression = as_expression(name, work.names)
    if not isinstance(known, list) or any(isinstance(item, list) for item in known):
        expression = f"[{expression}] | flatten"
    return [Resource(kind, "{{ name }}", properties, loop=f"name in {expression}")]


def _is_text(value: str, work: Work) -> bool:
    """Return whether a value is text: it contains other text, a loop variable, or a variable with a known text."""
    match = re.fullmatch(r"{{\s*([\w.]+)\s*}}", value.strip())
    if match is None:
        return not (
            value.strip().startswith("{{") and value.strip().endswith("}}") and value.count("{{") == 1
        )
    root = match[1].partition(".")[0]
    return root in work.names.loop_variables or isinstance(work.context.known.get(match[1]), str)


def shortened(value: Any) -> str:
    """Return a value as one short line."""
    text = " ".join(str(value).split())
    return text if len(text) <= 100 else f"{text[:100]}…"


def with_scheme(url: str, work: Work) -> str:
    """Return a URL that starts with its scheme, if the default of its first variable shows the scheme."""
    match = re.match(r"{{ data\.(\w+) }}", url)
    known = str(work.context.known.get(match[1], "")) if match else ""
    scheme = re.match(r"https?://", known)
    if match is None or scheme is None:
        return url
    return f"{scheme[0]}{{{{ data.{match[1]} | regex_replace('^https?://', '') }}}}{url[match.end() :]}"
