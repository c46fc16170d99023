"""Modules of Ansible whose arguments need more than a row of ``ansible.yaml``.

Each function takes the remaining arguments of a task, and returns its resources. It raises ``Untranslatable`` for a
task without an exact counterpart.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.expressions import Untranslatable, as_expression, has_expression
from puller.authoring.importing.tasks import (
    Unfinished,
    Work,
    as_text,
    boolean_of,
    mapped_value,
    mode_of,
    slug,
)

_OWNER: Final = (
    "Files without owner or group in the source belong to root. Files without a mode keep their mode (`xxx`)."
)
_CRON: Final = "the job moves to /etc/cron.d. Remove the old entry of the crontab from hosts that have it"
_PLAIN_COMMAND: Final = re.compile(r"[\w./:=@%+,\- {}\[\]'\"()|]*")


def _attributes(work: Work, *, is_required: bool = True) -> dict[str, Any]:
    """Return owner, group and mode. Without a value in the task, use the defaults of new files."""
    owner, group, mode = work.value("owner"), work.value("group"), work.raw("mode")
    mode = None if mode is None else mode_of(work.translated(mode))
    work.ignore("attributes", "attr", "unsafe_writes", "seuser", "serole", "setype", "selevel", "backup")
    if is_required:
        if owner is None or group is None:
            work.context.draft.assume(_OWNER)
        owner = _or(owner, "root")
        group = _or(group, "root")
        mode = _or(mode, "xxx")
    values = {"owner": owner, "group": group, "mode": mode}
    return {
        key: value if isinstance(value, str) else as_text(value)
        for key, value in values.items()
        if value is not None
    }


def _or(value: Any, default: str) -> Any:
    """Return a value or the default. ``default(omit)`` becomes ``default('root')``."""
    if value is None:
        return default
    if isinstance(value, str) and has_expression(value):
        return re.sub(r"default\(\s*none\s*(?=[,)])", f"default('{default}'", value)
    return value


def _path(work: Work, *names: str) -> str:
    path = work.required(*names)
    if path.startswith("~"):
        raise Untranslatable(f"the path {path} depends on the home of a user")
    if not path.startswith(("/", "{{")):
        raise Untranslatable(f"the path {path} is not absolute")
    return path if path == "/" else path.rstrip("/")


def _validate(work: Work) -> dict[str, Any]:
    command = work.text("validate")
    return {} if command is None else {"validate": command.replace("%s", "{}")}


# Packages.


def package(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the packages. A name can contain a version: ``nginx=1.24*``. Raises ``Untranslatable``."""
    result = []
    for resource in resources:
        properties = resource.properties
        purge = properties.pop("purge", None)
        if purge is True and properties.get("ensure") == "absent":
            properties["ensure"] = "purged"
        source = properties.get("source")
        if not resource.name and not source:
            work.remark("the task only refreshes the package lists, which Puller does itself")
            continue
        path = _with_scheme(source or resource.name, work)
        if re.match(r"(https?://|/)\S+\.(deb|rpm)$", path) or "://" in path:
            resource.name = slug(
                os.path.basename(path).partition("_")[0].removesuffix(".rpm").removesuffix(".deb")
            )
            properties["source"] = path
            if "://" in path:
                raise Untranslatable("the package comes from a URL, which needs `checksum`")
            work.remark("check the name of the package")
        if resource.name.startswith(("@", "^")):
            raise Untranslatable("groups of packages are not supported")
        if re.search(r"[*?]", resource.name.partition("=")[0]):
            raise Untranslatable("patterns of package names are not supported")
        name, separator, version = resource.name.partition("=")
        if separator and "{{" not in name:
            resource.name = name
            properties["ensure"] = version
            if version.endswith("*"):
                raise Untranslatable(f"the version {version} is a pattern. Write the complete version")
        if isinstance(properties.get("options"), dict):
            properties["options"] = {
                key: value for key, value in properties["options"].items() if value is not None
            }
        result.append(resource)
    return result


def debconf(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a package with an answer for debconf. Raises ``Untranslatable``."""
    name = work.required("name", "pkg")
    question = work.text("question", "setting", "selection")
    if question is None:
        raise Untranslatable("a query of debconf")
    answer = {
        "question": question,
        "type": work.required("vtype"),
        "value": work.text("value", "answer", default=""),
    }
    work.ignore("unseen")
    work.remark("Puller also installs the package")
    return [Resource("package", name, {"debconf": [answer]})]


def apt_repository(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a repository from a line of sources.list. Raises ``Untranslatable``."""
    line = work.required("repo")
    ensure = work.text("state", default="present")
    file = work.text("filename")
    work.ignore(
        "update_cache",
        "mode",
        "validate_certs",
        "update_cache_retries",
        "update_cache_retry_max_delay",
        "codename",
    )
    match = re.match(r"deb\s+(\[[^\]]*\]\s+)?((?:{{.*?}}|[^\s{])+)\s+(.*)", line)
    if match is None or line.startswith("ppa:"):
        raise Untranslatable(
            f"the line {line!r} is an invalid line of sources.list. Use `url`, `suites` and `components`"
        )
    options, url = match[1] or "", match[2]
    words = re.findall(r"(?:{{.*?}}|[^\s{}])+", match[3])
    name = _repository_name(file or re.sub(r"https?://|{{.*?}}", "", url))
    if ensure == "absent":
        return [Resource("repository", name, {"ensure": "absent"})]
    properties: dict[str, Any] = {"url": url, "suites": words[:1], "components": words[1:]}
    if key := re.search(r"signed-by=([^\s\]]+)", options):
        properties["key"] = key[1]
    if architectures := re.search(r"arch=((?:{{.*?}}|[^\s\]{}])+)", options):
        properties["architectures"] = architectures[1].split(",")
    return _with_key(work, name, properties)


def _repository_name(text: str) -> str:
    return slug(text.removesuffix(".list").removesuffix(".repo"))


def _with_key(work: Work, name: str, properties: dict[str, Any]) -> list[Resource]:
    resource = Resource("repository", name, properties)
    key = _with_scheme(str(properties.get("key", "")), work)
    if not key.startswith(("/", "{{", "-----")) and not str(properties.get("url", "")).startswith("file:"):
        properties["key"] = f"files/{name}.gpg"
        raise Unfinished(
            f"the signing key is not part of the source. Put it into files/{name}.gpg",
            [resource],
        )
    return [resource]


def deb822_repository(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a repository from its keys. Raises ``Untranslatable``."""
    name = _repository_name(work.required("name"))
    ensure = work.text("state", default="present")
    work.ignore("types", "mode", "install_python_debian", "pdiffs", "by_hash")
    url = work.value("uris")
    properties = {
        "url": url[0] if isinstance(url, list) and len(url) == 1 else url,
        "suites": _words(work.value("suites")),
        "components": _words(work.value("components")),
        "architectures": _words(work.value("architectures")),
        "key": work.text("signed_by"),
        "enabled": work.boolean("enabled"),
    }
    if ensure == "absent":
        return [Resource("repository", name, {"ensure": "absent"})]
    if not isinstance(properties["url"], str):
        raise Untranslatable("the repository has several addresses. Declare a repository for each address")
    return _with_key(work, name, {key: value for key, value in properties.items() if value is not None})


def _words(value: Any) -> Any:
    return (
        value.split()
        if isinstance(value, str) and not has_expression(value)
        else [value]
        if isinstance(value, str)
        else value
    )


def yum_repository(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a repository of dnf. Raises ``Untranslatable``."""
    name = _repository_name(work.required("name"))
    ensure = work.text("state", default="present")
    work.ignore(
        "description",
        "gpgcheck",
        "file",
        "reposdir",
        "repo_gpgcheck",
        "metadata_expire",
        "sslverify",
        "skip_if_unavailable",
    )
    work.ignore("async", "owner", "group", "mode", "sslcacert")
    if ensure == "absent":
        return [Resource("repository", name, {"ensure": "absent"})]
    url = work.text("baseurl")
    if url is None:
        raise Untranslatable("the repository lacks a baseurl. Lists of mirrors are not supported")
    key = (work.text("gpgkey") or "").removeprefix("file://")
    priority = work.value("priority")
    properties = {"url": url, "key": key or None, "enabled": work.boolean("enabled"), "priority": priority}
    return _with_key(work, name, {key: value for key, value in properties.items() if value is not None})


# Files.


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
    work.ignore("decrypt", "follow", "local_follow", "checksum", "directory_mode")
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
        return [Resource("file", _absolute(target), {**properties, **attributes})]
    target = _target(destination, origin)
    return [
        Resource(
            "file", _absolute(target), {**properties, "source": place, **_attributes(work), **_validate(work)}
        )
    ]


def _in_source(work: Work, path: str) -> str:
    return "/".join(part for part in (work.context.directory, path) if part)


def _absolute(path: str) -> str:
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
    work.ignore("follow", "trim_blocks", "newline_sequence", "output_encoding")
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
    if work.boolean("lstrip_blocks") is True:
        work.remark("add `#jinja2: lstrip_blocks: True` as the first line of the template")
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


def lineinfile(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a line. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest", "destfile", "name")
    line, match = work.value("line", "value"), work.text("regexp", "regex")
    search, state = work.text("search_string"), work.text("state", default="present")
    create, references = work.boolean("create"), work.boolean("backrefs")
    after, before = work.text("insertafter"), work.text("insertbefore")
    if work.boolean("firstmatch"):
        work.remark("firstmatch is not mapped: a new line follows the last match")
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
    elif has_expression(state):
        raise Untranslatable("the state is variable")
    else:
        if line is None:
            raise Untranslatable("the line is missing")
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
    work.ignore("append_newline", "prepend_newline", "encoding")
    create, after, before = work.boolean("create"), work.text("insertafter"), work.text("insertbefore")
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
    """Return a line for a pattern that matches complete lines. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest", "destfile", "name")
    pattern, text = work.required("regexp"), work.text("replace", default="") or ""
    work.ignore("encoding", "backup")
    if work.raw("after", "before") is not None:
        raise Untranslatable("after and before are unsupported")
    if not (pattern.startswith("^") and pattern.endswith("$") and not pattern.endswith("\\$")):
        raise Untranslatable(
            "the pattern can match parts of lines. Use a line with a pattern for the complete line"
        )
    if "\\n" in pattern or "\n" in text or not text:
        raise Untranslatable("the pattern or its replacement spans several lines")
    properties = {"path": path, "line": text, "match": pattern, "match_all": True, "back_references": True}
    properties |= _validate(work)
    return [Resource("line", _edit_name(work, path, pattern), properties), *_edit_attributes(work, path)]


def ini_file(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a setting of an ini file. Raises ``Untranslatable``."""
    path = _path(work, "path", "dest")
    section, key = work.text("section"), work.text("option")
    value, state = work.value("value"), work.text("state", default="present")
    create, spaces = work.boolean("create", default=True), work.boolean("no_extra_spaces", default=False)
    work.ignore("exclusive", "follow", "ignore_spaces", "modify_inactive_option")
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
    checksum = work.text("checksum")
    work.ignore(
        "timeout",
        "force",
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
    url = _with_scheme(url, work)
    if not url.startswith(("https://", "http://", "{{")):
        raise Untranslatable(f"the URL {url} is not supported")
    properties: dict[str, Any] = {"source": url}
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


def _with_scheme(url: str, work: Work) -> str:
    """Return a URL that starts with its scheme, if the default of its first variable shows the scheme."""
    match = re.match(r"{{ data\.(\w+) }}", url)
    known = str(work.context.known.get(match[1], "")) if match else ""
    scheme = re.match(r"https?://", known)
    if match is None or scheme is None:
        return url
    return f"{scheme[0]}{{{{ data.{match[1]} | regex_replace('^https?://', '') }}}}{url[match.end() :]}"


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
    source = _with_scheme(source, work)
    if not source.startswith(("https://", "http://")) or not base.endswith(
        (".tar.gz", ".tgz", ".tar", ".zip")
    ):
        raise Untranslatable("an archive needs the URL of a .tar.gz, .tgz, .tar or .zip file")
    attributes = _attributes(work)
    attributes.pop("mode", None)
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
        if not resource.properties.get("url"):
            raise Untranslatable("the address is missing")
    return resources


# Services and jobs.


def service(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the service. ``masked`` and ``enabled`` become one property. Raises ``Untranslatable``."""
    for resource in resources:
        properties = resource.properties
        if not resource.name:
            if set(work.task.arguments) <= {"daemon_reload", "daemon-reload", "daemon_reexec"}:
                return []
            raise Untranslatable("the name is missing")
        masked, state = properties.pop("masked", None), properties.get("ensure")
        if masked is True:
            if state == "running":
                raise Untranslatable("a masked service cannot run")
            properties |= {"ensure": "stopped", "enable": "masked"}
        elif state in ("restarted", "reloaded"):
            properties.pop("ensure")
            work.remark(
                f"the task reports `{state}` in every run. The draft only keeps the service running: use `subscribe`"
            )
        elif isinstance(state, str) and has_expression(state):
            pass
        elif state is None and "enable" not in properties:
            if masked is False:
                work.remark("Puller unmasks the service and starts it")
            else:
                raise Untranslatable("the task lacks a state")
        elif state is None:
            if properties["enable"] is False:
                properties["ensure"] = "stopped"
                work.remark("the source only disables the service. The draft also stops it")
            else:
                work.remark("the source only enables the service. The draft also starts it")
        if not re.fullmatch(r"(?:{{.*}}|[\w.:+~@\\-])+", resource.name):
            raise Untranslatable(f"{resource.name!r} is an invalid name of a service")
    return [_unit(resource) for resource in resources]


def _unit(resource: Resource) -> Resource:
    """Return a command for a unit that is not a service, such as a timer."""
    name, properties = resource.name, resource.properties
    if not name.endswith((".timer", ".socket", ".target", ".mount", ".path", ".slice")):
        return resource
    enable, state = properties.get("enable"), properties.get("ensure")
    if enable == "masked":
        guard = f"systemctl is-enabled {name} | grep -qx masked"
        return Resource("exec", f"systemctl mask --now {name}", {"provider": "shell", "unless": guard})
    if enable is True or (enable is None and state == "running"):
        verb = "enable --now" if enable else "start"
        tests = [f"systemctl is-active -q {name}", *([f"systemctl is-enabled -q {name}"] if enable else [])]
        return Resource(
            "exec", f"systemctl {verb} {name}", {"provider": "shell", "unless": " && ".join(tests)}
        )
    if enable is False or (enable is None and state == "stopped"):
        verb = "disable --now" if enable is False else "stop"
        tests = [
            f"systemctl is-active -q {name}",
            *([f"systemctl is-enabled -q {name}"] if enable is False else []),
        ]
        return Resource(
            "exec", f"systemctl {verb} {name}", {"provider": "shell", "onlyif": " || ".join(tests)}
        )
    raise Untranslatable(f"{name} is not a service: use an exec with `systemctl` and a guard")


def mount(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the mount. Swap has no mount point. Raises ``Untranslatable``."""
    for resource in resources:
        if not resource.name.startswith(("/", "{{")) or resource.properties.get("type") == "swap":
            raise Untranslatable("swap is not a mount. Use an exec with a guard that reads `swapon --show`")
    return resources


_FIELDS: Final = ("minute", "hour", "day", "month", "weekday")


def cron(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a job in /etc/cron.d. Raises ``Untranslatable``."""
    name, state = work.required("name"), work.text("state", default="present")
    if work.boolean("env") is True:
        raise Untranslatable("variables of a crontab belong to `environment` of its jobs")
    special, command = work.text("special_time"), work.text("job", "value")
    user, file = work.text("user", default="root"), work.text("cron_file")
    disabled = work.boolean("disabled", default=False)
    fields = [
        _field(work.text(field, *({"weekday": ("dow",), "day": ("dom",)}.get(field, ())), default="*") or "*")
        for field in _FIELDS
    ]
    work.ignore("backup", "insertafter", "insertbefore")
    identity = _cron_name(os.path.basename(file) if file and not has_expression(file) else name)
    if has_expression(str(state)) or disabled not in (True, False):
        raise Untranslatable("the state is variable")
    if state == "absent" or disabled is True:
        return [Resource("cron", identity, {"ensure": "absent"})]
    if command is None:
        raise Untranslatable("the command is missing")
    if "\n" in command.strip():
        raise Untranslatable("the command has several lines")
    schedule = f"@{special}" if special else " ".join(fields)
    if not file:
        work.remark(_CRON)
    properties = {"schedule": schedule, "command": command.strip(), "user": user}
    return [Resource("cron", identity, {key: value for key, value in properties.items() if value != "root"})]


def _field(text: str) -> str:
    return re.sub(r"\s", "", text) if not has_expression(text) else text


def _cron_name(text: str) -> str:
    parts = re.split(r"({{.*?}})", text)
    clean = [part if part.startswith("{{") else re.sub(r"[^A-Za-z0-9_-]+", "-", part) for part in parts]
    return "".join(clean).strip("-") or "job"


# Accounts.


def user(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the user. Without ``append``, the list of groups is complete."""
    for resource in resources:
        properties = resource.properties
        append = properties.pop("append", False)
        if properties.get("groups") == [] and append is True:
            del properties["groups"]
        if "groups" in properties and append is False:
            properties["membership"] = "inclusive"
        elif "groups" in properties and append is not True:
            properties["membership"] = f"{{{{ 'minimum' if {append[2:-2].strip()} else 'inclusive' }}}}"
        if properties.pop("update_password", None) == "on_create" and "password" in properties:
            work.remark("update_password is on_create: the draft always sets the password")
        if "group" in properties:
            properties["group"] = as_text(properties["group"])
    return resources


def authorized_key(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the user with its keys. Raises ``Untranslatable``."""
    name, key = work.required("user"), work.raw("key")
    state, exclusive = work.text("state", default="present"), work.boolean("exclusive")
    options = work.text("key_options")
    work.ignore("manage_dir", "validate_certs", "comment", "follow")
    if work.raw("path") is not None:
        raise Untranslatable("a path of the keys is unsupported. Declare the complete file")
    if state != "present":
        raise Untranslatable("single keys are not removed. Use `exclusive_keys`")
    if not isinstance(key, (str, list)) or (isinstance(key, str) and key.startswith("http")):
        raise Untranslatable("the key comes from a URL. Put it into data")
    if isinstance(key, list):
        keys: Any = work.translated(key)
    elif has_expression(key):
        expression = as_expression(key, work.names)
        keys = f"{{{{ ({expression}).splitlines() | select | list }}}}"
    else:
        keys = [line for line in key.splitlines() if line.strip()]
    if options:
        if not isinstance(keys, list):
            raise Untranslatable(
                "key_options with keys from a variable. Write the options in front of the key"
            )
        keys = [f"{options} {line}" for line in keys]
    properties: dict[str, Any] = {"authorized_keys": keys}
    if exclusive is True:
        properties["exclusive_keys"] = True
    return [Resource("user", name, properties)]


# The system.


def hostname(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a command that sets the host name."""
    name = work.required("name")
    work.ignore("use")
    command = f"hostnamectl set-hostname {name}"
    guard = f'test "$(hostname)" = {name}'
    return [Resource("exec", command, {"provider": "shell", "unless": guard})]


def timezone(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the link of the time zone."""
    name = work.required("name")
    work.ignore("hwclock")
    work.remark("/etc/timezone is not written")
    return [Resource("link", "/etc/localtime", {"target": f"/usr/share/zoneinfo/{name}", "force": True})]


def seboolean(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a command that sets a boolean of SELinux. Raises ``Untranslatable``."""
    name, state = work.required("name"), work.boolean("state")
    persistent = work.boolean("persistent", default=False)
    work.ignore("ignore_selinux_state")
    if state not in (True, False):
        raise Untranslatable("the state is variable")
    word = "on" if state else "off"
    command = f"setsebool {'-P ' if persistent else ''}{name} {word}"
    return [
        Resource(
            "exec", command, {"provider": "shell", "unless": f"getsebool {name} | grep -q -- '--> {word}$'"}
        )
    ]


def firewalld(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a command for a permanent rule of firewalld. Raises ``Untranslatable``."""
    zone, state = work.text("zone"), work.text("state", default="enabled")
    immediate = work.boolean("immediate", default=False)
    work.boolean("permanent")
    work.ignore("offline", "timeout")
    kinds = [
        kind
        for kind in ("service", "port", "source", "interface", "rich_rule", "masquerade")
        if kind in work.arguments
    ]
    if len(kinds) != 1 or state not in ("enabled", "disabled") or kinds == ["masquerade"]:
        raise Untranslatable("use an exec: `firewall-cmd` with a guard")
    value = work.required(kinds[0])
    kind = kinds[0].replace("_", "-")
    option = f"--{{}}-{kind}={shlex.quote(value) if not has_expression(value) else value}"
    start = f"firewall-cmd --permanent{f' --zone={zone}' if zone else ''}"
    verb, guard = ("add", "unless") if state == "enabled" else ("remove", "onlyif")
    command = f"{start} {option.format(verb)}"
    properties = {"provider": "shell", guard: f"{start} {option.format('query')}"}
    if immediate is True:
        properties["command"] = f"{command} && firewall-cmd --reload"
    return [Resource("exec", command, properties)]


# Commands.


def command(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a command with its guards. Raises ``Untranslatable``."""
    task = work.task
    text = work.translated(task.command)
    work.ignore(
        "cmd", "_raw_params", "argv", "warn", "stdin_add_newline", "strip_empty_ends", "expand_argument_vars"
    )
    if not text.strip():
        raise Untranslatable("the command is empty")
    shell = task.module != "command"
    executable = work.text("executable")
    properties: dict[str, Any] = {}
    title = task.name if task.name and not has_expression(task.name) and task.loop is None else ""
    if executable and not executable.endswith("/sh"):
        if has_expression(text) and re.search(r"['\\]", text):
            raise Untranslatable(f"the command needs {executable} and contains quotes. Put it into a script")
        inner = f"'{text}'" if has_expression(text) else shlex.quote(text.strip())
        text, shell = f"{executable} -c {inner}", False
    if shell:
        properties["provider"] = "shell"
    name = title or " ".join(text.split())
    if title or "\n" in text:
        properties["command"] = text.strip() if "\n" not in text.strip() else text
    properties["cwd"] = work.text("chdir")
    properties["creates"] = work.text("creates")
    removes = work.text("removes")
    if removes:
        properties["onlyif"] = f"test -e {removes}"
    stdin = work.text("stdin")
    if stdin is not None:
        properties["stdin"] = stdin
    if task.name == "" and len(name) > 120:
        properties = {"command": text.strip(), **properties}
        name = f"{name[:60].rsplit(' ', 1)[0]} …" if not has_expression(name) else name
    properties = {key: value for key, value in properties.items() if value is not None}
    resource = Resource("exec", name, properties)
    return [resource]


def from_command(row: Mapping[str, Any], work: Work) -> list[Resource]:
    """Return commands from the templates of a row. Raises ``Untranslatable``."""
    states = row["command"]
    defaults = dict(row.get("defaults", {}))
    state = work.text("state", default=str(defaults.pop("state", "present")))
    if state == "latest" and "present" in states:
        work.remark("the state latest is mapped to present")
        state = "present"
    if has_expression(str(state)) or state not in states:
        raise Untranslatable(f"state is {state!r}. Use an exec with a guard")
    work.ignore(*row.get("ignored", ()))
    for name, expected in row.get("needs", {}).items():
        if boolean_of(work.raw(name)) is not expected:
            raise Untranslatable(f"only {name}: {str(expected).lower()} is mapped")
    templates = states[state]
    fields = set(re.findall(r"{(\w+)(?::plain)?}", " ".join(templates.values())))
    values = {field: work.raw(field, default=defaults.get(field)) for field in fields}
    missing = sorted(field for field, value in values.items() if value is None)
    if missing:
        raise Untranslatable(f"the argument {missing[0]} is missing. Use an exec with a guard")
    each = row.get("each")
    variants: list[Any] = [values[each]] if each else [None]
    loop = ""
    if each:
        value = values[each]
        if isinstance(value, str) and not has_expression(value):
            variants = [part.strip() for part in value.split(",") if part.strip()]
        elif isinstance(value, list):
            variants = [item.get("name") if isinstance(item, dict) else item for item in value]
        if any(not isinstance(item, (str, int, float)) for item in variants):
            raise Untranslatable(f"the argument {each} is not a list of names")
    properties = {"provider": row["provider"]} if "provider" in row else {}
    resources = []
    for variant in variants:
        filled = {**values, **({each: variant} if each else {})}
        lines = {key: _filled(template, filled, work) for key, template in templates.items()}
        name = lines.pop("command")
        resources.append(Resource("exec", name, {**properties, **lines}, loop))
    version = work.raw("version")
    if version is not None:
        work.remark(f"the version is not mapped: {version}")
    return resources


def _filled(template: str, values: Mapping[str, Any], work: Work) -> str:
    def replaced(match: re.Match[str]) -> str:
        text = as_text(work.translated(values[match[1]]))
        return text if match[2] or has_expression(text) else shlex.quote(text)

    return re.sub(r"{(\w+)(:plain)?}", replaced, template)


FUNCTIONS: Final[Mapping[str, Callable[[Work, list[Resource]], list[Resource]]]] = {
    function.__name__: function
    for function in (
        *(package, debconf, apt_repository, deb822_repository, yum_repository),
        *(file, copy, template, lineinfile, blockinfile, replace, ini_file, get_url, unarchive, git),
        *(service, mount, cron, user, authorized_key, hostname, timezone, seboolean, firewalld, command),
    )
}
