"""Types of Puppet for packages, services, commands, jobs and accounts.

Each function takes the attributes of one declaration, and returns its resources. It raises ``Untranslatable`` for a
resource without an exact counterpart.
"""

import re
import shlex
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.puppet.attributes import (
    Unfinished,
    Work,
    as_text,
    expression_of,
    has_expression,
    needs_shell,
)
from puller.authoring.importing.puppet.language.syntax import HashLiteral, ListLiteral, Literal, Node
from puller.authoring.importing.puppet.puppet_expressions import Scope
from puller.authoring.importing.written_expressions import Untranslatable, grouped

# Software.


_RECHECK: Final = (
    "A command fails if its `creates` or `unless` still requires it afterwards. Puppet would run it in each run. "
    "With `recheck: false`, Puller does too"
)


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
        if expression_of(source) is not None:
            # Without a value, Puppet installs the package of a repository.
            del resource.properties["source"]
            work.remark("a variable source is not mapped. Write a path or a URL, if you use one")
        elif isinstance(source, str) and source.startswith("http"):
            work.remark("a package from a URL requires `checksum`")
    return resources


def yumrepo(work: Work, _: list[Resource]) -> list[Resource]:
    """Return the repository with a proposal for its key. Raises ``Untranslatable``."""
    name, ensure = work.title, work.value("ensure")
    if ensure == "absent":
        work.attributes.clear()
        return [Resource("repository", name, {"ensure": "absent"})]
    work.ignore("descr", "metadata_expire", "target", "type", "assumeyes", "repo_gpgcheck")
    for check in ("gpgcheck", "sslverify"):
        if str(work.value(check)).lower() in ("0", "false", "no"):
            work.remark(f"{check} is not mapped: Puller always verifies signatures and certificates")
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
    work.ignore("comment", "notify_update", "keyring")
    if work.flag("allow_unsigned") is True:
        work.remark("allow_unsigned is not mapped: Puller requires a key")
    if isinstance(include := work.raw("include"), HashLiteral) and "'src': True" in str(
        work.scope.value(include)
    ):
        work.remark("include of sources is not mapped")
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


def alternative(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the selection of a program. Raises ``Untranslatable``."""
    for resource in resources:
        path = resource.properties.get("path")
        if path == "auto":
            resource.properties = {"auto": True}
        elif not path:
            raise Untranslatable("the path is missing")
    return resources


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
    if "creates" in properties or "unless" in properties:
        work.scope.draft.assume(_RECHECK)
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
    pause = work.value("try_sleep")
    if tries not in (None, 1, "1"):
        names = "tries and try_sleep are" if pause is not None else "tries is"
        work.remark(f"{names} not mapped: a failed command runs again in the next run")
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
