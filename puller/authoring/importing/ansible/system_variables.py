"""Files of variables that tasks include by the facts of a system, as levels of the Hiera tree.

* A file name such as ``{{ ansible_os_family }}.yml`` becomes a path of the hierarchy. Each matching file becomes a
  file of this level.
* A file with a condition on the name or family of the system belongs to the level of this system.
* Other conditions and file names raise ``Untranslatable``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from puller.authoring.importing.ansible.jinja_expressions import (
    Names,
    as_expression,
    has_expression,
    translate_condition,
)
from puller.authoring.importing.ansible.task_lists import tasks_of
from puller.authoring.importing.ansible.tasks import Task
from puller.authoring.importing.ansible.variables import Level, Variables
from puller.authoring.importing.draft import Outcome
from puller.authoring.importing.reading import Document, SourceTree
from puller.authoring.importing.written_expressions import Untranslatable, all_of, conjuncts

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
"""Values of facts by the lower-case word in a file name."""
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
"""Interpolations in a Hiera path, by the expression in a manifest."""


class SystemVariables:
    """The variables that tasks include by the facts of a system."""

    def __init__(self, tree: SourceTree, variables: Variables, names: Names) -> None:
        self.tree = tree
        self.variables = variables
        self.names = names
        self._separate: set[str] = set()
        """Files that a task names with a condition that cannot be translated, so no system selects them."""

    def scan(self, directory: str, tasks: Document) -> None:
        """Read the files of ``include_vars`` before all tasks, since their values help to map tasks."""
        tasks_of_variables = list(self._tasks(directory, tasks))
        for task in tasks_of_variables:
            if task.when and not self._is_mapped(task, directory):
                file = str(task.free_form or task.arguments.get("file") or "")
                self._separate.add("/".join(filter(None, [directory, "vars", file.removeprefix("vars/")])))
        for task in tasks_of_variables:
            self._read_included_vars(task, directory)

    def _tasks(self, directory: str, tasks: Document) -> Iterator[Task]:
        """Yield the tasks of a role with ``include_vars``."""
        for path in [tasks.name, *self.tree.files("/".join(filter(None, [directory, "tasks"])))]:
            document = (
                tasks
                if path == tasks.name
                else (self.tree.find_document(path) if path.endswith((".yml", ".yaml")) else None)
            )
            if document is None:
                continue
            for task in tasks_of(document, (), document.value or []):
                if isinstance(task, Task) and task.module == "include_vars":
                    yield task

    def _is_mapped(self, task: Task, directory: str) -> bool:
        return self.outcome(task, directory)[0] is Outcome.MAPPED

    def outcome(self, task: Task, directory: str) -> tuple[Outcome, str]:
        """Return the outcome of an ``include_vars``, and the reason if it is not mapped."""
        try:
            self._system_levels(task, directory)
        except Untranslatable as error:
            return Outcome.UNMAPPED, str(error)
        return Outcome.MAPPED, ""

    def _read_included_vars(self, task: Task, directory: str) -> None:
        """Add the levels of an ``include_vars`` to the variables. Ignore a task that ``outcome`` reports."""
        try:
            levels = self._system_levels(task, directory)
        except Untranslatable:
            return
        for level in levels:
            same = next(
                (existing for existing in self.variables.systems if existing.path == level.path), None
            )
            if same is None:
                self.variables.systems.append(level)
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
        text = re.sub(
            r"^(\.\./)?vars/", "", re.sub(r"{{\s*role_path\s*}}/", "", _with_separate_facts(candidate))
        )
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
            if match is None or inner in ("main.yml", "main.yaml") or path in self._separate:
                continue
            document = self.tree.find_document(path)
            if document is None:
                continue
            words = [
                _PROPER_NAMES.get(word, word) if low else word
                for word, low in zip(match.groups(), lowered, strict=True)
            ]
            words = _with_ubuntu_releases(words, expressions)
            name = re.sub(r"%{[^}]*}", "{}", stem).format(*words) if words else stem
            files[f"os/{name}.yaml"] = self.variables.read(document)
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
            {f"os/{chosen[2]}.yaml": self.variables.read(document)},
            f"os/{{{{ {chosen[1]} }}}}",
        )


def _candidates(task: Task) -> list[str]:
    """Return the file names of an ``include_vars``, the highest precedence first. Raises ``Untranslatable``."""
    file = task.free_form or task.arguments.get("file") or task.arguments.get("_raw_params")
    if "dir" in task.arguments:
        raise Untranslatable("a directory of variables")
    if task.loop is None:
        if isinstance(file, str) and "first_found" in file:
            variable = re.search(r"first_found['\"]\s*,\s*(\w+)", file)
            value = task.variables.get(variable[1]) if variable else None
            return _file_names_of_first_found(value)
        return [str(file)] if file else []
    kind, value = task.loop
    if kind == "first_found" or (isinstance(value, str) and "first_found" in value):
        if isinstance(value, str):
            variable = re.search(r"first_found['\"]\s*,\s*(\w+)", value)
            value = task.variables.get(variable[1]) if variable else None
        return _file_names_of_first_found(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [*reversed(value)]
    raise Untranslatable("the list of files is variable")


def _file_names_of_first_found(value: Any) -> list[str]:
    """Return the file names of a ``first_found``, in order. Raises ``Untranslatable``."""
    if isinstance(value, dict):
        value = value.get("files")
    files: list[str] = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            files += _file_names_of_first_found(item)
        elif isinstance(item, str):
            files.append(item)
        else:
            raise Untranslatable("the list of files is variable")
    return files


def _with_separate_facts(candidate: str) -> str:
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


def _with_ubuntu_releases(words: Sequence[str], expressions: Sequence[str]) -> list[str]:
    """Return the words of a file name. The release ``22`` of Ubuntu becomes ``22.04``, as in the facts."""
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
