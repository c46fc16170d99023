"""A bench for scaffolds: templates, a target, and the resource, below a temporary directory."""

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.manifest.problems import decode
from puller.resources.base import Context
from puller.resources.scaffolds.scaffold import Scaffold, ScaffoldProperties
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import System
from puller.templates.functions import bundle_functions


class Done(NamedTuple):
    """The result of one scaffold run."""

    differences: list[str]
    """The differences before the change. Empty if in sync."""
    noop: str
    """The message of the dry run before."""


class Bench:
    """A test bench: templates in ``source``, generated files in ``target``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source = directory / "templates"
        self.target = directory / "target"
        self.facts: dict[str, Any] = {"hostname": "web01"}
        self.data: dict[str, Any] = {}

    def template(self, path: str, content: str | bytes = "x\n", mode: int = 0o644) -> Path:
        return put(self.source / path, content, mode)

    def present(self, path: str, content: str | bytes = "x\n", mode: int = 0o644) -> Path:
        """Create an existing file in the target."""
        return put(self.target / path, content, mode)

    def scaffold(
        self, *, noop: bool = False, uncertain: bool = False, system: System | None = None, **properties: Any
    ) -> Scaffold:
        raw = {"name": str(self.target), "source": "templates", **properties}
        decoded = cast(ScaffoldProperties, decode(Scaffold, Scaffold.accept(raw)))
        for error in Scaffold.problems(decoded):
            raise error
        system = system or (NoopSystem() if noop else LocalSystem())
        scope = Scope(self.facts, self.data, dict(os.environ))
        scope = scope.with_names(bundle_functions(BundleFiles.of(self.directory), scope))
        context = Context(
            system,
            BundleFiles.of(self.directory),
            scope,
            _no_network,
            {},
            lambda kind: [],
            noop=noop,
            uncertain=lambda path, apart_from="": uncertain,
        )
        return Scaffold(decoded, context)

    def predict(self, **properties: Any) -> str:
        """Return the dry run's message, ``stable``, or ``failure: …``."""
        scaffold = self.scaffold(noop=True, **properties)
        try:
            actual = scaffold.look()
            differences = scaffold.differences(actual)
            return scaffold.noop_message(differences, actual) if differences else "stable"
        except (ResourceError, OSError) as error:
            return f"failure: {error}"

    def apply(self, **properties: Any) -> Done:
        """Apply after a dry run, and check that a second run changes nothing."""
        before = self.snapshot()
        predicted = self.predict(**properties)
        assert self.snapshot() == before, "a dry run changes nothing"
        scaffold = self.scaffold(**properties)
        actual = scaffold.look()
        differences = scaffold.differences(actual)
        assert predicted == (scaffold.noop_message(differences, actual) if differences else "stable")
        if differences:
            scaffold.change(differences, actual)
            assert not scaffold.differences(scaffold.look()), "the change has done it all"
            again = self.scaffold(**properties)
            assert not again.differences(again.look()), "the second run changes nothing"
        return Done([str(difference) for difference in differences], predicted)

    def fail(self, **properties: Any) -> str:
        """Return the error of a run. Its dry run must raise the same error, and neither may change a file."""
        before, predicted = self.snapshot(), self.predict(**properties)
        with pytest.raises((ResourceError, OSError)) as failed:
            self._run(**properties)
        assert predicted == f"failure: {failed.value}"
        assert self.snapshot() == before
        return str(failed.value).replace(str(self.directory), "")

    def _run(self, **properties: Any) -> None:
        scaffold = self.scaffold(**properties)
        actual = scaffold.look()
        scaffold.change(scaffold.differences(actual), actual)

    def files(self) -> dict[str, str]:
        """Return the text of files, ``-> …`` for links and ``/`` for empty directories in the target."""
        return tree(self.target)

    def snapshot(self) -> dict[str, tuple[Any, ...]]:
        """Return content and all relevant attributes of every file below the directory."""
        result = {}
        for path in sorted(self.directory.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
            result[str(path)] = (
                status.st_mode,
                status.st_uid,
                status.st_gid,
                status.st_ino,
                status.st_mtime_ns,
                content,
            )
        return result


def put(path: Path, content: str | bytes, mode: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def tree(root: Path) -> dict[str, str]:
    result: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            result[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            if not any(path.iterdir()):
                result[f"{name}/"] = ""
        else:
            result[name] = path.read_bytes().decode("utf-8", "replace") if path.is_file() else "(special)"
    return result


def _no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return an empty bench."""
    made = Bench(tmp_path)
    made.source.mkdir()
    return made
