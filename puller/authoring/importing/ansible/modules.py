"""Modules of Ansible whose arguments need more than a row of ``modules.yaml``, by the name in a row.

``package_modules.py`` and ``file_modules.py`` have the modules for packages and files. This module has all others.

Each function takes the remaining arguments of a task, and returns its resources. It raises ``Untranslatable`` for a
task without an exact counterpart.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from puller.authoring.importing.ansible.file_modules import (
    blockinfile,
    copy,
    file,
    get_url,
    git,
    ini_file,
    lineinfile,
    replace,
    template,
    unarchive,
)
from puller.authoring.importing.ansible.jinja_expressions import as_expression, has_expression
from puller.authoring.importing.ansible.package_modules import (
    apt_repository,
    deb822_repository,
    debconf,
    package,
    yum_repository,
)
from puller.authoring.importing.ansible.tasks import Work, as_text, boolean_of
from puller.authoring.importing.draft import Draft, Resource
from puller.authoring.importing.written_expressions import Untranslatable

_CRON: Final = "the job moves to /etc/cron.d. Remove the old entry of the crontab from hosts that have it"


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
    return [_as_command(resource) for resource in resources]


def _as_command(resource: Resource) -> Resource:
    """Return a command for a unit that is not a service, such as a timer. Services stay. Raises ``Untranslatable``."""
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
            raise Untranslatable("swap is not a mount. Declare a swap file with `swap`")
    return resources


def alternative(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the alternative. The module's state ``auto`` is a property, and its default priority is 50."""
    del work
    for resource in resources:
        properties = resource.properties
        if properties.get("ensure") == "absent":
            for name in ("path", "link", "priority"):
                properties.pop(name, None)
            continue
        is_auto = properties.pop("ensure", None) == "auto"
        if "link" in properties:
            properties.setdefault("priority", 50)
        else:
            properties.pop("priority", None)
            if is_auto:
                properties.pop("path", None)
        if is_auto:
            properties["auto"] = True
    return resources


def dpkg_divert(work: Work, resources: list[Resource]) -> list[Resource]:
    """Return the diversion. The module moves no file by default, and ``LOCAL`` names no package."""
    del work
    for resource in resources:
        properties = resource.properties
        if properties.get("package") == "LOCAL":
            properties.pop("package")
        if properties.get("ensure") == "absent":
            properties.pop("to", None)
            properties.pop("package", None)
        if properties.setdefault("rename", False) is True:
            properties.pop("rename")
    return resources


_SCHEDULE_FIELDS: Final = ("minute", "hour", "day", "month", "weekday")


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
        for field in _SCHEDULE_FIELDS
    ]
    work.ignore("backup", "insertafter", "insertbefore")
    identity = _cron_name(os.path.basename(file) if file and not has_expression(file) else name)
    if disabled not in (True, False):
        raise Untranslatable("disabled is variable")
    if state == "absent" or disabled is True:
        return [Resource("cron", identity, {"ensure": "absent"})]
    if command is None:
        raise Untranslatable("the command is missing")
    if re.search(r"(?<!\\)%", command):
        work.remark("`%` is a percent sign in the draft. In a crontab, it ends the command")
    if "\n" in command.strip():
        raise Untranslatable("the command has several lines")
    schedule = f"@{special}" if special else " ".join(fields)
    if not file:
        work.remark(_CRON)
    properties = {"schedule": schedule, "command": command.strip(), "user": user}
    if has_expression(state):
        properties = {"ensure": state, **properties}
    return [Resource("cron", identity, {key: value for key, value in properties.items() if value != "root"})]


def _field(text: str) -> str:
    """Return a field of a schedule without spaces."""
    return re.sub(r"\s", "", text) if not has_expression(text) else text


def _cron_name(text: str) -> str:
    """Return a text as a valid file name in /etc/cron.d."""
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
        if properties.get("system") not in (None, False) and properties.get("ensure") != "absent":
            properties.setdefault("manage_home", True)  # the default of the module, also for a system user
        if "group" in properties:
            properties["group"] = as_text(properties["group"])
    return resources


def known_hosts(work: Work, _: list[Resource]) -> list[Resource]:
    """Return a line with the key of a host. Raises ``Untranslatable``."""
    name, state = work.required("name", "host"), work.text("state", default="present")
    key, path = work.text("key"), work.text("path")
    if path is None:
        if work.task.become_user not in ("", "root"):
            raise Untranslatable("the path depends on the home of a user")
        path = "/root/.ssh/known_hosts"
    if not path.startswith(("/", "{{")):
        raise Untranslatable(f"the path {path} depends on the home of a user")
    if work.boolean("hash_host", default=False) is not False:
        work.remark("the draft writes the name of the host without a hash")
    if has_expression(name) or has_expression(str(state)):
        raise Untranslatable("the name or state is variable. Use a line with a pattern for the name")
    of_host = rf"^(?:\S+,)?{re.escape(name)}(?:,\S+)? "
    if state == "absent":
        return [Resource("line", f"{path}: {name}", {"path": path, "ensure": "absent", "match": of_host})]
    if key is None:
        raise Untranslatable("the argument key is missing")
    words = key.split()
    if has_expression(key) or len(words) < 3:
        work.remark("the line replaces keys of the host with another type too")
    else:
        of_host += f"{re.escape(words[1])} "
    properties = {"path": path, "line": key.strip(), "match": of_host, "create": True}
    return [Resource("line", f"{path}: {name}{'' if has_expression(key) else f' {words[1]}'}", properties)]


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


def keep_guards_of_declared_files(draft: Draft) -> None:
    """Turn off the second check of ``creates``, if another resource creates the path.

    Ansible skips the command if the path exists. Puller also requires that the command creates it.
    """
    resources = [resource for manifest in draft.manifests.values() for resource in manifest.resources]
    declared = {
        resource.name for resource in resources if resource.type in ("file", "link") and not resource.disabled
    }
    for resource in resources:
        if resource.type == "exec" and resource.properties.get("creates") in declared:
            resource.properties["recheck"] = False


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
    """Return a template of a command with its values, quoted for a shell unless the field is ``plain``."""

    def replaced(match: re.Match[str]) -> str:
        text = as_text(work.translated(values[match[1]]))
        return text if match[2] or has_expression(text) else shlex.quote(text)

    return re.sub(r"{(\w+)(:plain)?}", replaced, template)


FUNCTIONS: Final[Mapping[str, Callable[[Work, list[Resource]], list[Resource]]]] = {
    function.__name__: function
    for function in (
        *(package, debconf, apt_repository, deb822_repository, yum_repository),
        *(file, copy, template, lineinfile, blockinfile, replace, ini_file, get_url, unarchive, git),
        *(service, mount, alternative, dpkg_divert, cron, user, authorized_key, known_hosts),
        *(seboolean, firewalld, command),
    )
}
"""Functions by the key ``function`` of a row."""
