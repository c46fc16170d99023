"""Modules of Ansible for packages and their repositories.

Each function takes the remaining arguments of a task, and returns its resources. It raises ``Untranslatable`` for a
task without an exact counterpart.
"""

import os
import re
from typing import Any, Final

from puller.authoring.importing.ansible.jinja_expressions import has_expression
from puller.authoring.importing.ansible.tasks import Unfinished, Work, with_scheme
from puller.authoring.importing.draft import Resource, slug
from puller.authoring.importing.written_expressions import Untranslatable


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
        path = with_scheme(source or resource.name, work)
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
    """Return the name of a repository from the name of its file or from its URL."""
    return slug(text.removesuffix(".list").removesuffix(".repo"))


_FILES: Final = (
    "Repositories are in NAME.sources or NAME.repo. A file with another name that Ansible wrote before stays."
)


def _with_key(work: Work, name: str, properties: dict[str, Any]) -> list[Resource]:
    """Return the repository. Raises ``Unfinished`` if the source lacks the signing key."""
    resource = Resource("repository", name, properties)
    work.context.draft.assume(_FILES)
    key = with_scheme(str(properties.get("key", "")), work)
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
    work.ignore("mode", "install_python_debian", "pdiffs", "by_hash")
    if _words(work.value("types", default="deb")) != ["deb"]:
        work.remark("only binary packages (`deb`) are mapped")
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
    """Return a list of words. A text with an expression is one word."""
    if not isinstance(value, str):
        return value
    return [value] if has_expression(value) else value.split()


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
