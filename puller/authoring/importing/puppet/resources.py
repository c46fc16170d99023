"""Resources of Puppet as resources of Puller, by the table ``types.yaml``.

Each function takes the attributes of one declaration, and returns its resources. It raises ``Untranslatable`` for a
resource without an exact counterpart. Relationships are added by the importer.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.puppet.expressions import Scope, grouped, table
from puller.authoring.importing.puppet.syntax import HashLiteral, ListLiteral, Literal, Node, Text
from puller.authoring.importing.written_expressions import Untranslatable

OWNER: Final = "A file without owner or group in the source belongs to root"
MODE: Final = "A file without mode in the source has mode 0644, and a directory 0755"
PASSED: Final = "The value of a variable for `ensure` or `enable` passes unchanged"


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


# Files.


def file(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the file, directory or link. Raises ``Untranslatable``."""
    work.ignore("backup", "checksum", "links", "recurselimit", "max_files", "selinux_ignore_defaults")
    work.ignore("validate_replacement", "ctime", "mtime", "type", "provider", "source_permissions", "ignore")
    path = work.name("path").rstrip("/") or "/"
    if not path.startswith(("/", "{{")):
        raise Untranslatable(f"the path {path!r} is not absolute")
    ensure, target = work.value("ensure"), work.text("target")
    if ensure is True:
        ensure = "present"
    if isinstance(ensure, str) and ensure.startswith("/"):
        ensure, target = "link", ensure
    if ensure == "link" or (target and ensure in (None, "present")):
        return [_link(work, path, target)]
    if ensure in ("absent", False):
        properties: dict[str, Any] = {"ensure": "absent"}
        if work.boolean("force") is True:
            properties["force"] = True
        work.attributes.clear()
        return [Resource("file", path, properties)]
    if target:
        raise Untranslatable("the target of a link depends on a variable ensure")
    properties = {}
    is_directory = ensure == "directory"
    if is_directory:
        properties["ensure"] = "directory"
    elif has_expression(ensure):
        inner = expression_of(ensure)
        properties["ensure"] = (
            f"{{{{ 'present' if {inner} in ['file', 'present', true] else {grouped(inner)} }}}}"
            if inner
            else ensure
        )
    elif ensure not in (None, "file", "present"):
        raise Untranslatable(f"ensure is {ensure!r}")
    if work.boolean("replace") is False:
        properties["ensure"] = "exists"
    content, source = work.raw("content"), work.raw("source")
    if content is not None:
        properties |= work.content_of(work.scope, content)
    if source is not None and content is not None:
        if expression_of(work.scope.value(source)) is None:
            raise Untranslatable("content and source are both set")
        work.remark("content and source are both variable. Only content is mapped")
    elif source is not None:
        properties["source"] = _source(work, source)
    recurse = work.value("recurse")
    if recurse in (True, "true", "remote", "inf"):
        if source is not None:
            properties["recurse"] = True
        elif work.attributes.get("purge") is None:
            work.remark("recurse without a source is not mapped: only the directory has its owner and mode")
    elif recurse not in (None, False, "false"):
        work.remark("a variable recurse is not mapped")
    if work.boolean("purge") is True:
        properties["purge"] = True
    if work.boolean("force") is True:
        properties["force"] = True
    if work.boolean("show_diff") is False:
        properties["sensitive"] = True
    _validate(work, properties)
    if ensure is None and content is None and source is None and properties.get("ensure") is None:
        # Without ensure, Puppet changes only an existing object.
        properties["create"] = False
        for key in ("owner", "group"):
            if (value := work.text(key)) is not None:
                properties[key] = value
        if (mode := work.value("mode")) is not None:
            properties["mode"] = mode_of(mode)
        return [Resource("file", path, properties)]
    _owner_and_mode(work, properties, is_directory=is_directory)
    return [Resource("file", path, properties)]


def _link(work: Work, path: str, target: str | None) -> Resource:
    if not target:
        raise Untranslatable("the target of the link is missing")
    properties: dict[str, Any] = {"target": target}
    if work.boolean("force") is True:
        properties["force"] = True
    for key in ("owner", "group"):
        if (value := work.text(key)) is not None:
            properties[key] = value
    work.ignore("mode", "replace")
    return Resource("link", path, properties)


def _validate(work: Work, properties: dict[str, Any]) -> None:
    command = work.value("validate_cmd")
    if isinstance(command, str):
        text = re.sub(r"{{.*?}}|%", lambda match: "{}" if match[0] == "%" else match[0], command)
        properties["validate"] = text
        if needs_shell(command.replace("%", "")):
            properties["provider"] = "shell"


def _owner_and_mode(work: Work, properties: dict[str, Any], *, is_directory: bool) -> None:
    for key in ("owner", "group"):
        value = work.text(key)
        if value is None:
            work.scope.draft.assume(OWNER)
        properties[key] = value if value is not None else "root"
    mode = work.value("mode")
    if mode is None:
        work.scope.draft.assume(MODE)
        mode = "0755" if is_directory else "0644"
    elif is_directory and has_expression(mode):
        work.scope.draft.assume(
            "Puppet adds the execute permission to a directory. Add it to a mode from a variable"
        )
    properties["mode"] = mode_of(mode, is_directory=is_directory)


def mode_of(value: Any, *, is_directory: bool = False) -> str:
    """Return a mode as text. For directories, Puppet adds execute to each read permission."""
    if isinstance(value, int):
        value = f"{value:o}"
    text = str(value)
    if not re.fullmatch(r"[0-7]{1,5}", text):
        return text
    bits = int(text, 8)
    if is_directory:
        bits |= (bits & 0o444) >> 2
    return f"{bits:04o}"


def _source(work: Work, node: Node) -> str:
    """Return a source as the path of a bundle, an absolute path or a URL. Raises ``Untranslatable``."""
    value = work.scope.value(node)
    if isinstance(value, list):
        if not value:
            raise Untranslatable("source is an empty list")
        work.remark("source is a list. The draft contains its last entry" if len(value) > 1 else "")
        work.reasons = [reason for reason in work.reasons if reason]
        value = value[-1]
    text = str(value)
    if match := re.fullmatch(r"puppet://(?:[^/]*)/modules/(.+)", text):
        return work.find_source(match[1])
    if text.startswith("puppet:"):
        raise Untranslatable(f"the mount point of {text} is not part of the source")
    text = text.removeprefix("file://")
    if text.startswith("{{"):
        raise Untranslatable("source is variable. Write a path with `bundle:`, an absolute path or a URL")
    if not text.startswith(("/", "http://", "https://")):
        raise Untranslatable(f"the source {text} is unsupported")
    if text.startswith("http"):
        work.remark("a URL as source requires `checksum`, or a response with a length")
    return text


def concat(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the file with fragments. Raises ``Untranslatable``."""
    work.ignore("backup", "order", "ensure_newline", "warn", "force", "replace", "gnu", "show_diff", "format")
    ensure, path = work.value("ensure"), work.name("path")
    if not path.startswith(("/", "{{")):
        raise Untranslatable("the path of concat is its title, which is not absolute")
    if ensure == "absent":
        work.attributes.clear()
        return [Resource("file", path, {"ensure": "absent"})]
    properties: dict[str, Any] = {"fragments": True}
    if ensure not in (None, "present"):
        properties["ensure"] = ensure
    _validate(work, properties)
    _owner_and_mode(work, properties, is_directory=False)
    return [Resource("file", path, properties)]


def concat_fragment(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the fragment. Raises ``Untranslatable``."""
    path, order = work.required("target"), work.value("order")
    work.ignore("backup")
    properties: dict[str, Any] = {"path": path}
    ensure = work.value("ensure")
    if ensure not in (None, "present"):
        properties["ensure"] = ensure
    if isinstance(order, str) and order.isdigit():
        # Puppet sorts texts. Two digits have the same order as numbers.
        order = int(order)
    # The default of concat::fragment is 10.
    properties["order"] = 10 if order is None else order
    content, source = work.raw("content"), work.raw("source")
    if content is not None:
        properties |= work.content_of(work.scope, content)
    elif source is not None:
        properties["source"] = _source(work, source)
    else:
        raise Untranslatable("the content of the fragment is missing")
    if isinstance(content, (Literal, Text)) and not str(properties.get("content", "\n")).endswith("\n"):
        work.remark("Puller ends each fragment with a line break")
    return [Resource("fragment", work.title, properties)]


def file_line(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the line. With ``ensure => absent``, ``match`` needs ``match``. Raises ``Untranslatable``."""
    for resource in resources:
        properties = resource.properties
        for key in ("match", "insert_after"):
            if isinstance(properties.get(key), str):
                properties[key] = properties[key].replace("\\z", "\\Z")
        if "path" not in properties:
            raise Untranslatable("the path is missing")
    return resources


def ini_setting(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the setting. Raises ``Untranslatable``."""
    for resource in resources:
        properties = resource.properties
        if not properties.get("path") or not properties.get("key"):
            raise Untranslatable("path or setting is missing")
        if properties.get("section") == "":
            del properties["section"]
        resource.properties = {"path": properties.pop("path"), "format": "ini", "create": True, **properties}
    return resources


def unit_file(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a unit file. Raises ``Untranslatable``."""
    if work.raw("enable", "active") is not None:
        work.remark("enable and active need a resource service")
    work.attributes["path"] = Literal(f"/etc/systemd/system/{work.title}")
    if "{{" in work.title:
        raise Untranslatable("the title is variable. Use a file in /etc/systemd/system")
    return file(work, [])


def archive(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the archive. Raises ``Untranslatable``."""
    path = work.name("path")
    if work.value("ensure") == "absent":
        work.attributes.clear()
        return [Resource("archive", path, {"ensure": "absent"})]
    url, extract = work.required("source", "url"), work.boolean("extract")
    properties: dict[str, Any] = {"url": url}
    kind = work.value("checksum_type")
    checksum = work.text("checksum")
    if checksum and kind in (None, "sha256"):
        properties["checksum"] = checksum
    elif checksum:
        work.remark("only checksums of SHA-256 are mapped")
    if extract is True:
        properties["extract_parent"] = work.required("extract_path")
    if (creates := work.text("creates")) is not None:
        properties["creates"] = creates
    if work.boolean("cleanup") is True and "creates" in properties:
        properties["cleanup"] = True
    work.ignore("digest_string", "digest_type", "extract", "provider", "allow_insecure", "temp_dir")
    for key, attribute in (("owner", "user"), ("group", "group")):
        properties[key] = work.text(attribute) or "root"
    if extract is not True:
        if "checksum" not in properties:
            work.remark("a URL as source requires `checksum`, or a response with a length")
        source = {"source": properties.pop("url"), **properties, "mode": "0644"}
        source.pop("creates", None)
        source.pop("cleanup", None)
        return [Resource("file", path, source)]
    return [Resource("archive", path, properties)]


def vcsrepo(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the checkout. Raises ``Untranslatable``."""
    for resource in resources:
        if "url" not in resource.properties and resource.properties.get("ensure") != "absent":
            raise Untranslatable("the source is missing")
        resource.properties.setdefault("owner", "root")
    return resources


# Software.


def package(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the package. Raises ``Untranslatable``."""
    for resource in resources:
        ensure = resource.properties.get("ensure")
        expression = expression_of(ensure)
        if ensure in ("present", "installed", "true"):
            del resource.properties["ensure"]
        elif expression is not None:
            resource.properties["ensure"] = (
                f"{{{{ 'present' if {grouped(expression)} in ['installed', true] else {grouped(expression)} }}}}"
            )
        elif ensure == "held":
            resource.properties |= {"ensure": "present", "held": True}
        elif ensure == "disabled" or (isinstance(ensure, str) and re.match(r"[<>=]", ensure)):
            raise Untranslatable(f"ensure is {ensure!r}")
        source = resource.properties.get("source")
        if isinstance(source, str) and source.startswith("http"):
            work.remark("a package from a URL requires `checksum`")
    return resources


def yumrepo(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the repository with a proposal for its key. Raises ``Untranslatable``."""
    name, ensure = work.title, work.value("ensure")
    if ensure == "absent":
        work.attributes.clear()
        return [Resource("repository", name, {"ensure": "absent"})]
    work.ignore(
        "descr", "gpgcheck", "repo_gpgcheck", "metadata_expire", "sslverify", "target", "type", "assumeyes"
    )
    url, key = work.text("baseurl"), work.text("gpgkey")
    enabled, priority = work.value("enabled"), work.value("priority")
    properties: dict[str, Any] = {"url": url}
    if enabled in (0, "0", False, "false"):
        properties["enabled"] = False
    elif has_expression(enabled):
        properties["enabled"] = f"{{{{ {grouped(expression_of(enabled) or '1')} | bool }}}}"
    if isinstance(priority, (int, str)):
        properties["priority"] = int(priority) if str(priority).isdigit() else priority
    if not url:
        raise Untranslatable("baseurl is missing. Puller supports no lists of mirrors")
    if key and key.startswith("file://"):
        return [Resource("repository", name, {**properties, "key": key.removeprefix("file://")})]
    proposal = Resource("repository", name, {**properties, "key": f"bundle:files/{name}.asc"})
    raise Unfinished(
        f"the key is {key or 'missing'}. Put it into files/, because Puller downloads no keys", [proposal]
    )


def apt_source(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the repository with a proposal for its key. Raises ``Untranslatable``."""
    name, ensure = work.title, work.value("ensure")
    if ensure == "absent":
        work.attributes.clear()
        return [Resource("repository", name, {"ensure": "absent"})]
    work.ignore("comment", "notify_update", "include", "keyring", "allow_unsigned")
    url, release = work.text("location"), work.text("release")
    repos, architecture, pin = work.text("repos"), work.text("architecture"), work.value("pin")
    key = work.raw("key")
    if not url:
        raise Untranslatable("location is missing")
    suite = release or "{{ facts.os.distro.codename }}"
    properties: dict[str, Any] = {"url": url, "suites": [suite]}
    if not suite.endswith("/"):
        components = repos or "main"
        expression = expression_of(components)
        properties["components"] = (
            f"{{{{ {grouped(expression)}.split() }}}}" if expression else components.split()
        )
    if architecture:
        properties["architectures"] = [part.strip() for part in architecture.split(",")]
    if isinstance(pin, (int, str)) and str(pin).lstrip("-").isdigit():
        properties["priority"] = int(pin)
    elif pin is not None:
        work.remark("pin is not mapped")
    if isinstance(key, HashLiteral):
        for pair, node in key.pairs:
            if isinstance(pair, Literal) and pair.value == "source" and isinstance(node, Literal):
                text = str(node.value)
                if text.startswith("puppet:///modules/"):
                    path = work.find_source(text.removeprefix("puppet:///modules/"))
                    return [Resource("repository", name, {**properties, "key": path})]
    proposal = Resource("repository", name, {**properties, "key": f"bundle:files/{name}.asc"})
    raise Unfinished(
        "put the key of the repository into files/, because Puller downloads no keys", [proposal]
    )


# Services and commands.


def service(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the service. Raises ``Untranslatable``."""
    restart = work.text("restart")
    for resource in resources:
        properties = resource.properties
        if restart is not None:
            if re.search(r"\breload\b|\bgraceful\b|kill -HUP", restart):
                resource.properties["reload"] = []
            elif not re.search(r"\brestart\b", restart):
                work.remark("restart is not mapped: Puller restarts the unit of systemd")
        if properties.get("ensure") == "running":
            del properties["ensure"]
        elif "ensure" not in properties:
            if properties.get("enable") is False or properties.get("enable") == "masked":
                properties["ensure"] = "stopped"
                work.remark("the source only disables the service. The draft also stops it")
            elif "enable" in properties:
                work.remark("the source only enables the service. The draft also starts it")
            else:
                raise Untranslatable("the service has neither ensure nor enable")
    return resources


def needs_shell(text: str) -> bool:
    """Return whether Ruby runs a command with a shell because of its characters."""
    return bool(re.search(r"[*?{}\[\]<>()~&|\\$;`\n#%]", re.sub(r"{{.*?}}", "", text)))


def _command(node: Node, scope: Scope) -> str:
    value = scope.value(node)
    if isinstance(value, list):
        return " ".join(part if "{{" in part else shlex.quote(part) for part in map(as_text, value))
    return as_text(value)


def _guards(work: Work, name: str, joint: str) -> str | None:
    node = work.raw(name)
    if node is None:
        return None
    if not isinstance(node, ListLiteral):
        return _command(node, work.scope)
    commands = [_command(item, work.scope) for item in node.items]
    return commands[0] if len(commands) == 1 else joint.join(f"({command})" for command in commands) or None


def exec_command(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the command with its guards. Raises ``Untranslatable``."""
    work.ignore("logoutput")
    node, provider = work.raw("command"), work.text("provider")
    command = work.title if node is None else _command(node, work.scope)
    if provider not in (None, "posix", "shell"):
        raise Untranslatable(f"the provider is {provider}")
    properties: dict[str, Any] = {}
    if command != work.title:
        properties["command"] = command
    for key, joint in (("onlyif", " && "), ("unless", " || ")):
        guard = _guards(work, key, joint)
        if guard is not None:
            properties[key] = guard
    creates = work.value("creates")
    if isinstance(creates, list):
        if len(creates) > 1:
            raise Untranslatable("creates has several paths")
        creates = creates[0] if creates else None
    if creates is not None:
        properties["creates"] = creates
    texts = [command, *(properties[key] for key in ("onlyif", "unless") if key in properties)]
    if provider == "shell" or any(needs_shell(text) for text in texts):
        properties["provider"] = "shell"
    path = work.raw("path")
    if path is not None:
        value = work.scope.value(path)
        expression = expression_of(value)
        if isinstance(value, list):
            properties["path"] = ":".join(map(as_text, value))
        elif expression is not None and work.scope.kind(path).name != "text":
            properties["path"] = f"{{{{ [{expression}] | flatten | join(':') }}}}"
        else:
            properties["path"] = value
    for key in ("cwd", "user", "group"):
        if (text := work.text(key)) is not None:
            properties[key] = text
    environment = work.value("environment")
    if environment is not None and environment != []:
        expression = expression_of(environment)
        properties["environment"] = (
            environment
            if isinstance(environment, list)
            else f"{{{{ [{expression}] | flatten }}}}"
            if expression
            else [environment]
        )
    returns = work.value("returns")
    if returns is not None:
        numbers = returns if isinstance(returns, list) else [returns]
        if not all(str(number).isdigit() for number in numbers):
            raise Untranslatable("returns is variable")
        properties["returns"] = [int(number) for number in numbers]
    timeout = work.value("timeout")
    if timeout is not None:
        if has_expression(timeout):
            properties["timeout"] = f"{timeout}s"
        elif str(timeout) == "0":
            properties["timeout"] = "24h"
            work.remark("the source has no time limit. The draft has 24 hours")
        else:
            properties["timeout"] = f"{timeout}s"
    refresh_only = work.boolean("refreshonly")
    if refresh_only not in (None, False):
        properties["refreshonly"] = refresh_only
    tries = work.value("tries")
    work.ignore("try_sleep")
    if tries not in (None, 1, "1"):
        work.remark("tries is not mapped: a failed command runs again in the next run")
    if work.text("refresh") is not None:
        work.remark("the command for refreshes is not mapped")
    return [Resource("exec", work.title, properties)]


_FIELDS: Final = ("minute", "hour", "monthday", "month", "weekday")


def cron(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a job in /etc/cron.d. Raises ``Untranslatable``."""
    ensure = work.value("ensure")
    parts = re.split(r"({{.*?}})", work.name("name"))
    clean = [part if part.startswith("{{") else re.sub(r"[^A-Za-z0-9_-]+", "-", part) for part in parts]
    name = "".join(clean).strip("-") or "job"
    if ensure == "absent":
        work.attributes.clear()
        return [Resource("cron", name, {"ensure": "absent"})]
    work.ignore("provider")
    if work.raw("target") is not None:
        work.remark("target is not mapped: the job has a file in /etc/cron.d")
    special = work.text("special")
    fields = [_cron_field(work.raw(field), work.scope) for field in _FIELDS]
    schedule = f"@{special}" if special and special != "absent" else " ".join(fields)
    properties: dict[str, Any] = {"schedule": schedule, "command": work.required("command")}
    if ensure not in (None, "present"):
        properties["ensure"] = ensure
    user = work.text("user")
    if user not in (None, "root"):
        properties["user"] = user
    environment = work.value("environment")
    if environment not in (None, []):
        properties["environment"] = environment if isinstance(environment, list) else [environment]
    work.scope.draft.assume(
        "A job of cron moves to /etc/cron.d. Remove the old entry of the crontab from hosts that have it"
    )
    return [Resource("cron", name, properties)]


def _cron_field(node: Node | None, scope: Scope) -> str:
    if node is None:
        return "*"
    value = scope.value(node)
    if value == "absent":
        return "*"
    if isinstance(value, list):
        return ",".join(map(as_text, value))
    expression = expression_of(value)
    if expression is not None:
        kind, text = scope.kind(node), grouped(expression)
        if kind.name == "list":
            return f"{{{{ {text} | join(',') }}}}"
        if kind.name == "unknown":
            return f"{{{{ [{text} if {text} is not none else '*'] | flatten | join(',') }}}}"
        return f"{{{{ {text} if {text} is not none else '*' }}}}" if kind.optional else as_text(value)
    return re.sub(r"\s", "", as_text(value))


# Accounts.


def user(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the user. Puppet creates no home by default."""
    for resource in resources:
        properties = resource.properties
        if properties.get("ensure") == "present":
            del properties["ensure"]
        if properties.get("ensure") == "absent":
            manage = properties.get("manage_home")
            resource.properties = {"ensure": "absent", **({"remove_home": True} if manage is True else {})}
            continue
        properties.setdefault("manage_home", False)
        if properties.get("expires") == "absent":
            properties["expires"] = "never"
        if isinstance(properties.get("password"), str) and not has_expression(properties["password"]):
            properties["sensitive"] = True
    return resources


def authorized_key(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the user with the key. Raises ``Untranslatable``."""
    if work.value("ensure") not in (None, "present"):
        raise Untranslatable("single keys are not removed. Use `exclusive_keys`")
    work.ignore("drop_privileges", "provider")
    if work.raw("target") is not None:
        raise Untranslatable("a path of the keys is unsupported. Declare the complete file")
    name, key, kind = work.required("user"), work.required("key"), work.text("type") or "ssh-rsa"
    comment, options = work.name("name"), work.value("options")
    kind = {"rsa": "ssh-rsa", "dsa": "ssh-dss", "dss": "ssh-dss", "ed25519": "ssh-ed25519"}.get(kind, kind)
    if options is not None and (has_expression(options) and not isinstance(options, list)):
        raise Untranslatable("options of the key are variable")
    prefix = ",".join(map(as_text, options if isinstance(options, list) else [options] if options else []))
    line = " ".join(part for part in (prefix, kind, key, comment) if part)
    return [Resource("user", name, {"authorized_keys": [line]})]


def host(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the entry of /etc/hosts. Raises ``Untranslatable``."""
    name, ensure = work.name("name"), work.value("ensure")
    if work.text("target") not in (None, "/etc/hosts") or ensure not in (None, "present", "absent"):
        raise Untranslatable("the entry is in another file than /etc/hosts, or its ensure is variable")
    if ensure == "absent":
        work.attributes.clear()
        return [Resource("host_entry", name, {"ensure": "absent"})]
    address, aliases = work.required("ip"), work.value("host_aliases")
    properties: dict[str, Any] = {"address": address}
    if aliases:
        properties["aliases"] = aliases if isinstance(aliases, list) or expression_of(aliases) else [aliases]
    return [Resource("host_entry", name, properties)]


def mailalias(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a line of /etc/aliases. Raises ``Untranslatable``."""
    name, ensure = work.name("name"), work.value("ensure")
    path, recipient = work.text("target") or "/etc/aliases", work.value("recipient")
    if has_expression(name) or ensure not in (None, "present", "absent"):
        raise Untranslatable("the name is variable. Use a line of /etc/aliases")
    match = rf"^{re.escape(name)}\s*:"
    if ensure == "absent":
        return [Resource("line", f"alias {name}", {"path": path, "match": match, "ensure": "absent"})]
    words = recipient if isinstance(recipient, list) else [recipient]
    if not recipient or any(word is None for word in words):
        raise Untranslatable("the recipient is missing")
    line = f"{name}: {', '.join(map(as_text, words))}"
    return [Resource("line", f"alias {name}", {"path": path, "match": match, "line": line, "create": True})]


FUNCTIONS: Final[Mapping[str, Callable[[Work, list[Resource]], list[Resource]]]] = {
    "apt_source": apt_source,
    "archive": archive,
    "authorized_key": authorized_key,
    "concat": concat,
    "concat_fragment": concat_fragment,
    "cron": cron,
    "exec_command": exec_command,
    "file": file,
    "file_line": file_line,
    "host": host,
    "ini_setting": ini_setting,
    "mailalias": mailalias,
    "package": package,
    "service": service,
    "unit_file": unit_file,
    "user": user,
    "vcsrepo": vcsrepo,
    "yumrepo": yumrepo,
}
