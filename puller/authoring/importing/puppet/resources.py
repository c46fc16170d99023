"""Resources of Puppet as resources of Puller, by the table ``types.yaml``.

A row maps each attribute, and can name a function that completes the resource. Relationships are added by the importer.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.puppet import file_types, system_types
from puller.authoring.importing.puppet.declared_resource import Work, as_text, expression_of, has_expression
from puller.authoring.importing.puppet.expression_texts import grouped
from puller.authoring.importing.puppet.scopes import table
from puller.authoring.importing.puppet.syntax import Node
from puller.authoring.importing.written_expressions import Untranslatable

PASSED: Final = "The value of a variable for `ensure` or `enable` passes unchanged"


FUNCTIONS: Final[Mapping[str, Callable[[Work, list[Resource]], list[Resource]]]] = {
    "apt_source": system_types.apt_source,
    "archive": file_types.archive,
    "authorized_key": system_types.authorized_key,
    "concat": file_types.concat,
    "concat_fragment": file_types.concat_fragment,
    "cron": system_types.cron,
    "exec_command": system_types.exec_command,
    "file": file_types.file,
    "file_line": file_types.file_line,
    "host": system_types.host,
    "ini_setting": file_types.ini_setting,
    "mailalias": system_types.mailalias,
    "package": system_types.package,
    "service": system_types.service,
    "alternative": system_types.alternative,
    "dropin_file": file_types.dropin_file,
    "unit_file": file_types.unit_file,
    "user": system_types.user,
    "vcsrepo": file_types.vcsrepo,
    "yumrepo": system_types.yumrepo,
}


def map_resource(work: Work) -> list[Resource]:
    """Return the resources for a declaration. Raises ``Untranslatable``."""
    row = table()["types"].get(work.type)
    if row is None:
        raise Untranslatable("the type has no counterpart")
    if "missing" in row:
        raise Untranslatable(row["missing"])
    resources = [_from_row(row, work)] if "attributes" in row else []
    if "function" in row:
        resources = FUNCTIONS[row["function"]](work, resources)
    work.finish()
    return resources


def _from_row(row: Mapping[str, Any], work: Work) -> Resource:
    properties: dict[str, Any] = {}
    name = work.name(row["name"]) if "name" in row else work.title
    for attribute, target in row["attributes"].items():
        node = work.raw(attribute)
        if node is None or target == "ignore":
            continue
        if isinstance(target, str):
            properties[target] = work.scope.value(node)
            continue
        if "remark" in target:
            work.remark(target["remark"])
            continue
        value = _converted(target, attribute, work, node)
        if value is not None:
            properties[target["to"]] = value
    return Resource(row["type"], name, {**row.get("default", {}), **properties})


def _converted(target: Mapping[str, Any], attribute: str, work: Work, node: Node) -> Any:
    value = work.scope.value(node)
    if "values" in target:
        values = target["values"]
        if has_expression(value):
            if target["to"] == "provider":
                work.remark("provider is variable, and is not mapped")
                return None
            work.scope.draft.assume(PASSED)
            return value
        if as_text(value) not in values:
            raise Untranslatable(f"{attribute} is {value!r}")
        return values[as_text(value)]
    form = target["as"]
    if form == "text":
        return as_text(value) if not isinstance(value, (list, dict)) else _refuse(attribute)
    if form == "boolean":
        return value in ("true", "yes") if value in ("true", "yes", "false", "no") else value
    if form == "number":
        return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value
    expression = expression_of(value)
    if form == "list":
        if expression is not None and work.scope.kind(node).name != "list":
            return f"{{{{ [{expression}] | flatten }}}}"
        return value if isinstance(value, list) or expression is not None else [value]
    if form == "commas":
        if expression is not None:
            return f"{{{{ {grouped(expression)}.split(',') }}}}"
        return value if isinstance(value, list) else [part.strip() for part in str(value).split(",")]
    return value


def _refuse(attribute: str) -> Any:
    raise Untranslatable(f"{attribute} is a list or mapping")
