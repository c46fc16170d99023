"""Modules of Ansible for files, edits of files, downloads and checkouts.

Each function takes the remaining arguments of a task, and returns its resources. It raises ``Untranslatable`` for a
task without an exact counterpart.
"""

import os
import re
from typing import Any, Final

from puller.authoring.importing.ansible.jinja_expressions import as_expression, has_expression
from puller.authoring.importing.ansible.tasks import (
    Work,
    as_text,
    mapped_value,
    mode_of,
    with_scheme,
)
from puller.authoring.importing.draft import Resource
from puller.authoring.importing.written_expressions import Untranslatable

_OWNER: Final = (
    "Files without owner or group in the source belong to root. Files without a mode keep their mode (`xxx`)."
)


def _attributes(work: Work, *, is_required: bool = True) -> dict[str, Any]:
    """Return owner, group and mode. Without a value in the task, use the defaults of new files."""
    owner, group, mode = work.value("owner"), work.value("group"), work.raw("mode")
    mode = None if mode is None else mode_of(work.translated(mode))
    work.ignore("attributes", "attr", "unsafe_writes", "seuser", "serole", "setype", "selevel", "backup")
    if is_required:
        if owner is None or group is None:
            work.context.draft.assume(_OWNER)
        owner = _with_default(owner, "root")
        group = _with_default(group, "root")
        mode = _with_default(mode, "xxx")
    values = {"owner": owner, "group": group, "mode": mode}
    return {
        key: value if isinstance(value, str) else as_text(value)
        for key, value in values.items()
        if value is not None
    }


def _with_default(value: Any, default: str) -> Any:
    """Return a value or the default. ``default(none)``, the translation of ``default(omit)``, also gets the default."""
    if value is None:
        return default
    if isinstance(value, str) and has_expression(value):
        return re.sub(r"default\(\s*none\s*(?=[,)])", f"default('{default}'", value)
    return value


def _path(work: Work, *names: str) -> str:
    """Remove arguments and return the first one as an absolute path. Raises ``Untranslatable``."""
    path = work.required(*names)
    if path.startswith("~"):
        raise Untranslatable(f"the path {path} depends on the home of a user")
    return _absolute(path)


def _validate(work: Work) -> dict[str, Any]:
    """Return the property that validates the content of a file."""
    command = work.text("validate")
    return {} if command is None else {"validate": command.replace("%s", "{}")}


# Files.

_COMMON: Final = frozenset({"0755", "xxx"})
_PARENTS: Final = (
    "Missing parents of a directory belong to root (0755). In Ansible, they are like the directory."
)
_FOLDERS: Final = (
    "Directories of a copy get the mode of its files, with `x` beside each `r`. Ansible uses 0755."
)


def file(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a file, a directory or a link, by the argument ``state``. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest", "name")
    state = work.text("state", default="file")
    force, recurse = work.boolean("force"), work.boolean("recurse")
    work.ignore(
        "follow",
        "access_time",
        "modification_time",
        "modification_time_format",
        "access_time_format",
        "_diff_peek",
    )
    if has_expression(state):
        known = mapped_value({"directory": "directory", "absent": "absent"}, "state", state, work)
        work.remark("the state is variable: only `directory` and `absent` are mapped")
        return [Resource("file", path, {"ensure": known, **_attributes(work)})]
    if state == "absent":
        _attributes(work, is_required=False)
        work.ignore("src")
        return [Resource("file", path, {"ensure": "absent", "force": True})]
    if state in ("link", "hard"):
        target = work.required("src")
        if state == "hard":
            raise Untranslatable("hard links are unsupported. Use a link")
        attributes = _attributes(work, is_required=False)
        attributes.pop("mode", None)
        return [
            Resource(
                "link", path, {"target": target, **attributes, **({"force": True} if force is True else {})}
            )
        ]
    work.ignore("src")
    if state == "directory":
        properties = {"ensure": "directory", **_attributes(work)}
        if (properties["owner"], properties["group"]) != ("root", "root") or properties[
            "mode"
        ] not in _COMMON:
            work.context.draft.assume(_PARENTS)
        if recurse is True:
            properties["recurse"] = True
        return [Resource("file", path, properties)]
    if state == "touch":
        return [Resource("file", path, {"ensure": "exists", "content": "", **_attributes(work)})]
    if state != "file":
        raise Untranslatable(f"state is {state!r}")
    attributes = _attributes(work, is_required=False)
    if not attributes:
        raise Untranslatable("the task only checks that the file exists. Use health_checks")
    return [Resource("file", path, {"create": False, **attributes})]


def copy(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a file with content, or a copy of a file or directory. Raises ``Untranslatable``."""
    destination = work.required("dest", "path")
    content, source = work.raw("content"), work.raw("src")
    remote, force = work.boolean("remote_src", default=False), work.boolean("force", default=True)
    work.ignore("decrypt", "follow", "local_follow", "checksum")
    properties: dict[str, Any] = {"ensure": "exists"} if force is False else {}
    if force not in (True, False):
        work.remark("force is variable: the content is always kept up to date")
    if content is not None:
        translated = work.translated(content)
        properties["content"] = (
            f"{{{{ {as_expression(content, work.names)} | to_nice_json }}}}"
            if isinstance(content, (dict, list))
            else as_text(translated)
        )
        return [
            Resource("file", _absolute(destination), {**properties, **_attributes(work), **_validate(work)})
        ]
    if source is None:
        raise Untranslatable("src and content are missing")
    origin = work.translated(source)
    if remote is True:
        if not origin.startswith(("/", "{{")):
            raise Untranslatable(f"the source {origin} is not absolute")
        work.context.draft.check(f"{destination} is a copy of {origin} on the host: it must be a file.")
        target = _target(destination, origin)
        return [
            Resource("file", target, {**properties, "source": origin, **_attributes(work), **_validate(work)})
        ]
    place = _source_file(work, "files", origin)
    is_folder = work.context.tree.is_directory(_in_source(work, place))
    if is_folder:
        target = (
            destination.rstrip("/")
            if origin.endswith("/")
            else f"{destination.rstrip('/')}/{os.path.basename(origin)}"
        )
        properties = {"ensure": "directory", "recurse": True, "source": place.rstrip("/")}
        attributes = _attributes(work)
        if attributes["mode"] not in ("0644", "xxx"):
            work.context.draft.assume(_FOLDERS)
        return [Resource("file", _absolute(target), {**properties, **attributes})]
    target = _target(destination, origin)
    return [
        Resource(
            "file", _absolute(target), {**properties, "source": place, **_attributes(work), **_validate(work)}
        )
    ]


def _in_source(work: Work, path: str) -> str:
    """Return the path in the source, by the path in the role."""
    return "/".join(part for part in (work.context.directory, path) if part)


def _absolute(path: str) -> str:
    """Return an absolute path without a slash at its end. Raises ``Untranslatable``."""
    if not path.startswith(("/", "{{")):
        raise Untranslatable(f"the path {path} is not absolute")
    return path if path == "/" else path.rstrip("/")


def _target(destination: str, origin: str) -> str:
    """Return the path of a copied file. A destination with a slash at its end is a directory."""
    if not destination.endswith("/"):
        return destination
    base = os.path.basename(origin)
    if base == "{{ item }}" or not has_expression(base):
        return f"{destination}{base}"
    return f"{destination}{base}" if "/" not in re.sub(r"{{.*?}}", "", base) else destination


def _source_file(work: Work, kind: str, path: str) -> str:
    """Return a file of the role by its path in the bundle. Raises ``Untranslatable``."""
    plain = re.sub(r"^\.?/+", "", path) if path.startswith("./") else path
    if plain.startswith("/"):
        raise Untranslatable(f"the source {path} is a file of the control node")
    if "../" in plain:
        raise Untranslatable(f"the source {path} is outside of the role")
    if plain.startswith(("files/", "templates/")):
        return plain
    if has_expression(plain):
        if (
            work.task.loop is not None
            and work.task.loop[0] == "fileglob"
            and plain == f"{{{{ {work.task.loop_variable} }}}}"
        ):
            return plain
        if not work.context.tree.is_directory(_in_source(work, kind)):
            raise Untranslatable(f"the source {path} is not in {kind} of the role")
        return f"{kind}/{plain}"
    place = work.context.find_file(kind, plain.rstrip("/"))
    if place is None:
        raise Untranslatable(f"the source {path} is not in {kind} of the role")
    return f"{place}/" if plain.endswith("/") else place


def template(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a file with an unchanged template, which sees data by name. Raises ``Untranslatable``."""
    source = work.source()
    destination = work.required("dest")
    force = work.boolean("force", default=True)
    work.ignore("follow")
    place = _source_file(work, "templates", source)
    if (
        not place.startswith("{{")
        and not has_expression(place)
        and not work.context.tree.is_file(_in_source(work, place))
    ):
        raise Untranslatable(f"the template {source} is missing")
    target = _target(destination, re.sub(r"\.j2$", "", source))
    properties: dict[str, Any] = {"ensure": "exists"} if force is False else {}
    properties |= {"template": place, "interpolate": True}
    if not place.endswith((".j2", ".jinja", ".jinja2")):
        properties["engine"] = "jinja"
    for name, default in (("lstrip_blocks", False), ("trim_blocks", True)):
        if (value := work.boolean(name, default=default)) is not default:
            work.remark(f"add `#jinja2: {name}: {value}` as the first line of the template")
    if (newline := work.raw("newline_sequence", default="\n")) not in ("\n", "\\n"):
        work.remark(f"add `#jinja2: newline_sequence: {newline!r}` as the first line of the template")
    encoding = work.text("output_encoding", default="utf-8")
    if encoding != "utf-8":
        properties["encoding"] = encoding
    if work.task.variables:
        work.remark("the template does not see the variables of the task. Add them to data")
    return [Resource("file", _absolute(target), {**properties, **_attributes(work), **_validate(work)})]


def _edit_attributes(work: Work, path: str) -> list[Resource]:
    """Return a resource for owner, group and mode of an edited file."""
    attributes = _attributes(work, is_required=False)
    return [Resource("file", path, {"create": False, **attributes})] if attributes else []


def _edit_name(work: Work, path: str, detail: str) -> str:
    """Return a name for an edit that is unique in a loop."""
    title = work.task.name
    if work.task.loop is None and title and not has_expression(title):
        return title
    return f"{path}: {detail}" if detail else path


def _note_place(work: Work, after: str | None, before: str | None, *, is_first: Any) -> None:
    """Note a place that differs: Puller inserts after the last match, or before the first match."""
    if before not in (None, "BOF") and is_first is not True:
        work.remark("a new line precedes the first match of insertbefore. Ansible uses the last match")
    elif before is None and after not in (None, "EOF") and is_first is not False:
        work.remark("a new line follows the last match of insertafter. firstmatch is not mapped")


def _host_entry(line: str, match: str | None) -> Resource | None:
    """Return the entry for a line of /etc/hosts, or ``None`` if the line must stay a line.

    The entry replaces all lines of its host. A pattern for the address selects lines of other hosts, and localhost has
    lines for several addresses.
    """
    words = re.findall(r"(?:{{.*?}}|[^\s{])+", line)
    if len(words) < 2 or "#" in line or "".join(words) != re.sub(r"\s+(?![^{]*}})", "", line):
        return None
    address, name, *aliases = words
    is_address = has_expression(address) or re.fullmatch(r"[0-9a-fA-F.:]+", address)
    is_name = has_expression(name) or re.fullmatch(r"[A-Za-z0-9_.-]+", name)
    plain = name.replace(".", r"\.")
    selects_name = match is None or (address not in match and (name in match or plain in match))
    if not is_address or not is_name or not selects_name or name.startswith("localhost"):
        return None
    return Resource("host_entry", name, {"address": address, **({"aliases": aliases} if aliases else {})})


_HOSTS: Final = "Lines of /etc/hosts are host entries. Other addresses of such a host are removed."
_EQUAL_LINE: Final = (
    "A line that the file contains already is kept. Ansible also changes the last match of `regexp`."
)


def lineinfile(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a line. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest", "destfile", "name")
    line, match = work.value("line", "value"), work.text("regexp", "regex")
    search, state = work.text("search_string"), work.text("state", default="present")
    create, references = work.boolean("create"), work.boolean("backrefs")
    after, before = work.text("insertafter"), work.text("insertbefore")
    _note_place(work, after, before, is_first=work.boolean("firstmatch", default=False))
    work.ignore("encoding")
    line = None if line is None else as_text(line)
    if search is not None:
        match = search if has_expression(search) else re.escape(search)
        if has_expression(search):
            work.remark("search_string is a pattern in the draft")
    if line is not None and "\n" in line.rstrip("\n"):
        raise Untranslatable("the line contains line breaks. Use a block")
    properties: dict[str, Any] = {"path": path}
    if state == "absent":
        if match is None and line is None:
            raise Untranslatable("line and regexp are missing")
        properties |= {"ensure": "absent", **({"match": match} if match is not None else {"line": line})}
    else:
        if line is None:
            raise Untranslatable("the line is missing")
        if has_expression(state):
            if references is True or after is not None or before is not None:
                raise Untranslatable("the state is variable, and the line has a place or references")
            properties["ensure"] = state
            if match is not None:
                work.remark("`absent` also removes lines that are equal to `line`")
        entry = _host_entry(line.strip(), match) if path == "/etc/hosts" and references is not True else None
        if entry is not None:
            work.context.draft.assume(_HOSTS)
            work.ignore("validate")
            return [entry, *_edit_attributes(work, path)]
        if match is not None and references is not True:
            work.context.draft.assume(_EQUAL_LINE)
        properties["line"] = line.rstrip("\n")
        properties |= {"match": match} if match is not None else {}
        properties |= {"back_references": True} if references is True else {}
        properties |= {"insert_after": after} if after not in (None, "EOF") and references is not True else {}
        properties |= (
            {"insert_before": before}
            if before is not None and after in (None, "EOF") and references is not True
            else {}
        )
    if create is True and state != "absent":
        properties["create"] = True
    properties |= _validate(work)
    edits = [Resource("line", _edit_name(work, path, str(match if match is not None else line)), properties)]
    return [*edits, *_edit_attributes(work, path)]


def blockinfile(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a block with the markers of Ansible. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest", "destfile", "name")
    content, state = work.text("block", "content", default=""), work.text("state", default="present")
    marker = work.text("marker", default="# {mark} ANSIBLE MANAGED BLOCK")
    begin, end = work.raw("marker_begin"), work.raw("marker_end")
    if begin not in (None, "BEGIN") or end not in (None, "END"):
        raise Untranslatable("marker_begin and marker_end are unsupported")
    work.ignore("encoding")
    for name in ("append_newline", "prepend_newline"):
        if work.boolean(name, default=False) is not False:
            work.remark(f"{name} is not mapped: the draft adds no empty line")
    create, after, before = work.boolean("create"), work.text("insertafter"), work.text("insertbefore")
    _note_place(work, after, before, is_first=False)
    properties: dict[str, Any] = {"path": path, "marker": marker}
    if state == "absent":
        properties["ensure"] = "absent"
    else:
        properties["content"] = content if str(content).endswith("\n") or not content else f"{content}\n"
        properties |= {"insert_after": after} if after not in (None, "EOF") else {}
        properties |= {"insert_before": before} if before is not None else {}
        properties |= {"create": True} if create is True else {}
    properties |= _validate(work)
    return [Resource("block", _edit_name(work, path, str(marker)), properties), *_edit_attributes(work, path)]


def replace(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a line whose pattern covers complete lines. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest", "destfile", "name")
    pattern, text = work.required("regexp"), work.text("replace", default="") or ""
    work.ignore("encoding", "backup")
    if work.raw("after", "before") is not None:
        raise Untranslatable("after and before are unsupported")
    if "\\n" in pattern or "\n" in text or "\\n" in text:
        raise Untranslatable("the pattern or its replacement spans several lines")
    if re.search(r"\\[sWD]|\[\^", pattern):
        work.remark("the pattern matches no line break in the draft")
    match, line = _complete_line(pattern, text)
    properties = {"path": path, "line": line, "match": match, "match_all": True, "back_references": True}
    properties |= _validate(work)
    return [Resource("line", _edit_name(work, path, pattern), properties), *_edit_attributes(work, path)]


def _complete_line(pattern: str, text: str) -> tuple[str, str]:
    """Return a pattern for complete lines, and the line with the replaced part. Raises ``Untranslatable``.

    Groups keep the parts of a line before and after the match. A line with a second match is out of sync after the
    edit, so Puller reports it.
    """
    starts, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    if starts and ends and "|" not in pattern:
        if not text:
            raise Untranslatable("the replacement is empty, which leaves an empty line")
        return pattern, text
    if re.search(r"\\(?:g<0>|0)", text):
        raise Untranslatable("the replacement refers to the complete match")
    if starts and "|" not in pattern:
        return f"^(?:{pattern[1:]})(?P<rest>.*)$", rf"{text}\g<rest>"
    if has_expression(pattern) or has_expression(text):
        raise Untranslatable("a pattern with expressions must start with ^")
    flags = re.match(r"\(\?[a-zA-Z]+\)", pattern)
    inner = pattern[flags.end() :] if flags else pattern
    if re.search(r"\\\d|\(\?P=|\(\?\(", inner) or (flags and re.search("[sxm]", flags[0])):
        raise Untranslatable("the pattern refers to its own groups, or has the flags m, s or x")
    shifted = re.sub(r"\\(?:g<(\d+)>|(\d+))", lambda group: rf"\g<{int(group[1] or group[2]) + 1}>", text)
    match = f"{flags[0] if flags else ''}^(?P<start>.*?)(?:{inner})(?P<rest>.*)$"
    return match, rf"\g<start>{shifted}\g<rest>"


_INACTIVE: Final = "A setting of an ini file leaves a commented line of its key. Ansible replaces that line."


def ini_file(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a setting of an ini file. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest")
    section, key = work.text("section"), work.text("option")
    value, state = work.value("value"), work.text("state", default="present")
    create, spaces = work.boolean("create", default=True), work.boolean("no_extra_spaces", default=False)
    work.ignore("exclusive", "follow", "ignore_spaces")
    if work.boolean("modify_inactive_option", default=True) is not False:
        work.context.draft.assume(_INACTIVE)
    if key is None:
        raise Untranslatable("a complete section is not a setting")
    if work.raw("values", "allow_no_value", "section_has_values") is not None:
        raise Untranslatable("several values of one key are unsupported. Use lines")
    properties: dict[str, Any] = {"path": path, "format": "ini", "section": section or None, "key": key}
    if state == "absent":
        properties["ensure"] = "absent"
    else:
        if value is None:
            raise Untranslatable("the value is missing")
        properties["value"] = as_text(value)
        properties |= {"create": True} if create is True else {}
        properties |= {"separator": "="} if spaces is True else {}
    name = _edit_name(work, path, f"{section or ''} {key}".strip())
    return [Resource("setting", name, properties), *_edit_attributes(work, path)]


def get_url(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a file from a URL. Raises ``Untranslatable``."""
    url, destination = work.required("url"), work.required("dest")
    checksum, force = work.text("checksum"), work.boolean("force", default=False)
    work.ignore(
        "timeout",
        "validate_certs",
        "use_proxy",
        "tmp_dest",
        "http_agent",
        "decompress",
        "thirsty",
        "backup",
    )
    for name in ("url_username", "url_password", "headers", "client_cert", "client_key"):
        if work.raw(name) is not None:
            raise Untranslatable(f"{name}: a file cannot use credentials. Use an archive, or an exec")
    url = with_scheme(url, work)
    if not url.startswith(("https://", "http://", "{{")):
        raise Untranslatable(f"the URL {url} is not supported")
    properties: dict[str, Any] = {"source": url}
    if force is not True and not checksum:  # an existing file stays, whatever its content
        properties = {"ensure": "exists", "source": url}
    if checksum:
        kind, digest = checksum.split(":", 1) if ":" in checksum else ("", checksum)
        if kind == "sha256" and not digest.startswith("http"):
            properties["checksum"] = digest
        else:
            work.remark("only a SHA-256 checksum is supported. Add it as `checksum`")
    else:
        work.context.draft.check(
            "Files from URLs lack a checksum in the source. Add `checksum` to verify them."
        )
    return [Resource("file", _absolute(_target(destination, url)), {**properties, **_attributes(work)})]


def unarchive(work: Work, _: list[Resource]) -> list[Resource]:
    """Return an archive from a URL. Raises ``Untranslatable``."""
    source, destination = work.required("src"), _path(work, "dest")
    creates = work.text("creates")
    work.ignore(
        "remote_src", "copy", "validate_certs", "list_files", "keep_newer", "decrypt", "io_buffer_size"
    )
    for name in ("extra_opts", "exclude", "include"):
        if work.raw(name):
            raise Untranslatable(f"{name} is unsupported. An archive is extracted as a whole")
    base = os.path.basename(source)
    source = with_scheme(source, work)
    if not source.startswith(("https://", "http://")) or not base.endswith(
        (".tar.gz", ".tgz", ".tar", ".zip")
    ):
        raise Untranslatable("an archive needs the URL of a .tar.gz, .tgz, .tar or .zip file")
    attributes = _attributes(work)
    if attributes.pop("mode", "xxx") != "xxx":
        work.remark("the mode is not mapped: extracted files have the modes of the archive")
    properties = {"url": source, "extract_parent": destination, "creates": creates, **attributes}
    work.context.draft.check("Archives lack a checksum in the source. Add `checksum` and `creates`.")
    return [Resource("archive", f"/var/cache/{base}", properties)]


def git(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return a checkout. A branch with updates follows the remote. Raises ``Untranslatable``."""
    for resource in resources:
        update = resource.properties.pop("update", True)
        revision = resource.properties.get("revision")
        if revision == "HEAD":
            del resource.properties["revision"]
        if update is True and (revision in (None, "HEAD", "main", "master")):
            resource.properties["ensure"] = "latest"
        elif update is True and not re.fullmatch(r"v?\d+(\.\d+)+|[0-9a-f]{7,40}", str(revision)):
            work.context.draft.check(
                f"The checkout {resource.name} keeps its commit. If {revision} is a branch, add `ensure: latest`."
            )
        if not resource.properties.get("url"):
            raise Untranslatable("the address is missing")
    return resources
