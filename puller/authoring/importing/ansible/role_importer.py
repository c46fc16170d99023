"""Roles and their tasks as manifests of the draft.

* Each file of tasks becomes a manifest. An include becomes a reference to a child manifest.
* Files and templates are copied unchanged.
* Handlers are added after all tasks, because every role can notify them.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.ansible.jinja_expressions import (
    Names,
    as_expression,
    has_expression,
    translate_condition,
    translate_value,
)
from puller.authoring.importing.ansible.manifest_data import SetFacts
from puller.authoring.importing.ansible.mapping import TaskMapper
from puller.authoring.importing.ansible.system_variables import SystemVariables
from puller.authoring.importing.ansible.task_lists import add_handlers, tasks_of
from puller.authoring.importing.ansible.tasks import RoleContext, Task, Work
from puller.authoring.importing.ansible.variables import Variables
from puller.authoring.importing.draft import Draft, ManifestDraft, Origin, Outcome, Remark, Resource
from puller.authoring.importing.reading import Document, SourceTree, as_list, as_mapping
from puller.authoring.importing.written_expressions import Untranslatable, all_of
from puller.errors import SourceError

_INCLUDES: Final = frozenset({"include_tasks", "import_tasks", "include"})
_ROLES: Final = frozenset({"include_role", "import_role"})
_GATHERED: Final = {"service_facts": "services", "package_facts": "packages"}
"""Variables that a module sets, by the module."""
_INCLUDE_DEPTH: Final = 20
"""Maximum depth of nested includes."""
PLATFORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "debian": ("debian-12", "debian-13"),
    "ubuntu": ("ubuntu-22.04", "ubuntu-24.04"),
    "el": ("rocky-9",),
    "enterpriselinux": ("rocky-9",),
    "rocky": ("rocky-9",),
    "centos": ("rocky-9",),
    "redhat": ("rocky-9",),
    "fedora": ("fedora-43",),
}
"""Systems of the test cases, by the platform in ``meta/main.yml`` in lower case."""


def is_role(tree: SourceTree, directory: str) -> bool:
    """Return whether a directory of the source contains a role."""
    return any(
        tree.is_file("/".join(filter(None, [directory, folder, f"main.{ending}"])))
        for folder in ("tasks", "handlers", "meta", "defaults")
        for ending in ("yml", "yaml")
    )


class RoleImporter:
    """Adds roles and tasks to a draft, and holds the state that all roles share."""

    def __init__(self, tree: SourceTree, draft: Draft, variables: Variables, names: Names) -> None:
        self.tree = tree
        self.draft = draft
        self.variables = variables
        self.names = names
        self.top = draft.manifests["manifest.yaml"]
        self.set_facts = SetFacts(draft, variables, names)
        self.system_variables = SystemVariables(tree, variables, names)
        self.contexts: dict[str, RoleContext] = {}
        """Roles by their directory in the draft."""
        self.tests: dict[str, None] = {}
        """Systems of the test cases, in order."""
        self._handlers: list[tuple[RoleContext, ManifestDraft, list[Task]]] = []
        self._registered: dict[str, Task] = {}
        self._notified: dict[str, list[str]] = {}
        self._unmapped_notifications: set[str] = set()
        self._services: list[Resource] = []
        self._labels: set[str] = set()
        self._results: dict[str, list[Resource]] = {}
        self._consumed: set[str] = set()

    # Roles.

    def add_role(self, directory: str, target: str, name: str) -> None:
        """Add a role: its variables, tasks, handlers, templates and files."""
        for folder, level in (("defaults", self.variables.common), ("vars", self.variables.roles)):
            for path in self._variable_files(directory, folder):
                document = self.tree.find_document(path)
                if document is None:
                    self.draft.note_unreadable(path, self.tree.reason(path))
                else:
                    self.variables.merge(level, level.path, self.variables.read(document), Origin(path))
        self._add_dependencies(directory, name)
        manifest = self.top if not target else self.manifest(f"{target}/manifest.yaml", directory)
        context = self.context(directory, target, name)
        self.contexts[target] = context
        tasks = self._find_document(directory, "tasks/main")
        handlers = self._find_document(directory, "handlers/main")
        if tasks is not None:
            self.system_variables.scan(directory, tasks)
            context.known = self.variables.known()
            self.add_tasks(tasks, (), tasks.value or [], context, manifest, [], 0)
        if handlers is not None:
            self.collect_handlers(context, manifest, handlers, (), handlers.value or [])
        self._copy_files(directory, target)
        self._add_tests(directory)

    def apply_role(
        self, name: str, manifest: ManifestDraft, conditions: Sequence[str], origin: Origin | None = None
    ) -> None:
        """Add a role of the repository, and a reference to it in the manifest."""
        short = name.rpartition(".")[2]
        directory = f"roles/{short}"
        place = origin or Origin(directory)
        if has_expression(name) or not is_role(self.tree, directory):
            self.draft.note(
                place,
                name,
                Outcome.UNMAPPED,
                "the role is not part of the source. Import it separately",
                "role",
            )
            manifest.resources.append(
                Resource("", "", comments=[f"Not mapped: the role {name} ({place})"], disabled=True)
            )
            return
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
        self.draft.note(place, name, Outcome.MAPPED, "", "role")

    def context(self, directory: str, target: str, name: str) -> RoleContext:
        """Return the context for the tasks of a role or play."""
        names = msgspec.structs.replace(self.names, role_name=name, files="files")
        return RoleContext(
            self.tree,
            directory,
            target,
            self.draft,
            names,
            known=self.variables.known(),
            registered=self._registered,
            results=self._results,
            consumed=self._consumed,
            notified=self._notified,
            unmapped_notifications=self._unmapped_notifications,
            services=self._services,
            labels=self._labels,
        )

    def manifest(self, path: str, origin: str) -> ManifestDraft:
        """Return the manifest at a path. The first call creates it."""
        if path not in self.draft.manifests:
            self.draft.manifests[path] = ManifestDraft(path, [f"From {origin}."] if origin else [])
        return self.draft.manifests[path]

    def collect_handlers(
        self,
        context: RoleContext,
        manifest: ManifestDraft,
        document: Document,
        path: tuple[str | int, ...],
        entries: Any,
    ) -> None:
        """Keep the handlers of a list until all tasks are mapped."""
        tasks = [task for task in tasks_of(document, path, entries) if isinstance(task, Task)]
        self._handlers.append((context, manifest, tasks))

    def map_handlers(self) -> None:
        """Add the collected handlers to the manifests of their roles."""
        for context, manifest, handlers in self._handlers:
            add_handlers(handlers, context, manifest)

    def _variable_files(self, directory: str, folder: str) -> list[str]:
        """Return the file ``main``, or the files in the directory ``main``."""
        start = "/".join(filter(None, [directory, folder]))
        single = [
            f"{start}/main.{ending}"
            for ending in ("yml", "yaml", "json")
            if self.tree.is_file(f"{start}/main.{ending}")
        ]
        return single or (
            [*self.tree.files(f"{start}/main")] if self.tree.is_directory(f"{start}/main") else []
        )

    def _find_document(self, directory: str, name: str) -> Document | None:
        """Return a YAML document of a role by its path without the ending, or ``None``."""
        for ending in ("yml", "yaml"):
            path = "/".join(filter(None, [directory, f"{name}.{ending}"]))
            if self.tree.is_file(path):
                document = self.tree.find_document(path)
                if document is None:
                    self.draft.note_unreadable(path, self.tree.reason(path))
                return document
        return None

    def _add_dependencies(self, directory: str, name: str) -> None:
        meta = self._find_document(directory, "meta/main")
        value = meta.value if meta is not None and isinstance(meta.value, dict) else {}
        for index, dependency in enumerate(as_list(value.get("dependencies"))):
            values = as_mapping(dependency)
            role = dependency if isinstance(dependency, str) else values.get("role") or values.get("name")
            if meta is not None and role and str(role) != name:
                self.apply_role(
                    str(role), self.top, [], Origin(meta.name, meta.line(("dependencies", index)))
                )

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
        meta = self._find_document(directory, "meta/main")
        value = meta.value if meta is not None and isinstance(meta.value, dict) else {}
        info = value.get("galaxy_info") or {}
        platforms = info.get("platforms") if isinstance(info, dict) else None
        for platform in as_list(platforms):
            name = str(platform.get("name", "") if isinstance(platform, dict) else platform).lower()
            self.tests |= dict.fromkeys(PLATFORMS.get(name, ()))

    # Tasks.

    def add_tasks(
        self,
        document: Document,
        path: tuple[str | int, ...],
        entries: Any,
        context: RoleContext,
        manifest: ManifestDraft,
        stack: Sequence[str],
        depth: int,
    ) -> None:
        """Add the tasks of one list to a manifest. ``stack`` has the files whose includes led to this list."""
        mapper = TaskMapper(context, manifest)
        for task in tasks_of(document, path, entries):
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
                self._registered[task.register] = task
                context.names = context.names.with_registered(task.register)
            if task.module in _GATHERED:
                context.names = context.names.with_registered(_GATHERED[task.module])
            if task.module in _INCLUDES:
                self._include(task, context, manifest, [*stack, document.name], depth, mapper)
            elif task.module in _ROLES:
                self._include_role(task, context, manifest, mapper)
            elif task.module == "set_fact":
                self.set_facts.add(task, context, mapper)
            elif task.module == "include_vars":
                outcome, reason = self.system_variables.outcome(task, context.directory)
                self.draft.note(task.origin, task.name or "include_vars", outcome, reason, "include_vars")
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
            if task.variables or task.loop is not None:
                loop, data = _child_data(task, context, mapper)
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
                self.draft.note_unreadable(path, self.tree.reason(path))
                continue
            if path in stack:
                mapper.propose(task, ["the file includes itself"])
                continue
            target = _child_path(context, path)
            is_new = target not in self.draft.manifests
            child = self.manifest(target, path)
            if is_new:
                inner = msgspec.structs.replace(
                    context, names=names, child_data=context.child_data or bool(data)
                )
                self.add_tasks(document, (), document.value or [], inner, child, stack, depth + 1)
                context.names = context.names.with_registered(*inner.names.registered)
            properties: dict[str, Any] = {"data": data} if data else {}
            control = all_of([*conditions, *selection])
            if control:
                properties["control"] = {"if": control}
            name = target.rpartition("/")[2] if "/" in manifest.path or "/" not in target else target
            title = f"{task.name} ({task.origin})" if task.name else str(task.origin)
            manifest.resources.append(Resource("apply", name, properties, loop=loop, comments=[title]))
        self.draft.note(task.origin, task.name or file, Outcome.MAPPED, "", task.module)

    def _included_files(self, file: str, task: Task, context: RoleContext) -> list[tuple[str, list[str]]]:
        """Return the files that an include can name, each with its conditions. Raises ``Untranslatable``."""
        if not file:
            raise Untranslatable("the file is missing")
        folders = [f"{context.directory}/tasks" if context.directory else "tasks", context.directory]
        own = task.origin.file.rpartition("/")[0]
        if not has_expression(file):
            for folder in (own, *folders):
                path = _path_inside("/".join(filter(None, [folder, file])))
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
        self.apply_role(name, manifest, conditions, task.origin)


def _path_inside(path: str) -> str | None:
    """Return a normalized relative path, or ``None`` for a path that leads outside of the source."""
    normal = posixpath.normpath(path)
    return None if normal.startswith(("../", "/")) or normal == ".." else normal


def _child_path(context: RoleContext, path: str) -> str:
    """Return the path of the manifest for a file of tasks."""
    start = f"{context.directory}/" if context.directory else ""
    inner = path.removeprefix(start).removeprefix("tasks/")
    name = re.sub(r"\.ya?ml$", "", inner).replace("/", "-").replace("..", "")
    if name in ("manifest", "hiera", "data"):
        name = f"tasks-{name}"
    return "/".join(filter(None, [context.target, f"{name}.yaml"]))


def _child_data(task: Task, context: RoleContext, mapper: TaskMapper) -> tuple[str, dict[str, Any]]:
    """Return the ``for`` of an include and the data for its manifest. Raises ``Untranslatable``."""
    names = context.names
    loop = ""
    data: dict[str, Any] = {}
    if task.loop is not None:
        loop = mapper.loop_of(task, Work(task, context, names))
        data[task.loop_variable] = f"{{{{ {task.loop_variable} }}}}"
        names = names.with_loop(task.loop_variable)
    for name, value in task.variables.items():
        data[name] = translate_value(value, names)
    return loop, data
