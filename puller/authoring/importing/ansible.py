"""Roles, playbooks and repositories of Ansible as the draft of one bundle.

1. Read the variables of all sources, by precedence.
2. Read each role: each file of tasks becomes a manifest, and includes become children.
3. Move variables that tasks set (``set_fact``) and facts that templates name into the data of the manifest.
4. Divide the variables: the Hiera tree keeps plain values and references. The manifest keeps other expressions.
5. Add handlers as subscribers, and a test case for each system.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, TemplateError, meta

from hiera.errors import HieraError
from puller.authoring.importing.draft import (
    Draft,
    ManifestDraft,
    Origin,
    Outcome,
    Remark,
    Resource,
    document_text,
    merge_alternatives,
    printable,
    separate_manifests,
    unique_names,
)
from puller.authoring.importing.expressions import (
    Names,
    Untranslatable,
    all_of,
    as_expression,
    conditions_of,
    conjuncts,
    has_expression,
    translate_condition,
    translate_value,
)
from puller.authoring.importing.mapping import KEYWORDS, TaskMapper, add_handlers
from puller.authoring.importing.reading import (
    VAULT_HEADER,
    Document,
    Secrets,
    SourceTree,
    UnsafeText,
    VaultError,
    VaultText,
    decrypt_vault,
)
from puller.authoring.importing.tasks import RoleContext, Task, Work, slug, table
from puller.errors import SourceError
from puller.values.host_name import WANTED, is_host_name

_INCLUDES: Final = frozenset({"include_tasks", "import_tasks", "include"})
_ROLES: Final = frozenset({"include_role", "import_role"})
_INHERITED: Final = ("become_user", "no_log", "ignore_errors", "delegate_to", "run_once")
_BLOCK: Final = frozenset({"block", "rescue", "always"})
_FREE_FORM: Final = frozenset({"command", "shell", "raw", "script"})
_FREE_ARGUMENTS: Final = frozenset({"creates", "removes", "chdir", "executable", "warn", "stdin"})
_GATHERED: Final = {"service_facts": "services", "package_facts": "packages"}
"""Variables that a module sets, by the module."""
_PARTS_LIMIT: Final = 1000
"""Maximum expressions and texts in a value of the Hiera tree."""
_INCLUDE_DEPTH: Final = 20
_SPLIT: Final = re.compile(r"((?:{{.*?}}|\"[^\"]*\"|'[^']*'|[^\s])+)")
_PLATFORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "debian": ("debian-12", "debian-13"),
    "ubuntu": ("ubuntu-22.04", "ubuntu-24.04"),
    "el": ("rocky-9",),
    "enterpriselinux": ("rocky-9",),
    "rocky": ("rocky-9",),
    "centos": ("rocky-9",),
    "redhat": ("rocky-9",),
    "fedora": ("fedora-43",),
}
_PROPER_NAMES: Final = {
    name.lower(): name
    for name in (
        "Debian",
        "RedHat",
        "Ubuntu",
        "Fedora",
        "CentOS",
        "Rocky",
        "AlmaLinux",
        "OracleLinux",
        "Suse",
        "Archlinux",
        "Alpine",
        "Amazon",
    )
}
_TEMPLATE_NAMES: Final = frozenset(
    {
        "facts",
        "data",
        "environ",
        "lookup",
        "query",
        "q",
        "range",
        "dict",
        "undef",
        "omit",
        "now",
        "item",
        "loop",
    }
    | {"hostvars", "groups", "group_names", "inventory_hostname", "cycler", "joiner", "namespace", "lipsum"}
    | {"role_name", "role_path", "playbook_dir", "template_path", "template_host", "template_uid", "vars"}
)
"""Names of templates that are not variables of the role."""
_MANAGED: Final = "Managed by Puller"
_ALWAYS_PRESENT: Final = (
    "facts.os.name",
    "facts.os.family",
    "facts.os.release",
    "facts.os.hardware",
    "facts.kernel",
    "facts.networking.hostname",
    "facts.networking.fqdn",
)
_SYSTEM_PATHS: Final[Mapping[str, str]] = {
    "facts.os.family": "%{facts.os.family}",
    "facts.os.name": "%{facts.os.name}",
    "facts.os.release.major.split('.')[0]": "%{facts.os.release.major}",
    "(facts.os.release.major.split('.')[0])": "%{facts.os.release.major}",
    "facts.os.release.full": "%{facts.os.release.full}",
    "facts.os.release.full.split('.')[0]": "%{facts.os.release.major}",
    "facts.os.release.full.split('.').0": "%{facts.os.release.major}",
    "facts.os.distro.codename": "%{facts.os.distro.codename}",
    "facts.os.hardware": "%{facts.os.hardware}",
    "facts.kernel": "%{facts.kernel}",
}
"""Interpolations of a Hiera path by an expression of the manifest."""


class Level(msgspec.Struct):
    """One level of variables: a Hiera path, and its files."""

    name: str
    path: str
    files: dict[str, dict[str, Any]] = {}
    """Variables by the path in ``data``."""
    section: str = ""
    """Expression of the entry in ``hierarchy.order``, for variables of the manifest."""
    mapped: str = ""
    """The ``mapped_paths`` of a level with several files."""


class _Definition(msgspec.Struct, frozen=True):
    """A variable after one ``set_fact``."""

    combined: str
    """The expression with all earlier definitions."""
    plain: Any
    """The translated value, if it has neither a condition nor an earlier value."""
    is_default: bool
    """Whether the task runs only if the variable is undefined."""
    is_partial: bool
    """Whether systems exist without a value."""


def import_ansible(source: Path, name: str, secrets: Secrets | None = None) -> Draft:
    """Return the draft for a role, a playbook or a repository. Raises ``SourceError``.

    ``secrets`` converts values of Vault. Without it, they are left out.
    """
    if source.is_file():
        importer = _Importer(SourceTree(source.parent), Draft(name, "ansible"), secrets)
        importer.add_repository([source.name])
    else:
        tree = SourceTree(source)
        importer = _Importer(tree, Draft(name, "ansible"), secrets)
        if _is_role(tree, ""):
            importer.add_role("", "", Path(tree.root).name)
        else:
            importer.add_repository(_playbooks(tree))
    return importer.finished()


def _is_role(tree: SourceTree, directory: str) -> bool:
    return any(
        tree.is_file("/".join(filter(None, [directory, folder, f"main.{ending}"])))
        for folder in ("tasks", "handlers", "meta", "defaults")
        for ending in ("yml", "yaml")
    )


def _playbooks(tree: SourceTree) -> list[str]:
    names = []
    for name in sorted(path.name for path in tree.root.iterdir()):
        if name.endswith((".yml", ".yaml")) and tree.is_file(name):
            document = tree.find_document(name)
            plays = document.value if document else None
            if isinstance(plays, list) and any(isinstance(play, dict) and "hosts" in play for play in plays):
                names.append(name)
    return names


class _Importer:
    """The state of one import."""

    def __init__(self, tree: SourceTree, draft: Draft, secrets: Secrets | None) -> None:
        self.secrets = secrets
        self.tree = tree
        self.draft = draft
        self.names = Names(
            facts=table()["facts"],
            constants={
                "inventory_hostname": "facts.networking.fqdn",
                "inventory_hostname_short": "facts.networking.hostname",
                "ansible_host": "facts.networking.fqdn",
                "ansible_check_mode": "false",
                "ansible_user": "'root'",
                "ansible_user_id": "'root'",
                "ansible_managed": f"'{_MANAGED}'",
                "group_names": "lookup('facts.groups', [])",
            },
        )
        self.common = Level("defaults", "common.yaml", {"common.yaml": {}})
        self.everywhere = Level("all hosts", "all.yaml")
        self.groups = Level(
            "groups", "groups/%{group}.yaml", mapped="[facts.groups, group, 'groups/%{group}.yaml']"
        )
        self.hosts = Level("host", "hosts/%{trusted.certname}.yaml")
        self.variables = Level("variables of roles", "vars.yaml")
        self.systems: list[Level] = []
        self.top = ManifestDraft("manifest.yaml")
        self.draft.manifests["manifest.yaml"] = self.top
        self.contexts: dict[str, RoleContext] = {}
        self.handlers: list[tuple[RoleContext, ManifestDraft, list[Task]]] = []
        self.tests: dict[str, None] = {}
        self.registered: dict[str, Task] = {}
        self.facts_set: dict[str, list[_Definition]] = {}
        self.notified: dict[str, list[str]] = {}
        self.unmapped_notifications: set[str] = set()
        self.services: list[Resource] = []
        self.labels: set[str] = set()
        self.results: dict[str, list[Resource]] = {}
        self.consumed: set[str] = set()

    # Repositories.

    def add_repository(self, playbooks: Sequence[str]) -> None:
        """Add all playbooks, with their roles and the inventory."""
        self._add_inventory()
        if not playbooks:
            for role in self._role_directories():
                self._apply_role(role.rpartition("/")[2], self.top, [])
            if not self.contexts:
                raise SourceError(f"{self.tree.root}: lacks tasks/main.yml, playbooks and roles")
            return
        for name in playbooks:
            document = self.tree.find_document(name)
            if document is None:
                self._reject(name)
                continue
            for index, play in enumerate(document.value if isinstance(document.value, list) else []):
                if isinstance(play, dict):
                    self._add_play(document, index, play)

    def _values(self, document: Document) -> dict[str, Any]:
        """Return the variables of a document, with values of Vault converted or left out."""
        if isinstance(document.value, str) and document.value.startswith(VAULT_HEADER):
            return self._values_of_vault(document)
        values = _octal_kept(document)
        return {key: self._converted(value, f"{document.name}: {key}") for key, value in values.items()}

    def _values_of_vault(self, document: Document) -> dict[str, Any]:
        if self.secrets is None:
            self.draft.check(f"{document.name} is encrypted by Vault, and is left out.")
            return {}
        try:
            text = decrypt_vault(document.value.replace(" ", "\n"), self.secrets.password)
            inner = Document(document.name, text).value
        except (VaultError, HieraError):
            self.draft.check(
                f"{document.name} is left out: the password of the vault is wrong, or it is damaged."
            )
            return {}
        return _encrypted_values(inner, self.secrets) if isinstance(inner, dict) else {}

    def _converted(self, value: Any, place: str) -> Any:
        if isinstance(value, VaultText) and self.secrets is not None:
            try:
                return EncryptedText(self.secrets.converted(value.text))
            except VaultError as error:
                self.draft.check(f"{place} is left out: {error.args[0]}.")
                return value
        if isinstance(value, Mapping):
            return {key: self._converted(item, place) for key, item in value.items()}
        return [self._converted(item, place) for item in value] if isinstance(value, list) else value

    def _reject(self, path: str) -> None:
        reason = self.tree.rejected.get(path, "is missing")
        self.draft.remarks.append(
            Remark(
                Origin(path), "the complete file", Outcome.UNMAPPED, (f"the file cannot be read: {reason}",)
            )
        )

    def _role_directories(self) -> list[str]:
        if not self.tree.is_directory("roles"):
            return []
        names = sorted(path.name for path in (self.tree.root / "roles").iterdir())
        return [f"roles/{name}" for name in names if _is_role(self.tree, f"roles/{name}")]

    def _add_play(self, document: Document, index: int, play: Mapping[str, Any]) -> None:
        origin = Origin(document.name, document.line((index,)))
        if "hosts" not in play:
            self._note(
                origin,
                str(play.get("import_playbook") or play.get("name") or "play"),
                Outcome.UNMAPPED,
                "import the other playbook separately",
                "import_playbook",
            )
            return
        title = str(play.get("name") or play["hosts"])
        try:
            control = self._control_of_hosts(play["hosts"])
        except Untranslatable as error:
            self._note(origin, title, Outcome.UNMAPPED, str(error), "hosts")
            return
        variables = play.get("vars")
        self._merge(self.variables, "vars.yaml", variables if isinstance(variables, dict) else {}, origin)
        for file in _listed(play.get("vars_files")):
            path = str(file)
            loaded = None if has_expression(path) else self.tree.find_document(path)
            if loaded is not None:
                self._merge(self.variables, "vars.yaml", self._values(loaded), Origin(path))
            else:
                self._note(
                    origin,
                    title,
                    Outcome.UNMAPPED,
                    f"vars_files names {path}, which is variable or unreadable",
                    "vars_files",
                )
        before = len(self.top.resources)
        context = self._context("", "", slug(title))
        number = sum(path.startswith("play-") for path in self.draft.manifests) + 1
        for key in ("pre_tasks", "roles", "tasks", "post_tasks"):
            if key == "roles":
                for role_index, role in enumerate(_listed(play.get("roles"))):
                    place = Origin(document.name, document.line((index, "roles", role_index)))
                    self._add_play_role(role, place)
            elif play.get(key):
                path = (
                    f"play-{number}.yaml" if key == "tasks" else f"play-{number}-{key.replace('_', '-')}.yaml"
                )
                manifest = self._manifest(path, document.name)
                self._add_tasks(document, (index, key), play[key], context, manifest, [], 0)
                self.top.resources.append(Resource("apply", path, comments=[f"{title} ({origin})"]))
        tasks = list(self._tasks(document, (index, "handlers"), play.get("handlers") or [], [], {}))
        self.handlers.append((context, self.top, [task for task in tasks if isinstance(task, Task)]))
        if control:
            for resource in self.top.resources[before:]:
                conditions = [control, resource.properties.get("control", {}).get("if", "true")]
                resource.properties["control"] = {"if": all_of(conditions)}

    def _add_play_role(self, role: Any, origin: Origin) -> None:
        values = role if isinstance(role, dict) else {"role": role}
        name = str(values.get("role") or values.get("name") or "")
        extra = sorted(set(values) - {"role", "name", "tags", "when", "become"})
        try:
            conditions = [
                translate_condition(condition, self.names) for condition in conditions_of(values.get("when"))
            ]
        except Untranslatable as error:
            self._note(origin, name, Outcome.UNMAPPED, str(error), "role")
            return
        self._apply_role(name, self.top, conditions, origin)
        if extra:
            inner = (
                values.get("vars")
                if isinstance(values.get("vars"), dict)
                else {key: values[key] for key in extra if key != "vars"}
            )
            self._merge(self.variables, "vars.yaml", inner or {}, origin)

    def _control_of_hosts(self, hosts: Any) -> str:
        pattern = ":".join(hosts) if isinstance(hosts, list) else str(hosts).replace(",", ":")
        if pattern != "*" and (has_expression(pattern) or re.search(r"[*?\[~]", pattern)):
            raise Untranslatable(f"hosts is {pattern}, which is a pattern or a variable")
        included, required = [], []
        for part in pattern.split(":"):
            name = part.strip().lstrip("&!")
            test = "true" if name in ("all", "*") else f"'{name}' in lookup('facts.groups', [])"
            if name in ("localhost", "127.0.0.1"):
                raise Untranslatable("the play is for the control node")
            if part.startswith("!"):
                required.append(f"not ({test})")
            elif part.startswith("&"):
                required.append(test)
            else:
                included.append(test)
        first = "true" if "true" in included or not included else " or ".join(included)
        return all_of([first, *required])

    # The inventory.

    def _add_inventory(self) -> None:
        for kind, level in (("group_vars", self.groups), ("host_vars", self.hosts)):
            for start in ("", "inventory", "inventories"):
                folder = "/".join(filter(None, [start, kind]))
                for path in self.tree.files(folder) if self.tree.is_directory(folder) else ():
                    document = self.tree.find_document(path)
                    if document is None:
                        self._reject(path)
                        continue
                    name = re.sub(r"\.(ya?ml|json)$", "", path[len(folder) + 1 :].split("/")[0])
                    if kind == "group_vars" and name == "all":
                        self._merge(self.everywhere, "all.yaml", self._values(document), Origin(path))
                    else:
                        target = f"{'groups' if kind == 'group_vars' else 'hosts'}/{name}.yaml"
                        self._merge(level, target, self._values(document), Origin(path))
        groups: dict[str, set[str]] = {}
        for path in (
            "hosts",
            "inventory",
            "inventory.ini",
            "hosts.ini",
            "inventory/hosts",
            "inventory/hosts.ini",
            "hosts.yml",
            "inventory.yml",
            "inventory/hosts.yml",
        ):
            if self.tree.is_file(path):
                self._read_inventory(path, groups)
        for host, names in sorted(groups.items()):
            if not is_host_name(host):
                self.draft.check(f"The host {printable(host[:80])} of the inventory is left out: {WANTED}.")
                continue
            text = document_text(
                {"groups": sorted(names)}, ["Copy this file to /etc/puller/facts.d/groups.yaml of the host."]
            )
            self.draft.files[f"hosts/{host}.yaml"] = text.encode()

    def _read_inventory(self, path: str, groups: dict[str, set[str]]) -> None:
        if path.endswith((".yml", ".yaml")):
            document = self.tree.find_document(path)
            if document is not None and isinstance(document.value, dict):
                for name, group in document.value.items():
                    _walk_group(str(name), group, (), groups)
            return
        children: dict[str, set[str]] = {}
        section, kind = "ungrouped", "hosts"
        for line in self.tree.text(path).splitlines():
            text = line.split("#")[0].split(";")[0].strip()
            if match := re.fullmatch(r"\[([^:\]]+)(?::(\w+))?\]", text):
                section, kind = match[1], match[2] or "hosts"
            elif text and kind == "hosts":
                for host in _expanded(text.split()[0]):
                    groups.setdefault(host, set()).add(section)
            elif text and kind == "children":
                children.setdefault(section, set()).add(text)
        for _ in range(len(children)):
            for parent, names in children.items():
                for members in groups.values():
                    if members & names:
                        members.add(parent)

    # Roles.

    def _context(self, directory: str, target: str, name: str) -> RoleContext:
        names = msgspec.structs.replace(self.names, role_name=name, files="files")
        return RoleContext(
            self.tree,
            directory,
            target,
            self.draft,
            names,
            known=self.known(),
            registered=self.registered,
            results=self.results,
            consumed=self.consumed,
            notified=self.notified,
            unmapped_notifications=self.unmapped_notifications,
            services=self.services,
            labels=self.labels,
        )

    def known(self) -> dict[str, Any]:
        """Return the values of all variables without expressions, by precedence."""
        result: dict[str, Any] = {}
        for level in (*self.systems, self.common, self.everywhere, self.variables):
            for values in level.files.values():
                result |= {key: value for key, value in values.items() if not has_expression(value)}
        return result

    def _apply_role(
        self, name: str, manifest: ManifestDraft, conditions: Sequence[str], origin: Origin | None = None
    ) -> bool:
        """Add a role of the repository and a reference to it. Return whether it exists."""
        short = name.rpartition(".")[2]
        directory = f"roles/{short}"
        place = origin or Origin(directory)
        if has_expression(name) or not _is_role(self.tree, directory):
            self._note(
                place,
                name,
                Outcome.UNMAPPED,
                "the role is not part of the source. Import it separately",
                "role",
            )
            manifest.resources.append(
                Resource("", "", comments=[f"Not mapped: the role {name} ({place})"], disabled=True)
            )
            return False
        target = f"roles/{short}"
        if target not in self.contexts:
            self.add_role(directory, target, short)
        path = (
            f"{target}/manifest.yaml"
            if not manifest.path.startswith("roles/")
            else f"bundle:{target}/manifest.yaml"
        )
        properties = {"control": {"if": all_of(conditions)}} if conditions else {}
        manifest.resources.append(
            Resource("apply", path, properties, comments=[f"The role {name} ({place})"])
        )
        self._note(place, name, Outcome.MAPPED, "", "role")
        return True

    def add_role(self, directory: str, target: str, name: str) -> None:
        """Add a role: its variables, tasks, handlers, templates and files."""
        for folder, level in (("defaults", self.common), ("vars", self.variables)):
            for path in self._variable_files(directory, folder):
                document = self.tree.find_document(path)
                if document is None:
                    self._reject(path)
                else:
                    self._merge(level, level.path, self._values(document), Origin(path))
        self._add_dependencies(directory, name)
        manifest = self.top if not target else self._manifest(f"{target}/manifest.yaml", directory)
        context = self._context(directory, target, name)
        self.contexts[target] = context
        tasks = self._find(directory, "tasks/main")
        handlers = self._find(directory, "handlers/main")
        if tasks is not None:
            self._scan_vars(directory, tasks)
            context.known = self.known()
            self._add_tasks(tasks, (), tasks.value or [], context, manifest, [], 0)
        if handlers is not None:
            found = list(self._tasks(handlers, (), handlers.value or [], [], {}))
            self.handlers.append((context, manifest, [task for task in found if isinstance(task, Task)]))
        self._copy_files(directory, target)
        self._add_tests(directory)

    def _variable_files(self, directory: str, folder: str) -> list[str]:
        start = "/".join(filter(None, [directory, folder]))
        single = [
            f"{start}/main.{ending}"
            for ending in ("yml", "yaml", "json")
            if self.tree.is_file(f"{start}/main.{ending}")
        ]
        return single or (
            [*self.tree.files(f"{start}/main")] if self.tree.is_directory(f"{start}/main") else []
        )

    def _find(self, directory: str, name: str) -> Document | None:
        for ending in ("yml", "yaml"):
            path = "/".join(filter(None, [directory, f"{name}.{ending}"]))
            if self.tree.is_file(path):
                document = self.tree.find_document(path)
                if document is None:
                    self._reject(path)
                return document
        return None

    def _add_dependencies(self, directory: str, name: str) -> None:
        meta = self._find(directory, "meta/main")
        value = meta.value if meta is not None and isinstance(meta.value, dict) else {}
        for index, dependency in enumerate(_listed(value.get("dependencies"))):
            values = _mapping(dependency)
            role = dependency if isinstance(dependency, str) else values.get("role") or values.get("name")
            if meta is not None and role and str(role) != name:
                self._apply_role(
                    str(role), self.top, [], Origin(meta.name, meta.line(("dependencies", index)))
                )

    def _manifest(self, path: str, origin: str) -> ManifestDraft:
        if path not in self.draft.manifests:
            self.draft.manifests[path] = ManifestDraft(path, [f"From {origin}."] if origin else [])
        return self.draft.manifests[path]

    def _copy_files(self, directory: str, target: str) -> None:
        for folder in ("files", "templates"):
            start = "/".join(filter(None, [directory, folder]))
            if not self.tree.is_directory(start):
                continue
            for path in self.tree.files(start):
                inner = "/".join(filter(None, [target, path[len(directory) + 1 if directory else 0 :]]))
                try:
                    self.draft.files[inner] = self.tree.content(path)
                except SourceError as error:
                    self.draft.check(f"{path} is not copied: {error}")
                    continue
                if self.tree.is_executable(path):
                    self.draft.executable.add(inner)

    def _add_tests(self, directory: str) -> None:
        meta = self._find(directory, "meta/main")
        value = meta.value if meta is not None and isinstance(meta.value, dict) else {}
        info = value.get("galaxy_info") or {}
        platforms = info.get("platforms") if isinstance(info, dict) else None
        for platform in _listed(platforms):
            name = str(platform.get("name", "") if isinstance(platform, dict) else platform).lower()
            self.tests |= dict.fromkeys(_PLATFORMS.get(name, ()))

    # Tasks.

    def _tasks(
        self,
        document: Document,
        path: tuple[str | int, ...],
        entries: Any,
        when: Sequence[Any],
        inherited: Mapping[str, Any],
    ) -> Iterator[Task | Remark]:
        """Yield the tasks of a list, with blocks resolved."""
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            place = (*path, index)
            if not isinstance(entry, dict):
                yield Remark(
                    Origin(document.name, document.line(place)),
                    "entry",
                    Outcome.UNMAPPED,
                    ("the entry is not a task",),
                )
                continue
            conditions = [*when, *conditions_of(entry.get("when"))]
            if "block" in entry:
                yield from self._block(document, place, entry, conditions, inherited)
                continue
            task = self._task(document, place, entry, conditions, inherited)
            yield task

    def _block(
        self,
        document: Document,
        place: tuple[str | int, ...],
        entry: Mapping[str, Any],
        when: Sequence[Any],
        inherited: Mapping[str, Any],
    ) -> Iterator[Task | Remark]:
        own = {
            key: value for key, value in entry.items() if key not in _BLOCK and key not in ("when", "name")
        }
        merged = {**inherited, **own}
        for key in ("tags", "notify"):
            merged[key] = [*_listed(inherited.get(key)), *_listed(own.get(key))]
        merged["vars"] = {**_mapping(inherited.get("vars")), **_mapping(own.get("vars"))}
        for key in ("block", "always"):
            yield from self._tasks(document, (*place, key), entry.get(key) or [], when, merged)
        yield from self._tasks(
            document, (*place, "rescue"), entry.get("rescue") or [], when, {**merged, "rescue": True}
        )

    def _task(
        self,
        document: Document,
        place: tuple[str | int, ...],
        entry: Mapping[str, Any],
        when: Sequence[Any],
        inherited: Mapping[str, Any],
    ) -> Task | Remark:
        origin = Origin(document.name, document.line(place))
        keys = [str(key) for key in entry if str(key) not in KEYWORDS and not str(key).startswith("with_")]
        module, value = (keys[0], entry[keys[0]]) if keys else ("", None)
        local = False
        if not keys and ("action" in entry or "local_action" in entry):
            local = "local_action" in entry
            action = entry.get("action", entry.get("local_action"))
            if isinstance(action, dict):
                module = str(action.get("module", ""))
                value = {key: item for key, item in action.items() if key != "module"}
            else:
                module, _, value = str(action).partition(" ")
        if len(keys) > 1:
            return Remark(
                origin,
                str(entry.get("name") or keys[0]),
                Outcome.UNMAPPED,
                (f"unknown keys: {', '.join(keys[1:])}",),
            )
        if not module:
            return Remark(
                origin, str(entry.get("name") or "task"), Outcome.UNMAPPED, ("the task lacks a module",)
            )
        short = module.rpartition(".")[2]
        free, arguments = _arguments(short, value)
        extra = entry.get("args")
        if isinstance(extra, dict):
            arguments = {**extra, **arguments}
        loops = [
            (key.removeprefix("with_").rpartition(".")[2], entry[key])
            for key in map(str, entry)
            if key.startswith("with_")
        ]
        loops += [("loop", entry["loop"])] if "loop" in entry else []
        control = entry.get("loop_control") if isinstance(entry.get("loop_control"), dict) else {}
        keywords = {
            key: inherited[key]
            for key in (*_INHERITED, "rescue", "environment")
            if inherited.get(key) is not None
        }
        keywords |= {
            str(key): item for key, item in entry.items() if str(key) in KEYWORDS and item is not None
        }
        if local:
            keywords["local_action"] = True
        return Task(
            origin,
            str(entry.get("name") or ""),
            short,
            arguments,
            free,
            list(when),
            loops[0] if loops else None,
            str((control or {}).get("loop_var", "item")),
            str((control or {}).get("index_var", "")),
            str(entry.get("register") or ""),
            [str(item) for item in [*_listed(inherited.get("notify")), *_listed(entry.get("notify"))]],
            [str(item) for item in _listed(entry.get("listen"))],
            [str(item) for item in [*_listed(inherited.get("tags")), *_listed(entry.get("tags"))]],
            {**_mapping(inherited.get("vars")), **_mapping(entry.get("vars"))},
            entry.get("environment") or inherited.get("environment"),
            {key: item for key, item in keywords.items() if key not in ("environment",)},
            str(entry.get("become_user") or inherited.get("become_user") or ""),
        )

    def _add_tasks(
        self,
        document: Document,
        path: tuple[str | int, ...],
        entries: Any,
        context: RoleContext,
        manifest: ManifestDraft,
        stack: Sequence[str],
        depth: int,
    ) -> None:
        """Add the tasks of one file to a manifest."""
        mapper = TaskMapper(context, manifest)
        for task in self._tasks(document, path, entries, [], {}):
            if isinstance(task, Remark):
                self.draft.remarks.append(task)
                manifest.resources.append(
                    Resource(
                        "",
                        "",
                        comments=[
                            f"Not mapped: {task.subject} ({task.origin})",
                            f"Reason: {'. '.join(task.reasons)}.",
                        ],
                        disabled=True,
                    )
                )
                continue
            if task.register and task.module not in _INCLUDES:
                self.registered[task.register] = task
                context.names = context.names.with_registered(task.register)
            if task.module in _GATHERED:
                context.names = context.names.with_registered(_GATHERED[task.module])
            if task.module in _INCLUDES:
                self._include(task, context, manifest, [*stack, document.name], depth, mapper)
            elif task.module in _ROLES:
                self._include_role(task, context, manifest, mapper)
            elif task.module == "set_fact":
                self._set_fact(task, context, mapper)
            elif task.module == "include_vars":
                self._note(task.origin, task.name or "include_vars", *self._include_vars(task, context))
            else:
                mapper.add(task)

    def _include(
        self,
        task: Task,
        context: RoleContext,
        manifest: ManifestDraft,
        stack: Sequence[str],
        depth: int,
        mapper: TaskMapper,
    ) -> None:
        file = task.free_form or str(task.arguments.get("file") or task.arguments.get("_raw_params") or "")
        names = context.names
        try:
            if depth > _INCLUDE_DEPTH:
                raise Untranslatable("the includes are nested too deep")
            loop = ""
            data: dict[str, Any] = {}
            child_names = names
            if task.variables or task.loop is not None:
                loop, data, child_names = self._child_data(task, context, mapper)
            conditions = [
                translate_condition(condition, names if not loop else names.with_loop(task.loop_variable))
                for condition in task.when
            ]
            children = self._included_files(file, task, context)
        except Untranslatable as error:
            mapper.propose(task, [str(error)])
            return
        for path, selection in children:
            document = self.tree.find_document(path)
            if document is None:
                self._reject(path)
                continue
            if path in stack:
                mapper.propose(task, ["the file includes itself"])
                continue
            target = _child_path(context, path)
            is_new = target not in self.draft.manifests
            child = self._manifest(target, path)
            if is_new:
                inner = msgspec.structs.replace(
                    context, names=child_names, child_data=context.child_data or bool(data)
                )
                self._add_tasks(document, (), document.value or [], inner, child, stack, depth + 1)
                context.names = context.names.with_registered(*inner.names.registered)
            properties: dict[str, Any] = {"data": data} if data else {}
            control = all_of([*conditions, *selection])
            if control:
                properties["control"] = {"if": control}
            name = target.rpartition("/")[2] if "/" in manifest.path or "/" not in target else target
            title = f"{task.name} ({task.origin})" if task.name else str(task.origin)
            manifest.resources.append(Resource("apply", name, properties, loop=loop, comments=[title]))
        self._note(task.origin, task.name or file, Outcome.MAPPED, "", task.module)

    def _child_data(
        self, task: Task, context: RoleContext, mapper: TaskMapper
    ) -> tuple[str, dict[str, Any], Names]:
        names = context.names
        loop = ""
        data: dict[str, Any] = {}
        if task.loop is not None:
            work = Work(task, context, names)
            loop = mapper.loop_of(task, work)
            data[task.loop_variable] = f"{{{{ {task.loop_variable} }}}}"
            names = names.with_loop(task.loop_variable)
        for name, value in task.variables.items():
            data[name] = translate_value(value, names)
        return loop, data, context.names

    def _included_files(self, file: str, task: Task, context: RoleContext) -> list[tuple[str, list[str]]]:
        """Return the files that an include can name, each with its condition."""
        if not file:
            raise Untranslatable("the file is missing")
        folders = [f"{context.directory}/tasks" if context.directory else "tasks", context.directory]
        own = task.origin.file.rpartition("/")[0]
        if not has_expression(file):
            for folder in (own, *folders):
                path = _normal("/".join(filter(None, [folder, file])))
                if path is not None and self.tree.is_file(path):
                    return [(path, [])]
            raise Untranslatable(f"the file {file} is missing")
        parts = re.split(r"({{.*?}})", file)
        expressions = [part for part in parts if part.startswith("{{")]
        pattern = re.compile(
            "".join("([^/]+?)" if part.startswith("{{") else re.escape(part) for part in parts)
        )
        translated = [
            as_expression(
                part, context.names if task.loop is None else context.names.with_loop(task.loop_variable)
            )
            for part in expressions
        ]
        result = []
        for folder in dict.fromkeys(filter(None, (own, *folders))):
            for path in self.tree.files(folder) if self.tree.is_directory(folder) else ():
                match = pattern.fullmatch(path[len(folder) + 1 :])
                if match:
                    tests = [
                        f"{expression} == '{text}'"
                        for expression, text in zip(translated, match.groups(), strict=True)
                    ]
                    result.append((path, tests))
            if result:
                return result
        raise Untranslatable(f"missing files: {file}")

    def _include_role(
        self, task: Task, context: RoleContext, manifest: ManifestDraft, mapper: TaskMapper
    ) -> None:
        name = str(task.arguments.get("name") or task.free_form or "")
        if task.loop is not None or task.variables or task.arguments.get("tasks_from"):
            mapper.propose(
                task, ["a role with variables, a loop or tasks_from. Write a child manifest with data"]
            )
            return
        try:
            conditions = [translate_condition(condition, context.names) for condition in task.when]
        except Untranslatable as error:
            mapper.propose(task, [str(error)])
            return
        self._apply_role(name, manifest, conditions, task.origin)

    # Variables.

    def _set_fact(self, task: Task, context: RoleContext, mapper: TaskMapper) -> None:
        """Note the variables of ``set_fact``. They become data at the end."""
        names = {key: value for key, value in task.arguments.items() if key != "cacheable"}
        try:
            if task.loop is not None:
                raise Untranslatable(
                    "a variable that a loop collects. Write an expression with filters in data"
                )
            definitions = [
                (name, self._definition(task, name, value, context.names)) for name, value in names.items()
            ]
        except Untranslatable as error:
            mapper.propose(task, [str(error)])
            missing = [name for name in names if name not in self.facts_set and name not in self.known()]
            context.names = context.names.with_registered(*missing)
            return
        for name, definition in definitions:
            self.facts_set.setdefault(name, []).append(definition)
        self._note(task.origin, task.name or f"set_fact {', '.join(names)}", Outcome.MAPPED, "", "set_fact")

    def _definition(self, task: Task, name: str, value: Any, names: Names) -> "_Definition":
        """Return the value of a variable with its condition. Raises ``Untranslatable``."""
        parts = [
            part
            for condition in task.when
            for part in (conjuncts(condition) if isinstance(condition, str) else [condition])
        ]
        others = [part for part in parts if not _tests_absence(part, name)]
        earlier = self.facts_set.get(name)
        base = earlier[-1].combined if earlier else self._default_of(name)
        inline = {} if base is None else {name: base}
        own = msgspec.structs.replace(names, inline={**names.inline, **inline})
        for variable, item in task.variables.items():
            inline[variable] = as_expression(item, own)
            own = msgspec.structs.replace(names, inline={**names.inline, **inline})
        if base is None and any(re.search(rf"\b{re.escape(name)}\b", str(text)) for text in (value, *others)):
            raise Untranslatable(f"{name} depends on its own earlier value, which lacks a default")
        control = all_of([translate_condition(part, own) for part in others])
        expression = as_expression(value, own)
        is_default = len(others) < len(parts)
        is_plain = not control and not inline
        if control:
            other = "none" if base is None else base
            other = f"({other})" if " if " in other else other
            combined = f"{expression} if {control} else {other}"
        else:
            combined = expression
        return _Definition(
            combined,
            translate_value(value, own) if is_plain else None,
            is_default,
            base is None and bool(control),
        )

    def _default_of(self, name: str) -> str | None:
        values = self.common.files["common.yaml"]
        if name not in values:
            return None
        return as_expression(values[name], self.names)

    def _facts_as_data(self) -> None:
        for name, definitions in sorted(self.facts_set.items()):
            last = definitions[-1]
            if not all(definition.is_default for definition in definitions):
                # The task overrides the default, so the derived value replaces it.
                self.common.files["common.yaml"].pop(name, None)
            self.top.data[name] = last.plain if last.plain is not None else f"{{{{ {last.combined} }}}}"
            if definitions[0].is_partial:
                self.draft.check(
                    f"The variable {name} is null on systems that no condition of its set_fact selects."
                )

    def _scan_vars(self, directory: str, tasks: Document) -> None:
        """Read the files of ``include_vars`` before all tasks, since their values help to map tasks."""
        for path in [tasks.name, *self.tree.files("/".join(filter(None, [directory, "tasks"])))]:
            document = (
                tasks
                if path == tasks.name
                else (self.tree.find_document(path) if path.endswith((".yml", ".yaml")) else None)
            )
            if document is None:
                continue
            for task in self._tasks(document, (), document.value or [], [], {}):
                if isinstance(task, Task) and task.module == "include_vars":
                    self._read_included_vars(task, directory)

    def _include_vars(self, task: Task, context: RoleContext) -> tuple[Outcome, str, str]:
        try:
            self._system_levels(task, context.directory)
        except Untranslatable as error:
            return Outcome.UNMAPPED, str(error), "include_vars"
        return Outcome.MAPPED, "", "include_vars"

    def _read_included_vars(self, task: Task, directory: str) -> None:
        try:
            levels = self._system_levels(task, directory)
        except Untranslatable:
            return
        for level in levels:
            same = next((existing for existing in self.systems if existing.path == level.path), None)
            if same is None:
                self.systems.append(level)
            else:
                for name, values in level.files.items():
                    same.files.setdefault(name, {}).update(values)

    def _system_levels(self, task: Task, directory: str) -> list[Level]:
        """Return the levels of an ``include_vars``. Raises ``Untranslatable``."""
        names = msgspec.structs.replace(
            self.names,
            loop_variables=frozenset({task.loop_variable}) if task.loop is not None else frozenset(),
        )
        for condition in task.when:
            translated = translate_condition(condition, names)
            if not re.search(r"facts\.os\.", translated):
                raise Untranslatable(f"the condition {translated} of variables")
        candidates = _candidates(task)
        levels = []
        for candidate in candidates:
            level = self._level(candidate, directory, task)
            if level is not None:
                levels.append(level)
        if not levels:
            raise Untranslatable(f"missing file of variables: {', '.join(candidates) or 'the task'}")
        return levels

    def _level(self, candidate: str, directory: str, task: Task) -> Level | None:
        """Return the level of a file name with facts in it, or ``None`` for missing files."""
        text = re.sub(r"^(\.\./)?vars/", "", re.sub(r"{{\s*role_path\s*}}/", "", _separated(candidate)))
        if not has_expression(text) and task.when:
            return self._conditional_level(text, directory, task)
        folder = "/".join(filter(None, [directory, "vars"]))
        parts = re.split(r"({{.*?}})", text)
        expressions = [as_expression(part, self.names) for part in parts if part.startswith("{{")]
        pieces: list[str] = []
        lowered = []
        section = text
        for part in parts:
            if not part.startswith("{{"):
                pieces.append(part)
                continue
            expression = as_expression(part, self.names)
            bare = re.sub(r"\s*\|\s*(title|default\(\))$", "", expression)
            expression = bare
            bare = re.sub(r"\s*\|\s*lower(\(\))?$|\.lower\(\)$", "", expression)
            if bare not in _SYSTEM_PATHS:
                raise Untranslatable(f"the file {candidate} depends on {expression}")
            lowered.append(bare != expression)
            pieces.append(_SYSTEM_PATHS[bare])
            section = section.replace(part, f"{{{{ {expression} }}}}")
        stem = re.sub(r"\.(ya?ml|json)$", "", "".join(pieces))
        pattern = re.compile(
            "".join("([^/]+?)" if part.startswith("{{") else re.escape(part) for part in parts)
        )
        files: dict[str, dict[str, Any]] = {}
        candidates = list(self.tree.files(folder)) if self.tree.is_directory(folder) else []
        for path in candidates:
            inner = path[len(folder) + 1 :]
            match = pattern.fullmatch(inner)
            if match is None or inner in ("main.yml", "main.yaml"):
                continue
            document = self.tree.find_document(path)
            if document is None:
                continue
            words = [
                _PROPER_NAMES.get(word, word) if low else word
                for word, low in zip(match.groups(), lowered, strict=True)
            ]
            words = _with_releases(words, expressions)
            name = re.sub(r"%{[^}]*}", "{}", stem).format(*words) if words else stem
            files[f"os/{name}.yaml"] = self._values(document)
        if not files:
            return None
        order = re.sub(r"\.(ya?ml|json)$", "", section)
        return Level("system", f"os/{stem}.yaml", files, f"os/{order}")

    def _conditional_level(self, file: str, directory: str, task: Task) -> Level | None:
        """Return the level of one file whose condition names a system. Raises ``Untranslatable``."""
        conditions = [translate_condition(condition, self.names) for condition in task.when]
        tests = [part for condition in conditions for part in conjuncts(condition)]
        pattern = r"""(facts\.os\.(?:family|name)) == ['"](\w+)['"]"""
        matches = [re.fullmatch(pattern, test) for test in tests]
        systems = [match for match in matches if match is not None]
        if not systems or len(systems) != len(tests):
            raise Untranslatable(f"the file {file} depends on {all_of(conditions)}")
        chosen = next((match for match in systems if match[1] == "facts.os.name"), systems[0])
        document = self.tree.find_document("/".join(filter(None, [directory, "vars", file])))
        if document is None or not isinstance(document.value, dict):
            return None
        path = _SYSTEM_PATHS[chosen[1]]
        return Level(
            "system",
            f"os/{path}.yaml",
            {f"os/{chosen[2]}.yaml": self._values(document)},
            f"os/{{{{ {chosen[1]} }}}}",
        )

    def _merge(self, level: Level, file: str, values: Mapping[str, Any], origin: Origin) -> None:
        target = level.files.setdefault(file, {})
        for key, value in values.items():
            name = str(key)
            if name in target and target[name] != value:
                self.draft.check(
                    f"Several sources set the variable {name} to different values. The draft has the value of {origin}."
                )
            target[name] = value

    # The end.

    def finished(self) -> Draft:
        """Return the complete draft."""
        for context, manifest, handlers in self.handlers:
            add_handlers(handlers, context, manifest)
        self._facts_as_data()
        self._facts_of_templates()
        self._divide()
        self._declare_missing()
        for system in list(self.tests) or ["debian-12"]:
            text = document_text(
                {"os": system}, ["The defaults of the source. Add expected resources under `expect`."]
            )
            self.draft.files[f"tests/{system}.yaml"] = text.encode()
        for path, reason in sorted(self.tree.rejected.items()):
            self.draft.check(f"{path} {reason}.")
        labels: dict[str, str] = {}
        for manifest in self.draft.manifests.values():
            labels |= merge_alternatives(manifest.resources)
            unique_names(manifest.resources)
        separate_manifests(self.draft)
        _repair_references(self.draft, labels)
        return self.draft

    def _levels(self) -> list[Level]:
        return [*self.systems, self.variables, self.hosts, self.groups, self.everywhere, self.common]

    def _divide(self) -> None:
        """Divide the variables into the Hiera tree and the data of the manifest."""
        levels = self._levels()
        in_manifest = self._keys_for_manifest(levels)
        order = []
        for level in levels:
            for file, values in level.files.items():
                tree: dict[str, Any] = {}
                for key, value in values.items():
                    self._place(level, file, key, value, in_manifest, tree)
                if tree or level is self.common:
                    self.draft.files[f"data/{file}"] = document_text(tree).encode()
            if level.files and any(f"data/{file}" in self.draft.files for file in level.files):
                order.append(level)
        entries: list[dict[str, Any]] = []
        for level in order:
            secret = {"lookup_key": "eyaml_lookup_key"} if _contains(dict(level.files), EncryptedText) else {}
            if level.mapped:
                place = {"mapped_paths": ["facts.groups", "group", level.path]}
                entries.append({"name": level.name, **place, **secret})
            else:
                entries.append(
                    {
                        "name": f"{level.name} {len(entries)}" if level in self.systems else level.name,
                        "path": level.path,
                        **secret,
                    }
                )
        self.draft.files["hiera.yaml"] = document_text(
            {"version": 5, "hierarchy": entries}, ["The highest precedence first."]
        ).encode()
        if len(self.systems) > 1:
            self.draft.check(
                "Ansible loads the first matching file of variables. Puller also uses keys of the less specific files."
            )

    def _keys_for_manifest(self, levels: Sequence[Level]) -> set[str]:
        keys = set()
        for level in levels:
            for values in level.files.values():
                for key, value in values.items():
                    try:
                        _in_tree(value, self.names)
                    except Untranslatable:
                        keys.add(key)
        return keys

    def _place(
        self, level: Level, file: str, key: str, value: Any, in_manifest: set[str], tree: dict[str, Any]
    ) -> None:
        if _contains(value, VaultText):
            self.draft.check(
                f"The variable {key} is encrypted by Vault. Encrypt it with `puller hiera encrypt`, "
                f"and add it to data/{file}."
            )
            return
        if key not in in_manifest:
            tree[key] = _in_tree(value, self.names)
            return
        try:
            translated = translate_value(_without_tags(value), self.names)
        except Untranslatable as error:
            self._note(Origin(f"data/{file}"), key, Outcome.UNMAPPED, str(error), "variable")
            return
        if level is self.common or (level is self.variables and key not in self.top.data):
            self.top.data.setdefault(key, translated)
        elif level is self.variables:
            self.top.data[key] = translated
        elif level in self.systems:
            section = file.removesuffix(".yaml")
            self.top.overrides.setdefault(section, {})[key] = translated
            if level.section not in self.top.hierarchy:
                self.top.hierarchy.append(level.section)
        else:
            self._note(
                Origin(f"data/{file}"),
                key,
                Outcome.UNMAPPED,
                "an expression in variables of hosts or groups",
                "variable",
            )

    def _facts_of_templates(self) -> None:
        """Add the facts that templates name to the data, so that templates stay unchanged."""
        data = self.top.data
        facts = table()["facts"]
        for path, content in sorted(self.draft.files.items()):
            if "templates/" not in path:
                continue
            try:
                text = content.decode()
            except UnicodeDecodeError:
                continue
            for match in re.finditer(
                r"(?<![\w.'\"])(ansible_\w+|inventory_hostname\w*|group_names|hostvars|groups)((?:\.\w+|\[['\"]\w+['\"]\])*)",
                text,
            ):
                name, steps = match[1], re.findall(r"\w+", match[2])
                if name in ("hostvars", "groups"):
                    if "{{" in text or "{%" in text:
                        self.draft.check(f"{path} reads {name}, which contains other hosts. Use exports.")
                    continue
                if name in self.names.constants:
                    data.setdefault(
                        name,
                        f"{{{{ {self.names.constants[name]} }}}}" if name != "ansible_managed" else _MANAGED,
                    )
                    continue
                keys = steps if name == "ansible_facts" else [name.removeprefix("ansible_"), *steps]
                known = next(
                    (keys[:count] for count in range(len(keys), 0, -1) if ".".join(keys[:count]) in facts),
                    None,
                )
                if known is None:
                    if name in self.common.files["common.yaml"]:
                        continue
                    self.draft.check(f"{path} reads the fact {'.'.join(keys) or name}, which Puller lacks.")
                    continue
                expression = f"{{{{ {_optional(facts['.'.join(known)])} }}}}"
                place = [name, *known] if name == "ansible_facts" else [name, *known[1:]]
                _set_path(data, place, expression)

    def _declare_missing(self) -> None:
        """Declare variables without a value as null, unless an expression accepts a missing variable."""
        known = {key for manifest in self.draft.manifests.values() for key in manifest.data}
        known |= {key for values in self.top.overrides.values() for key in values}
        known |= {key for level in self._levels() for values in level.files.values() for key in values}
        texts = [manifest.text() for manifest in self.draft.manifests.values()]
        loops = {
            word
            for manifest in self.draft.manifests.values()
            for entry in manifest.resources
            for word in re.findall(r"\w+", entry.loop.partition(" in ")[0])
        }
        passed = {
            str(key)
            for manifest in self.draft.manifests.values()
            for entry in manifest.resources
            if entry.type == "apply"
            for key in entry.properties.get("data", {})
        }
        used = {
            name for text in texts for name in re.findall(r"\bdata\.([A-Za-z_]\w*)", _without_comments(text))
        }
        used |= {
            name
            for level in self._levels()
            for values in level.files.values()
            for text in _texts_of(values)
            for name in re.findall(r"%{(?:alias|lookup)\('(\w+)", text)
        }
        for path, content in self.draft.files.items():
            if "templates/" in path and (text := content.decode(errors="replace")):
                texts.append(text)
                used |= _names_of_template(text)
        everything = "\n".join(texts)
        for name in sorted(used - known - loops - passed - _TEMPLATE_NAMES):
            if name.startswith("ansible_") or name in self.names.constants:
                continue
            guarded = (
                rf"\b{name}\b(?:\.\w+|\[[^\]]*\])*\s*(?:\|\s*(?:d|default)\b|is\s+(?:not\s+)?(?:un)?defined)"
            )
            if re.search(guarded, everything):
                continue
            self.top.data[name] = None
            self.draft.check(f"The source sets no value for the variable {name}. Set it in the data.")

    def _note(self, origin: Origin, subject: str, outcome: Outcome, reason: str, kind: str = "") -> None:
        self.draft.remarks.append(Remark(origin, subject, outcome, (reason,) if reason else (), kind))


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _texts_of(value: Any) -> Iterator[str]:
    """Yield the texts in a value, as the Hiera tree has them."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item)
    elif isinstance(value, str):
        yield re.sub(r"{{\s*(\w+)", r"%{lookup('\1", value) if "{{" in value else value


def _names_of_template(text: str) -> set[str]:
    """Return the names that a template uses and does not set."""
    try:
        return meta.find_undeclared_variables(Environment().parse(text))  # noqa: S701  it renders nothing
    except (TemplateError, RecursionError):
        return set()


def _optional(expression: str) -> str:
    """Return an expression that is empty on hosts without the fact."""
    if re.fullmatch(r"facts[\w.]+", expression) and not expression.startswith(_ALWAYS_PRESENT):
        return f"lookup('{expression}', '')"
    return expression


def _set_path(data: dict[str, Any], place: Sequence[str], value: Any) -> None:
    current = data
    for key in place[:-1]:
        inner = current.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        current = inner
    current.setdefault(place[-1], value)


def _in_tree(value: Any, names: Names) -> Any:
    """Return a value for the Hiera tree. Raises ``Untranslatable`` for expressions that need the manifest."""
    if isinstance(value, UnsafeText):
        return _escaped(value.text)
    if isinstance(value, EncryptedText):
        return value.text
    if isinstance(value, VaultText):
        return value
    if isinstance(value, Mapping):
        return {_in_tree(str(key), names): _in_tree(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_tree(item, names) for item in value]
    if not isinstance(value, str):
        return value
    if not has_expression(value):
        return _escaped(value)
    if "{%" in value or "{#" in value:
        raise Untranslatable("a statement")
    parts = re.split(r"({{.*?}})", value, flags=re.DOTALL)
    count = sum(bool(part) for part in parts)
    if count > _PARTS_LIMIT:
        raise Untranslatable(f"a value with more than {_PARTS_LIMIT} parts")
    result = []
    for part in parts:
        if not part.startswith("{{"):
            result.append(_escaped(part))
            continue
        inner = part[2:-2].strip()
        translated = as_expression(part, names)
        if re.fullmatch(r"data(\.[A-Za-z_]\w*)+", translated):
            key = translated.removeprefix("data.")
            result.append(f"%{{alias('{key}')}}" if count == 1 else f"%{{lookup('{key}')}}")
        elif re.fullmatch(r"facts(\.\w+)+", translated):
            result.append(f"%{{{translated}}}")
        else:
            raise Untranslatable(f"the expression {inner}")
    return "".join(result)


def _escaped(text: str) -> str:
    return text.replace("%{", "%{literal('%')}{")


def _contains(value: Any, kind: type) -> bool:
    if isinstance(value, Mapping):
        return any(_contains(item, kind) for item in value.values())
    return (
        any(_contains(item, kind) for item in value) if isinstance(value, list) else isinstance(value, kind)
    )


def _without_tags(value: Any) -> Any:
    if isinstance(value, UnsafeText):
        return value.text.replace("{{", "{{ '{{' }}")
    if isinstance(value, Mapping):
        return {key: _without_tags(item) for key, item in value.items()}
    return [_without_tags(item) for item in value] if isinstance(value, list) else value


def _mapping(value: Any) -> dict[str, Any]:
    """Return a mapping, or an empty mapping for any other value."""
    return value if isinstance(value, dict) else {}


def _octal_kept(document: Document) -> dict[str, Any]:
    """Return the variables of a document. Modes such as ``0644`` stay text, because YAML reads another number."""
    if not isinstance(document.value, dict):
        return {}
    result = {}
    for key, value in document.value.items():
        name = str(key)
        original = document.original((key,)) if type(value) is int else None
        result[name] = original if original and re.fullmatch(r"0[0-7]{3,4}", original) else value
    return result


class EncryptedText(msgspec.Struct, frozen=True):
    """A value in the form ``ENC[PKCS7,…]``."""

    text: str


def _encrypted_values(value: Any, secrets: Secrets) -> Any:
    """Return a value with all texts and numbers encrypted."""
    if isinstance(value, Mapping):
        return {str(key): _encrypted_values(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_encrypted_values(item, secrets) for item in value]
    if value is None or isinstance(value, bool):
        return value
    return EncryptedText(secrets.encrypt(str(value)))


def _arguments(module: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the free text and the arguments of a module."""
    if isinstance(value, dict):
        return "", {str(key): item for key, item in value.items()}
    if value is None:
        return "", {}
    text = str(value)
    if module in _FREE_FORM:
        words, arguments = [], {}
        if not re.search(r"(^|\s)(?:" + "|".join(_FREE_ARGUMENTS) + r")=", text):
            return text, {}
        for word in _SPLIT.findall(text):
            name, separator, item = word.partition("=")
            if separator and name in _FREE_ARGUMENTS:
                arguments[name] = item.strip("'\"")
            else:
                words.append(word)
        return " ".join(words), arguments
    arguments, free = {}, []
    for word in _SPLIT.findall(text):
        name, separator, item = word.partition("=")
        if separator and re.fullmatch(r"\w+", name):
            if len(item) > 1 and item[0] == item[-1] and item[0] in "'\"":
                item = item[1:-1]
            arguments[name] = item
        else:
            free.append(word)
    return " ".join(free), arguments


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")] if "{{" not in value else [value]
    return list(value) if isinstance(value, list) else [value]


def _tests_absence(condition: Any, name: str) -> bool:
    return isinstance(condition, str) and bool(
        re.fullmatch(rf"\(?\s*{re.escape(name)}\s+is\s+(not\s+defined|undefined)\s*\)?", condition.strip())
    )


def _normal(path: str) -> str | None:
    import posixpath

    normal = posixpath.normpath(path)
    return None if normal.startswith(("../", "/")) or normal == ".." else normal


def _child_path(context: RoleContext, path: str) -> str:
    start = f"{context.directory}/" if context.directory else ""
    inner = path.removeprefix(start).removeprefix("tasks/")
    name = re.sub(r"\.ya?ml$", "", inner).replace("/", "-").replace("..", "")
    if name in ("manifest", "hiera", "data"):
        name = f"tasks-{name}"
    return "/".join(filter(None, [context.target, f"{name}.yaml"]))


def _candidates(task: Task) -> list[str]:
    """Return the file names of an ``include_vars`` in their order."""
    file = task.free_form or task.arguments.get("file") or task.arguments.get("_raw_params")
    if "dir" in task.arguments:
        raise Untranslatable("a directory of variables")
    if task.loop is None:
        if isinstance(file, str) and "first_found" in file:
            variable = re.search(r"first_found['\"]\s*,\s*(\w+)", file)
            value = task.variables.get(variable[1]) if variable else None
            return _first_found(value)
        return [str(file)] if file else []
    kind, value = task.loop
    if kind == "first_found" or (isinstance(value, str) and "first_found" in value):
        if isinstance(value, str):
            variable = re.search(r"first_found['\"]\s*,\s*(\w+)", value)
            value = task.variables.get(variable[1]) if variable else None
        return _first_found(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [*reversed(value)]
    raise Untranslatable("the list of files is variable")


def _first_found(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = value.get("files")
    files: list[str] = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            files += _first_found(item)
        elif isinstance(item, str):
            files.append(item)
        else:
            raise Untranslatable("the list of files is variable")
    return files


def _separated(candidate: str) -> str:
    """Return a file name with one expression for each fact: ``{{ a + '-' + b }}`` becomes ``{{ a }}-{{ b }}``."""

    def split(match: re.Match[str]) -> str:
        pieces = re.split(r"\s*[+~]\s*", match[1].strip())
        if len(pieces) == 1 or any("(" in piece and ")" not in piece for piece in pieces):
            return match[0]
        return "".join(
            piece[1:-1] if re.fullmatch(r"'[^']*'|\"[^\"]*\"", piece) else f"{{{{ {piece} }}}}"
            for piece in pieces
        )

    return re.sub(r"{{(.*?)}}", split, candidate)


def _with_releases(words: Sequence[str], expressions: Sequence[str]) -> list[str]:
    """Return the words of a file name with the major release of Ubuntu as Puller has it: ``22.04``."""
    result = []
    for word, expression in zip(words, expressions, strict=True):
        is_major = "release" in expression and "split" in expression
        is_ubuntu = (
            is_major
            and re.fullmatch(r"\d\d", word)
            and ("Ubuntu" in words or int(word) in (14, 16, 18, 20, 22, 24, 26))
        )
        result.append(f"{word}.04" if is_ubuntu and "Debian" not in words and "RedHat" not in words else word)
    return result


def _expanded(host: str) -> list[str]:
    match = re.match(r"([^\[]*)\[([0-9]{1,9}):([0-9]{1,9})\](.*)", host)
    if match is None:
        return [host.split(":")[0]]
    start, end = int(match[2]), int(match[3])
    if end - start > 1000:
        raise SourceError(f"the inventory has a range of more than 1000 hosts: {host}")
    return [f"{match[1]}{number:0{len(match[2])}d}{match[4]}" for number in range(start, end + 1)]


def _walk_group(name: str, group: Any, parents: tuple[str, ...], groups: dict[str, set[str]]) -> None:
    if not isinstance(group, dict) or len(parents) > 20:
        return
    names = (*parents, name)
    for host in _mapping(group.get("hosts")):
        for expanded in _expanded(str(host)):
            groups.setdefault(expanded, set()).update(names)
    for child, inner in _mapping(group.get("children")).items():
        _walk_group(str(child), inner or {}, names, groups)


def _repair_references(draft: Draft, labels: Mapping[str, str]) -> None:
    """Remove references to proposals, and replace labels of joined resources."""
    active = [
        resource
        for manifest in draft.manifests.values()
        for resource in manifest.resources
        if not resource.disabled
    ]
    known = {name for item in active for name in (item.reference, f"{item.type}#{item.name}")}
    for manifest in draft.manifests.values():
        for resource in manifest.resources:
            for key in ("subscribe", "reload"):
                references = [
                    f"label#{labels.get(reference.removeprefix('label#'), '')}"
                    if reference.removeprefix("label#") in labels
                    else reference
                    for reference in resource.properties.pop(key, [])
                ]
                kept = [reference for reference in dict.fromkeys(references) if reference in known]
                if kept:
                    resource.properties[key] = kept
