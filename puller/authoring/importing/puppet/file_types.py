"""Types of Puppet for files, parts of files, archives and checkouts.

Each function takes the attributes of one declaration, and returns its resources. It raises ``Untranslatable`` for a
resource without an exact counterpart.
"""

import re
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.puppet.attributes import (
    Work,
    expression_of,
    has_expression,
    needs_shell,
)
from puller.authoring.importing.puppet.language.syntax import Literal, Node, Text
from puller.authoring.importing.written_expressions import Untranslatable, grouped

_DIFFERENT: Final = {
    "ignore": "ignore is not mapped: Puller copies all files of the source",
    "links": "links is not mapped: Puller manages the object at the path itself",
    "recurselimit": "recurselimit is not mapped: Puller copies the complete source",
    "source_permissions": "source_permissions is not mapped: the draft has owner, group and mode",
}
"""Attributes of a file without a counterpart, with the difference."""
_ENDS: Final = "Puller ends each fragment with a line break. concat needs `ensure_newline` for this"
_ORDER: Final = "Puller orders fragments by number. By default, concat compares texts: 10 comes before 9"
_PROGRAMS: Final = (
    "Programs in a copied directory keep their execute permission. In Puppet, all files get one mode"
)
OWNER: Final = "A file without owner or group in the source belongs to root"
MODE: Final = "A file without mode in the source has mode 0644, and a directory 0755"


def file(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the file, directory or link. Raises ``Untranslatable``."""
    work.ignore("backup", "checksum", "max_files", "selinux_ignore_defaults")
    work.ignore("ctime", "mtime", "type", "provider")
    for name, reason in _DIFFERENT.items():
        if work.raw(name) is not None:
            work.remark(reason)
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
        if work.flag("force") is True:
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
    if work.flag("replace") is False:
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
    if work.flag("purge") is True:
        if recurse in (True, "true", "inf", "remote"):
            properties["purge"] = True
        else:
            work.remark("purge is not mapped: without recurse, it has no effect in Puppet")
    if work.flag("force") is True:
        properties["force"] = True
    if work.flag("show_diff") is False:
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
    if work.flag("force") is True:
        properties["force"] = True
    for key in ("owner", "group"):
        if (value := work.text(key)) is not None:
            properties[key] = value
    work.ignore("mode", "replace")
    return Resource("link", path, properties)


def _validate(work: Work, properties: dict[str, Any]) -> None:
    command = work.value("validate_cmd")
    if (expression := expression_of(command)) is not None:
        text = grouped(expression)
        properties["validate"] = f"{{{{ {text} | replace('%', '{{}}') if {text} is not none else none }}}}"
        properties["provider"] = "shell"
    elif isinstance(command, str):
        mark = work.text("validate_replacement") or "%"
        text = re.sub(
            rf"{{{{.*?}}}}|{re.escape(mark)}", lambda match: "{}" if match[0] == mark else match[0], command
        )
        properties["validate"] = text
        if needs_shell(command.replace(mark, "")):
            properties["provider"] = "shell"


def _owner_and_mode(work: Work, properties: dict[str, Any], *, is_directory: bool) -> None:
    for key in ("owner", "group"):
        value = work.text(key)
        if value is None:
            work.scope.draft.assume(OWNER)
        properties[key] = value if value is not None else "root"
    mode = work.value("mode")
    if properties.get("recurse") is True:
        # Digits add the search permission to directories only, as in Puppet.
        is_directory = False
        work.scope.draft.assume(_PROGRAMS)
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
        if len(value) > 1:
            work.remark(
                "source is a list. The draft contains its last entry, and Puppet uses the first that exists"
            )
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
    work.ignore("backup", "force", "gnu", "selinux_ignore_defaults", "create_empty_file")
    ensure, path = work.value("ensure"), work.name("path")
    order, warning, form = work.value("order"), work.value("warn"), work.value("format")
    if order != "numeric":
        work.scope.draft.assume(_ORDER)
    if warning not in (None, False, "false"):
        work.remark("warn is not mapped: add the comment as the first fragment")
    if form not in (None, "plain"):
        raise Untranslatable(f"the format {form} of fragments is unsupported")
    if work.flag("replace") is False:
        work.remark("replace is not mapped: Puller replaces an existing file")
    work.ignore("ensure_newline")
    if not path.startswith(("/", "{{")):
        raise Untranslatable("the path of concat is its title, which is not absolute")
    if ensure == "absent":
        work.attributes.clear()
        return [Resource("file", path, {"ensure": "absent"})]
    properties: dict[str, Any] = {"fragments": True}
    if work.flag("show_diff") is False:
        properties["sensitive"] = True
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
    if isinstance(content, (Literal, Text)):
        if not str(properties.get("content", "\n")).endswith("\n"):
            work.remark("Puller ends each fragment with a line break")
    else:
        work.scope.draft.assume(_ENDS)
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
    """Return a unit and its service. Raises ``Untranslatable``."""
    name = work.name("name")
    resources = [_unit(work, name)]
    enable, active = work.boolean("enable"), work.boolean("active")
    if has_expression(enable) or has_expression(active):
        work.remark("a variable enable or active needs a resource service")
    elif enable is not None or active is not None:
        states = {} if enable is None else {"enable": "masked" if enable == "mask" else enable}
        if active is not True:
            states = {"ensure": "stopped", **states}
        if active is None:
            work.remark("the source does not start or stop the unit. The draft stops it")
        subscriber = {"subscribe": [f"unit#{name}"]} if active is True else {}
        resources.append(Resource("service", name.removesuffix(".service"), {**states, **subscriber}))
    return resources


def dropin_file(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a drop-in of a unit. Raises ``Untranslatable``."""
    unit, file_name = work.required("unit"), work.name("filename")
    if work.flag("notify_service") is True:
        work.remark("notify_service is not mapped: let the service subscribe to the unit")
    return [_unit(work, f"{unit}.d/{file_name}")]


def _unit(work: Work, name: str) -> Resource:
    """Return a unit file or a drop-in."""
    if work.text("path") not in (None, "/etc/systemd/system"):
        raise Untranslatable("units are supported only in /etc/systemd/system")
    work.ignore("daemon_reload", "show_diff", "selinux_ignore_defaults", "owner", "group", "mode")
    if work.value("ensure") == "absent":
        work.attributes.clear()
        return Resource("unit", name, {"ensure": "absent"})
    work.ignore("ensure")
    content, source = work.raw("content"), work.raw("source")
    if content is not None:
        return Resource("unit", name, work.content_of(work.scope, content))
    if source is not None:
        return Resource("unit", name, {"source": _source(work, source)})
    raise Untranslatable("the content of the unit is missing")


def archive(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the archive. Raises ``Untranslatable``."""
    path = work.name("path")
    if work.value("ensure") == "absent":
        work.attributes.clear()
        return [Resource("archive", path, {"ensure": "absent"})]
    url, extract = work.required("source", "url"), work.flag("extract")
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
    if work.flag("cleanup") is True and "creates" in properties:
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
