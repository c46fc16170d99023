"""Attributes of one declaration during its translation, and the contents of files: sources and templates.

* Each attribute is taken once. An attribute that no function takes becomes a remark.
* A template is converted once for each owner. A variable can contain a template.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from puller.authoring.importing.draft import (
    Resource,
    slug,
)
from puller.authoring.importing.puppet.blocks import Definition, chosen
from puller.authoring.importing.puppet.language.lexer import SyntaxProblem
from puller.authoring.importing.puppet.language.syntax import (
    Call,
    HashLiteral,
    Literal,
    Node,
    Text,
    Variable,
)
from puller.authoring.importing.puppet.programs import Module, Program, assigned
from puller.authoring.importing.puppet.puppet_expressions import Scope
from puller.authoring.importing.puppet.templates import Converted, convert_template, template_name
from puller.authoring.importing.written_expressions import Untranslatable, grouped, literal
from puller.errors import SourceError


class Unfinished(Untranslatable):
    """A resource with a proposal that needs a part from you."""

    def __init__(self, reason: str, resources: list[Resource]) -> None:
        super().__init__(reason)
        self.resources = resources


class Work(msgspec.Struct):
    """One declaration during its translation."""

    type: str
    title: str
    """The title as a value. It can contain expressions."""
    attributes: dict[str, Node]
    scope: Scope
    content_of: Callable[[Scope, Node], dict[str, Any]]
    """Returns the properties for a content: ``content``, or ``template`` and ``data``."""
    find_source: Callable[[str], str]
    """Returns the path in the draft for the path of a source. Raises ``Untranslatable``."""
    reasons: list[str] = []

    def raw(self, *names: str) -> Node | None:
        """Remove attributes and return the first one that is set."""
        nodes = [self.attributes.pop(name) for name in names if name in self.attributes]
        nodes = [node for node in nodes if not (isinstance(node, Literal) and node.value is None)]
        return nodes[0] if nodes else None

    def value(self, *names: str) -> Any:
        """Remove attributes and return the value of the first one. Raises ``Untranslatable``."""
        node = self.raw(*names)
        return None if node is None else self.scope.value(node)

    def text(self, *names: str) -> str | None:
        """Remove attributes and return the first one as text. Raises ``Untranslatable``."""
        value = self.value(*names)
        if isinstance(value, (list, dict)):
            raise Untranslatable(f"the attribute {names[0]} is a list or mapping")
        return None if value is None else as_text(value)

    def name(self, *names: str) -> str:
        """Remove attributes and return the first one, or the title."""
        return self.text(*names) or self.title

    def required(self, *names: str) -> str:
        """Remove attributes and return the first one as text. Raises ``Untranslatable``."""
        text = self.text(*names)
        if not text:
            raise Untranslatable(f"the attribute {names[0]} is missing")
        return text

    def literal(self, *names: str) -> Any:
        """Remove attributes and return the first one if it has no expressions. Raises ``Untranslatable``."""
        value = self.value(*names)
        if has_expression(value):
            raise Untranslatable(f"the attribute {names[0]} is variable")
        return value

    def boolean(self, *names: str) -> Any:
        """Remove attributes and return a boolean, or an expression."""
        value = self.value(*names)
        if isinstance(value, str) and value in ("true", "yes", "false", "no"):
            return value in ("true", "yes")
        return value

    def flag(self, name: str) -> bool | None:
        """Remove an attribute and return a boolean. Note a value with an expression. Raises ``Untranslatable``."""
        value = self.boolean(name)
        if has_expression(value):
            self.remark(f"a variable {name} is not mapped")
        return value if isinstance(value, bool) else None

    def ignore(self, *names: str) -> None:
        """Remove attributes that do not change the result."""
        for name in names:
            self.attributes.pop(name, None)

    def remark(self, reason: str) -> None:
        """Note a part that is missing or needs a check."""
        if reason not in self.reasons:
            self.reasons.append(reason)

    def finish(self) -> None:
        """Note all attributes that no function has taken."""
        for name in sorted(self.attributes):
            node = self.attributes[name]
            if not (isinstance(node, Literal) and node.value is None):
                self.remark(f"the attribute {name} is not mapped")
        self.attributes.clear()


def has_expression(value: Any) -> bool:
    """Return whether a value contains an expression."""
    if isinstance(value, dict):
        return any(has_expression(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return any(has_expression(item) for item in value)
    return isinstance(value, str) and "{{" in value


def as_text(value: Any) -> str:
    """Return a scalar as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def expression_of(value: Any) -> str | None:
    """Return the expression of a value that is one expression, or ``None``."""
    match = re.fullmatch(r"{{ ((?:(?!}}).)*) }}", value, re.S) if isinstance(value, str) else None
    return match[1] if match else None


def needs_shell(text: str) -> bool:
    """Return whether Ruby runs a command with a shell because of its characters."""
    return bool(re.search(r"[*?{}\[\]<>()~&|\\$;`\n#%]", re.sub(r"{{.*?}}", "", text)))


class Contents:
    """Finds the files of modules, and converts their templates once for each owner."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.draft = program.draft
        self.texts: dict[tuple[str, str], Node] = {}
        """Templates that a variable contains, by unit and variable."""
        self.choices: dict[tuple[str, str], list[Definition]] = {}
        """Values of variables that contain a template in some branches, by unit and variable."""
        self._converted: dict[tuple[str, str], str] = {}
        self._template_parameters: dict[str, Converted] = {}

    def find_source(self, path: str) -> str:
        """Return the path in the draft for ``module/path``. Raises ``Untranslatable``."""
        name, _, inner = path.partition("/")
        module = self.program.modules.get(name)
        if module is None:
            raise Untranslatable(f"the module {name} is not part of the source")
        place = module.path("files", inner)
        if "{{" not in inner and not (
            self.program.tree.is_file(place) or self.program.tree.is_directory(place)
        ):
            raise Untranslatable(f"the file {place} is missing in the source")
        return f"bundle:files/{name}/{inner}"

    def content_of(self, scope: Scope, node: Node) -> dict[str, Any]:
        """Return the properties for the content of a file. Raises ``Untranslatable``."""
        is_secret = isinstance(node, Call) and node.name == "Sensitive" and len(node.arguments) == 1
        if isinstance(node, Call) and is_secret and not isinstance(node.arguments[0], Literal):
            return {**self.content_of(scope, node.arguments[0]), "sensitive": True}
        if isinstance(node, Variable) and (scope.owner, node.name) in self.texts:
            node = self.texts[scope.owner, node.name]
        if isinstance(node, Call) and is_template(node) and node.block is None:
            return self._template(scope, node)
        return {"content": scope.value(node)}

    def inlined(self, owner: str, name: str) -> str | None:
        """Return the expression for a variable with templates in some branches, or ``None``."""
        definitions = self.choices.get((owner, name), [])
        has_template = any("template(" in definition.expression for definition in definitions)
        return grouped(chosen(definitions)) if has_template else None

    def _template(self, scope: Scope, node: Call) -> dict[str, Any]:
        name = self._name_of(scope, node)
        if name is None and len(node.arguments) == 1 and isinstance(node.arguments[0], Text):
            return {
                "template": self._chosen_template(scope, node.arguments[0], is_ruby=node.name == "template")
            }
        if name is None:
            raise Untranslatable("the name of the template is variable")
        passed = self._hash_of(scope, node.arguments[1]) if len(node.arguments) > 1 else None
        if node.name == "template" and len(node.arguments) > 1:
            raise Untranslatable("the content joins several templates. Use fragments")
        path = self._convert(scope, name, is_ruby=node.name == "template")
        properties: dict[str, Any] = {"template": f"bundle:{path}"}
        parameters = self._template_parameters[path].parameters
        if passed is None and not parameters:
            return properties
        if passed is not None and not isinstance(passed, HashLiteral):
            raise Untranslatable("the values for the template are variable")
        data: dict[str, Any] = {}
        for item in parameters:
            if item.default is not None:
                data[item.name] = scope.value(item.default)
        for key, value in passed.pairs if passed is not None else ():
            if isinstance(key, Literal):
                data[str(key.value)] = scope.value(value)
        return {**properties, "data": data}

    def _hash_of(self, scope: Scope, node: Node) -> Node:
        """Return the mapping that a variable of the same class or define always has, or the node itself."""
        unit = self.program.units.get(scope.owner)
        if isinstance(node, Variable) and unit is not None:
            values = assigned(unit.body).get(node.name, [])
            if len(values) == 1 and isinstance(values[0], HashLiteral):
                return values[0]
        return node

    def _chosen_template(self, scope: Scope, argument: Text, *, is_ruby: bool) -> str:
        """Return the path of a template whose name contains a variable. All possible templates are converted.

        Raises ``Untranslatable``.
        """
        value = str(scope.value(argument))
        module_name, _, inner = value.partition("/")
        module = self.program.modules.get(module_name)
        if module is None:
            raise Untranslatable("the module of the template is variable, or not part of the source")
        pattern = re.compile(".+".join(re.escape(part) for part in re.split(r"{{.*?}}", inner)))
        start = module.path("templates")
        names = [path[len(start) + 1 :] for path in self.program.tree.files(start)]
        paths = [
            self._convert(scope, f"{module_name}/{name}", is_ruby=is_ruby)
            for name in names
            if pattern.fullmatch(name) and name.endswith((".erb", ".epp"))
        ]
        if not paths or any(self._template_parameters[path].parameters for path in paths):
            raise Untranslatable("the name of the template is variable")
        if not value.endswith((".erb", ".epp")):
            # The variable contains the ending.
            value = re.sub(r"{{ (.*?) }}$", r"{{ (\1) | regex_replace('[.](erb|epp)$', '') }}", value)
        return f"bundle:templates/{re.sub(r'[.](erb|epp)$', '', value)}.j2"

    def _name_of(self, scope: Scope, node: Call) -> str | None:
        """Return the name of a template. For a parameter, this is its default."""
        argument = node.arguments[0] if node.arguments else None
        if isinstance(argument, Text):
            return template_name(Call(node.name, (Literal(scope.value(argument)),)))
        if not isinstance(argument, Variable):
            return template_name(node)
        owner, _, short = argument.name.removeprefix("::").rpartition("::")
        unit = self.program.units.get(owner or scope.owner)
        parameters = unit.node.parameters if unit is not None and unit.node is not None else ()
        for parameter in parameters:
            if parameter.name == short and isinstance(parameter.default, Literal):
                name = template_name(Call(node.name, (parameter.default,)))
                if name is not None:
                    self.draft.check(
                        f"The parameter {owner or scope.owner}::{short} names a template. "
                        f"The draft always uses its default {name}."
                    )
                return name
        return None

    def render(self, scope: Scope, node: Call) -> str:
        """Return the expression for a template or a file in a value. Raises ``Untranslatable``."""
        name = self._name_of(scope, node)
        if name is None or len(node.arguments) > 1:
            raise Untranslatable(f"{node.name} with variable arguments in a value")
        if node.name == "file":
            return f"read_file({literal(self.find_source(name))})"
        path = self._convert(scope, name, is_ruby=node.name == "template")
        if self._template_parameters[path].parameters:
            raise Untranslatable("a template with parameters in a value")
        return f"template({literal(f'bundle:{path}')})"

    def _convert(self, scope: Scope, name: str, *, is_ruby: bool) -> str:
        """Return the path of the converted template. Raises ``Untranslatable``."""
        if (name, scope.owner) in self._converted:
            return self._converted[name, scope.owner]
        module_name, _, inner = name.partition("/")
        module: Module | None = self.program.modules.get(module_name)
        if module is None:
            raise Untranslatable(f"the module {module_name} is not part of the source")
        source = module.path("templates", inner)
        try:
            text = self.program.tree.text(source)
        except SourceError as error:
            raise Untranslatable(f"the template cannot be read: {error.message}") from None
        unit_scope = msgspec.structs.replace(scope, local={}, render=None)
        try:
            converted = convert_template(text, unit_scope, is_ruby=is_ruby)
        except (Untranslatable, SyntaxProblem) as error:
            self.draft.files[f"templates/{name}"] = text.encode()
            self.draft.check(
                f"The template {source} is not converted: {error}. The draft contains the original."
            )
            raise Untranslatable(f"the template {source} is not plain: {error}") from None
        path = f"templates/{re.sub(r'[.](erb|epp)$', '', name)}.j2"
        if path in self.draft.files and self.draft.files[path] != converted.text.encode():
            path = f"templates/{slug(scope.owner)}/{re.sub(r'[.](erb|epp)$', '', name)}.j2"
        self.draft.files[path] = converted.text.encode()
        self._converted[name, scope.owner] = path
        self._template_parameters[path] = converted
        return path


def is_template(node: Node) -> bool:
    """Return whether a value is the result of a template."""
    return isinstance(node, Call) and node.name in ("template", "epp")
