"""Reading one manifest: its text, the section with resources, its data, and the scope of its resources.

* The module does not examine the machine. Callers pass facts and outer data. Only files below the manifest are read.
* A problem that makes the data unavailable is reported once, without the problems that follow from it.
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.filesystem.atomic import read_limited
from bundles.format.release import TrialRule
from foundation.formatting import prefixed
from foundation.problems import KeyPath, Location, Problem, ProblemCode, problems_of, replaced
from foundation.suggestions import meant
from hiera import parsing
from hiera.document.document import Document, annotations_of
from hiera.document.foreign_notation import converted
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, resolve
from hiera.sops import find_ciphertext, is_sealed
from hiera.values import MISSING, Secret
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource, Origin, Surroundings, library_data, open_tree
from puller.errors import ManifestError, SourceError, file_problem
from puller.manifest.children import Family
from puller.manifest.declaration import Agent, Child, Declaration, Home
from puller.manifest.manifest import Inputs
from puller.manifest.problems import Problems
from puller.templates.functions import bundle_functions
from puller.values.common_properties import Removed
from puller.values.export_types import parse_exports
from puller.values.plain_values import explain, parse_value
from puller.version import VersionRange, __version__

if TYPE_CHECKING:
    from hiera.document.annotations import Annotations
    from puller.values.export_types import Export

_DATA_KEYS = ("data", "hierarchy", "overrides")
_RUN_KEYS = (
    "resources",
    "resources_template",
    "as_user",
    "fail_on_error",
    "give_up_after",
    "trial",
    "removed",
    "exports",
    "pre_message",
    "post_message",
)
_ONLY_AT_THE_TOP = ("as_user", "give_up_after", "trial", "exports", "pre_message", "post_message")
"""Keys that have no effect in a child manifest."""
_LIBRARIES = "libraries"
_REQUIRES = "requires"
_PULLER = "puller"
_CCM = "ccm"  # the section of CCM for the same keys
_CCM_TEMPLATE = "resources_jet_file"  # the name of CCM for resources_template
_SIZE_LIMIT = 64 * 1024 * 1024  # bytes


class ManifestText(msgspec.Struct, frozen=True):
    """A manifest as written: a mapping with the place of each part."""

    directory: Path
    name: str
    """The name in messages."""
    value: dict[str, Any]
    problems: Problems
    run: dict[str, Any]
    """The mapping that contains ``resources``: the document itself, or its ``ccm`` section."""
    run_path: KeyPath
    """The path of that mapping."""
    annotations: "Annotations | None" = None

    @classmethod
    def of_file(cls, path: Path, name: str) -> "ManifestText":
        """Return the manifest at ``path``.

        Raise ``SourceError``, and ``ManifestError`` also if it requires another version of the agent.
        """
        text = _read(path, name)
        try:
            value = parsing.load_yaml(text, name)
        except HieraError as error:
            raise ManifestError(error.problems) from error
        problems = Problems.of_text(name, text)
        if is_sealed(text) and (place := find_ciphertext(value)) is not None:
            message = "is encrypted by SOPS, and values of a manifest are never decrypted"
            hint = "move the value into an encrypted file of the Hiera tree"
            problems.add(place, message, code=ProblemCode.UNREADABLE_SECRET, hint=hint)
            problems.raise_any()
        if not isinstance(value, dict):
            problems.add((), "is not a mapping", expected="keys such as data and resources")
            problems.raise_any()
        if _CCM in value and "${" in text:
            value = converted(value)
        manifest_text = cls.of_value(path.parent, value, problems, annotations_of(text, name))
        manifest_text.check_required_version()
        return manifest_text

    @classmethod
    def of_value(
        cls,
        directory: Path,
        value: dict[str, Any],
        problems: Problems,
        annotations: "Annotations | None" = None,
    ) -> "ManifestText":
        """Return a mapping as if it had been read from a manifest in ``directory``."""
        run, run_path = _run_section(value, problems)
        return cls(directory, problems.source, value, problems, run, run_path, annotations)

    @property
    def list_engine(self) -> str | None:
        """The engine that renders ``resources_template``. ``None``: chosen by the name of the template."""
        return "jet" if _CCM_TEMPLATE in (self.value.get(_CCM) or ()) else None

    def converted(self, resources: Any) -> Any:
        """Return a rendered list of resources. In a manifest of CCM, ``${ … }`` is an expression."""
        return converted(resources) if self.run_path else resources

    def refuse(self, key: str, message: str, code: ProblemCode = ProblemCode.INVALID_VALUE) -> None:
        """Record a problem with a key of the run section."""
        self.problems.add((*self.run_path, key), message, code=code, property=key)

    def _add_unknown(self, path: KeyPath, key: str, known: Iterable[str]) -> None:
        """Record an unknown key."""
        names = meant(str(key), known)
        self.problems.add(path, f"unknown key {key!r}", code=ProblemCode.UNKNOWN_KEY, **names)

    def refuse_error(
        self, key: str, error: Exception, mask: Callable[[str], str] | None = None, prefix: str = ""
    ) -> None:
        """Record the problems of an error with a key of the run section. ``mask`` removes secrets."""
        for problem in problems_of(error):
            inner = prefixed(problem, prefix)
            masked = inner if mask is None else _without_names(inner.map_texts(mask))
            self.problems.note(self.problems.placed(masked, (*self.run_path, key)))

    def check_keys(self) -> None:
        """Record every key that is unknown, invalid, or conflicts with another key."""
        top = (*_DATA_KEYS, _LIBRARIES, _REQUIRES, *((_CCM,) if self.run_path else _RUN_KEYS))
        for key in self.value:
            if key not in top and key != _CCM:
                self._add_unknown((key,), key, top)
        for key in self.run if self.run_path else ():
            if key not in _RUN_KEYS:
                self._add_unknown((*self.run_path, key), key, _RUN_KEYS)
        if not isinstance(self.run.get("fail_on_error", False), bool):
            self.refuse("fail_on_error", "fail_on_error must be true or false")
        if not isinstance(self.run.get("as_user", False), bool):
            self.refuse("as_user", "as_user must be true or false")
        runs = self.run.get("give_up_after", 0)
        if type(runs) is not int or runs < 0:  # a bool is an int in Python
            self.refuse("give_up_after", f"give_up_after is {runs!r}, expected a number of runs")
        self._check_trial()
        try:
            self.removed(None)
        except ValueError as error:
            self.refuse("removed", f"removed {error}")
        for place, sentence in self.exports()[1].items():
            path = (*self.run_path, "exports", *place)
            self.problems.add(path, sentence, code=ProblemCode.INVALID_EXPORT)
        if "resources" not in self.run and "resources_template" not in self.run:
            self.problems.add((), "declares no resources", expected="resources or resources_template")

    def _check_trial(self) -> None:
        value = self.run.get("trial", {})
        if not isinstance(value, dict):
            self.refuse("trial", f"trial is {value!r}, expected a mapping such as {{duration: 10m, runs: 2}}")
            return
        for mismatch in explain(TrialRule, value, "key of trial"):
            path = (*self.run_path, "trial", *mismatch.path)
            self.problems.note(self.problems.placed(mismatch.problem(), path))

    def trial(self) -> TrialRule:
        """Return its rule for trials. Raise ``ValueError`` after ``check_keys`` has recorded a problem."""
        return msgspec.convert(self.run.get("trial", {}), TrialRule, dec_hook=parse_value)

    def check_required_version(self) -> None:
        """Check the required version of the agent. Record an invalid requirement.

        Raise ``ManifestError`` if this agent does not meet the requirement. Other problems are not reported then,
        because a newer agent may understand them.
        """
        if _REQUIRES not in self.value:
            return
        required = self.value[_REQUIRES]
        if not isinstance(required, dict) or set(required) != {_PULLER}:
            detail = (
                f'requires is {required!r}, expected a version of the agent, such as {{{_PULLER}: ">=1.2"}}'
            )
            self.problems.add((_REQUIRES,), detail)
            return
        try:
            desired = VersionRange.parse(required[_PULLER])
        except ValueError as error:
            self.problems.add((_REQUIRES, _PULLER), f"requires: {_PULLER} {error}")
            return
        if __version__ not in desired:
            message = f"requires Puller {desired.text}, but this is Puller {__version__}"
            code = ProblemCode.REQUIRES_OTHER_VERSION
            raise ManifestError([self.problems.problem((_REQUIRES, _PULLER), message, code=code)])

    def agent(self, inputs: Inputs) -> Agent:
        """Return the agent that the manifest is read for. An agent of the machine rejects manifests for users."""
        is_for_users = self.run.get("as_user") is True
        if inputs.as_user is None:
            return Agent.SOME_USERS if is_for_users else Agent.OF_THE_MACHINE
        if is_for_users and not inputs.as_user:
            self.refuse(
                "as_user",
                "as_user is true, so only agents of ordinary users apply this manifest (puller run --as-user)",
            )
        return Agent.OF_THIS_USER if inputs.as_user else Agent.OF_THE_MACHINE

    def removed(self, parent: Declaration | None) -> Removed | None:
        """Return the removal policy of its resources. Raise ``ValueError``."""
        if (written := self.run.get("removed")) is not None:
            return Removed.parse(written)
        return None if parent is None else parent.properties.removed

    def exports(self) -> "tuple[dict[str, Export], dict[KeyPath, str]]":
        """Return the declared exports, and their problems by path below ``exports``."""
        if "exports" not in self.run:
            return {}, {}
        return parse_exports(self.run["exports"])

    def refuse_libraries(self) -> None:
        """Record a problem if a child manifest declares libraries. Only the top manifest declares them."""
        if _LIBRARIES in self.value:
            message = "a child manifest cannot declare libraries"
            hint = "declare them in the top manifest, or in the library.yaml of a library"
            self.problems.add((_LIBRARIES,), message, code=ProblemCode.INVALID_LIBRARY, hint=hint)

    def unheard_messages(self) -> list[Problem]:
        """Return a warning for each key of a child manifest that only the top manifest may use."""
        code = ProblemCode.HOST_WARNING
        return [
            self.problems.problem(
                (*self.run_path, key), f"{key} has no effect in a child manifest", code=code, property=key
            )
            for key in _ONLY_AT_THE_TOP
            if key in self.run
        ]

    def message(self, key: str, home: Home) -> str | Secret:
        """Return ``pre_message`` or ``post_message`` with resolved expressions. Record problems."""
        text = self.run.get(key, "")
        if not isinstance(text, str):
            self.refuse(key, f"{key} is {text!r}, expected text")
            return ""
        if not home.has_data:
            return ""
        try:
            message = resolve(text, home.scope)
            return message if isinstance(message, Secret) else str(message)
        except HieraError as error:
            self.refuse_error(key, error, prefix=key)
            return ""


def _read(path: Path, name: str) -> str:
    try:
        return read_limited(path, _SIZE_LIMIT).decode("utf-8")
    except FileNotFoundError:
        raise SourceError(f"{name}: does not exist ({path})") from None
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text, at byte {error.start}"
        problem = Problem(code=ProblemCode.INVALID_DOCUMENT, message=message, location=Location(name))
        raise ManifestError([problem]) from None
    except OSError as error:
        raise SourceError(file_problem(error, "cannot be read", where=name)) from error
    except ValueError as error:
        raise SourceError(str(error)) from error


def _run_section(value: dict[str, Any], problems: Problems) -> tuple[dict[str, Any], KeyPath]:
    if _CCM not in value:
        return value, ()
    section = value[_CCM]
    if both := [key for key in _RUN_KEYS if key in value]:
        problems.add((both[0],), f"{both[0]} cannot be used together with {_CCM}")
    if not isinstance(section, dict):
        problems.add((_CCM,), f"{_CCM} is {section!r}", expected="a mapping")
        return {}, (_CCM,)
    return {("resources_template" if k == _CCM_TEMPLATE else k): v for k, v in section.items()}, (_CCM,)


def home_of(text: ManifestText, inputs: Inputs, family: Family, child: Child | None = None) -> Home:
    """Return the data and the scope of a manifest's resources. After a problem, which is recorded, they have no data.

    ``child`` is set for a child manifest.
    """
    first = None if child is None else child.applied[0]
    has_data = first is None or (first.home.has_data and "data" not in first.unknown)
    data, failures = _checked_data(text, inputs, family, child)
    if failures and has_data:
        has_data = False
        family.refused += failures
    files = family.files if child is None else family.files.at(str(text.directory))
    fail_on_error = text.run.get("fail_on_error") is True
    removed = None
    with contextlib.suppress(ValueError):  # ``check_keys`` has recorded it
        removed = text.removed(first)
    scope = _scope(files, inputs, data)
    agent = text.agent(inputs) if first is None else first.home.agent
    return Home(files, scope, data, fail_on_error, child, has_data, removed, agent)


def _checked_data(
    text: ManifestText, inputs: Inputs, family: Family, child: Child | None
) -> tuple[BundleData, list[Problem]]:
    """Return all sources of data, and the problems that annotations find. Empty data if a source cannot be read."""
    nothing = DataSource(Origin.MANIFEST, text.name, {})
    try:
        if child is not None:
            above, libraries = child.given, child.applied[0].home.data.written_libraries
        else:
            warn = family.warnings.append
            tree = open_tree(text.directory, inputs.facts, inputs.private_key, inputs.identities, warn)
            above, libraries = BundleData(nothing, tree, inputs.sources), _of_libraries(family.files, inputs)
        here = Surroundings(inputs.facts, inputs.environ, inputs.identities)
        data = above.over(_own_data(text, here), libraries, here)
        return data, data.failures()
    except HieraError as error:
        return BundleData(nothing, None, ()), list(error.problems)


def _of_libraries(files: BundleFiles, inputs: Inputs) -> tuple[DataSource, ...]:
    if not files.libraries:
        return ()
    here = Surroundings(inputs.facts, inputs.environ, inputs.identities)
    return library_data(files.libraries.values(), here)


def _own_data(text: ManifestText, here: Surroundings) -> DataSource:
    """Return the manifest's own document (``docs/data.md``)."""
    values = {key: text.value[key] for key in _DATA_KEYS if key in text.value}
    document = Document.from_value(values, text.name, text.problems.locate, text.annotations)
    return here.choose(document, text.name, Origin.MANIFEST)


def _scope(files: BundleFiles, inputs: Inputs, data: BundleData) -> Scope:
    def hiera(key: str, default: Any = MISSING, merge: Any = None) -> Any:
        from puller.data.lookups import look_up  # 2 % of an idle apply, and few manifests need it

        return look_up(data, key, default, merge)

    scope = Scope(inputs.facts, data.all, inputs.environ, {"hiera": hiera})
    return scope.with_names(bundle_functions(files, scope))


def _without_names(problem: Problem) -> Problem:
    """Return a problem without suggested names, which could be secret."""
    return replaced(problem, suggestions=(), known=(), known_more=0)
