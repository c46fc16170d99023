"""Inputs of an installation: the file of a package, and answers to debconf questions.

Packages installed from a file of the bundle, of this machine or of a server:

* The package manager reads the name and version from the file.
* If a checksum is given, the package manager reads a verified private copy. The copy is read when the version is
  unknown and when the package is installed. The version is cached, because a checksum fixes the content.
* A dry run simulates the installation of the same bytes. It downloads the file from a server for this, as a run does.
* Without a checksum, only root may be able to change a file of this machine.

Answers to debconf questions, set before the installation:

* Answers may be passwords, so they are passed on standard input only, and never appear in messages.
* debconf silently accepts questions that no package asks, so the answers are read back.
* An installed package does not ask again. Different answers are detected from debconf's file, without a process.
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.content_sources import fetched, is_url, sha256
from puller.resources.packages.manager import Job, Manager, Record
from puller.resources.packages.properties import Answer, PackageProperties
from puller.resources.read_once import ReadOnce
from puller.state import StateFile
from puller.system.commands import Completed
from puller.system.protocol import Attributes, System
from puller.system.trusted_files import judge

# A private temporary directory for files that a package manager reads.


@contextlib.contextmanager
def private_directory(system: System, mode: int) -> Iterator[str]:
    """Yield a new temporary directory that only this user can write.

    ``mode`` sets who can read it. Raises ``OSError``.
    """
    path = os.path.join(tempfile.gettempdir(), f"puller-{secrets.token_hex(8)}")
    system.make_directory(path, Attributes(os.geteuid(), os.getegid(), mode))
    try:
        yield path
    finally:
        if (status := system.lstat(path)) is not None:
            system.remove_tree(path, status)


_REMEMBERED = "package-files.json"
"""File of the name, version and architecture of packages, by checksum."""


class PackageFile:
    """The source of one package. Methods raise ``ResourceError`` and ``OSError``."""

    def __init__(self, properties: PackageProperties, source: str, context: Context) -> None:
        self._name = properties.name
        self._wanted = properties.checksum
        self._source = source
        self._context = context

    def record(self, manager: Manager, job: Job) -> "Record | None":
        """Return the package in the file. Raises ``ResourceError`` for another package.

        ``None`` in noop if an earlier resource would create the file.
        """
        if not is_url(self._source) and self._is_to_come():
            return None
        if self._wanted is None:
            record = manager.read_package(job, self._path())
        else:
            if not is_url(self._source):
                self._path()  # raises for a missing file, even if its contents are cached
            record = self._remembered(manager, job)
        if not manager.is_named(job, record, self._name):
            result = f"{record.name} ({record.architecture})"
            raise ResourceError(f"source {self._source} is the package {result}", expected=f"{self._name}")
        return record

    @contextlib.contextmanager
    def at_hand(self, suffix: str) -> Iterator[str]:
        """Yield a path for the package manager: the file, or a private copy after a download or a check."""
        if self._wanted is None:
            yield self._path()
            return

        system, data = self._context.system, self._content()
        with private_directory(system, 0o700) as directory:
            path = f"{directory}/package{suffix}"
            system.replace_file(path, (data,), Attributes(os.geteuid(), os.getegid(), 0o600), None)
            yield path

    def path_to_plan(self, keep: Callable[[bytes], str]) -> str | None:
        """Return a path for a simulation. ``None`` if an earlier resource of this dry run would create the file.

        ``keep`` receives verified bytes, and returns a path to them.
        """
        if not is_url(self._source) and self._is_to_come():
            return None
        return self._path() if self._wanted is None else keep(self._content())

    def _place(self) -> str:
        source = self._source
        if os.path.isabs(source):
            return self._context.system.resolve(os.path.normpath(source))
        return self._context.files.find(source)

    def _path(self) -> str:
        path = self._place()
        if not self._context.system.exists(path):
            raise ResourceError(f"source {self._source} is missing")
        if self._wanted is None and os.path.isabs(self._source):
            self._require_ours(path)
        return path

    def _require_ours(self, path: str) -> None:
        """Raise ``ResourceError`` if other users can replace the file, because package scripts run as root."""
        if os.geteuid() == 0 and (why := judge(path).reason):
            raise ResourceError(
                f"source {self._source} may be a file of another user: {why}",
                code=ProblemCode.UNTRUSTED_PATH,
                hint="or give its checksum",
            )

    def _is_to_come(self) -> bool:
        path, system = self._place(), self._context.system
        if not self._context.noop or os.path.lexists(path):
            return False
        return system.will_be_written(path) or self._context.uncertain(path)

    def _content(self) -> bytes:
        """Return the whole content after checking it against the checksum."""
        if is_url(self._source):
            return fetched(self._context.fetch, self._source, self._wanted)
        data = self._context.system.read(self._path())
        if (digest := sha256([data])) != self._wanted:
            detail = f"source {self._source} has sha256 {digest}, expected {self._wanted}"
            raise ResourceError(detail, code=ProblemCode.CHECKSUM_MISMATCH)
        return data

    # Files with a checksum: the package manager reads a private copy of the verified bytes. A user who can write the
    # file must not pass other data to a parser that runs as root.

    def _remembered(self, manager: Manager, job: Job) -> "Record":
        file, noop, desired = self._file(), self._context.noop, self._wanted or ""
        known = (file.load(self._context.log, noop=noop) or {}) if file else {}
        if desired in known:
            if noop and not is_url(self._source):
                self._content()  # raises for a file that the real run would not install
            return Record(*known[desired])
        record = self._read(manager, job)
        if file and not noop:
            file.save({**known, desired: (record.name, record.version, record.architecture)})
        return record

    def _read(self, manager: Manager, job: Job) -> "Record":
        # In memory, because reading the state must not write files.
        with open(os.memfd_create("package", os.MFD_CLOEXEC), "w+b") as stream:
            stream.write(self._content())
            stream.flush()
            return manager.read_package(job, f"/proc/{os.getpid()}/fd/{stream.fileno()}")

    def _file(self) -> "StateFile[dict[str, tuple[str, str, str]]] | None":
        directory = self._context.state_directory
        if directory is None:  # a single command has no cache
            return None
        kind = dict[str, tuple[str, str, str]]
        return StateFile(
            directory / _REMEMBERED, kind, "packages of servers are fetched to see which versions they are"
        )


DATABASE = "/var/cache/debconf/config.dat"
"""All answers except passwords. debconf stores passwords in a separate file and usually removes them after use."""
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NOWARNINGS": "yes"}


def give_answers(job: Job, answers: Sequence[tuple[str, Answer]]) -> None:
    """Set all answers, each with its package, in one call.

    Raises ``ResourceError`` if debconf then has other answers.
    """
    lines = [f"{package} {item.question} {item.type} {item.value.reveal()}\n" for package, item in answers]
    provided = _called("debconf-set-selections", job.execute, lines)
    if provided.exit_code != 0:
        raise ResourceError(f"debconf-set-selections: {provided.outcome}")
    requested = _called("debconf-communicate", job.query, [f"GET {item.question}\n" for _, item in answers])
    result = requested.stdout.split("\n")[:-1]
    for (package, item), line in zip(answers, result, strict=False):
        if line != f"0 {item.value.reveal()}":
            raise ResourceError(
                f"debconf does not have the answer to {item.question} that {package} was given"
            )
    if len(result) != len(answers):
        raise ResourceError(
            f"debconf-communicate: {requested.outcome}, and {len(result)} answers of {len(answers)}"
        )


class Database(ReadOnce[Mapping[str, str]]):
    """The answers in debconf's file, by question."""


def find_other_answers(answers: Sequence[Answer], context: Context) -> Iterator[str]:
    """Yield the questions that debconf answers differently for an installed package. Raises ``OSError``."""
    if Database not in context.shared:
        context.shared[Database] = Database((DATABASE,), _parse)
    known: Mapping[str, str] = context.shared[Database].current(context)
    for answer in answers:
        if known.get(answer.question, answer.value.reveal()) != answer.value.reveal():
            yield answer.question


def _parse(contents: Mapping[str, bytes]) -> Mapping[str, str]:
    """Return the values of stanzas with ``Name: …`` and ``Value: …``. Unanswered questions have no value."""
    result = {}
    for stanza in contents.get(DATABASE, b"").decode(errors="replace").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
        if "Name" in fields and "Value" in fields:
            result[fields["Name"]] = fields["Value"]
    return result


def _called(program: str, run: Callable[..., Completed], lines: Sequence[str]) -> Completed:
    try:
        return run(program, environment=_ENVIRONMENT, text="".join(lines))
    except ResourceError as error:
        raise ResourceError(f"{error} (package debconf)") from error
