"""Restricted calls of git, and the URLs that git may fetch from.

* git runs as the owner of the working tree, never as root in a tree of another user, because the configuration of a
  repository names programs. The ids are set before git starts.
* git never runs in a directory where another user could replace the repository.
* Hooks, submodules, filters for large files and prompts are disabled. Only transports that fetch are allowed:
  ``ext::`` would run a command, and a URL that begins with ``-`` would be an option.
* Credentials are removed from URLs and passed in the environment, which only the user and root can read. Every user
  can read the arguments of a process.
"""

import base64
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Self
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from foundation.masking import mask_location
from foundation.problems import ProblemCode
from hiera.values import Secret
from puller.errors import ResourceError
from puller.resources.paths import user_name
from puller.system.commands import SEARCH_PATH, Command, Completed
from puller.system.identity import Identity
from puller.system.protocol import System
from puller.system.trusted_files import distrust_of_way

_SCHEMES = ("https", "http", "ssh", "git", "file")
PROTOCOLS = ":".join(_SCHEMES)
"""The value of ``GIT_ALLOW_PROTOCOL``."""
_WANTED = "expected https://, http://, ssh://, git:// or file://, user@host:path, or an absolute path"
_HOST = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_USER = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"
# The short form of ssh(1): the host before the first colon, then the path.
_LIKE_SCP = re.compile(rf"({_USER}@)?({_HOST}|\[[0-9A-Fa-f:.]+\]):[^:\-].*")


class Remote(msgspec.Struct, frozen=True):
    """The origin of a working tree. ``url`` has no credentials."""

    url: str
    authorization: Secret | None = None
    """The HTTP header with the credentials, if any."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL. Raises ``ValueError`` with a sentence that shows no credentials."""
        if not text.isprintable() or " " in text:
            raise ValueError("has blanks or control characters in it")
        if "://" in text:
            return cls._of_url(text)
        if text.startswith("/") or _LIKE_SCP.fullmatch(text):
            return cls(text)
        raise ValueError(f"is {mask_location(text)!r}, {_WANTED}")

    @classmethod
    def _of_url(cls, text: str) -> Self:
        shown = repr(mask_location(text))
        try:
            url_parts = urlsplit(text)
            host, password = url_parts.hostname or "", url_parts.password
            url_parts.port  # noqa: B018  raises for an invalid port
        except ValueError as error:
            raise ValueError(f"is {shown}, which is not a URL: {error}") from None
        if url_parts.scheme not in _SCHEMES or (url_parts.scheme == "file") is bool(url_parts.netloc):
            raise ValueError(f"is {shown}, {_WANTED}")
        if url_parts.scheme != "file" and not re.fullmatch(rf"{_HOST}|[0-9A-Fa-f:.]+", host):
            raise ValueError(f"is {shown}, which names no host")
        # git decodes a URL before it builds the command line of ssh. ``%2D`` is a hyphen and would begin an option
        # there.
        if not unquote(text).isprintable():
            raise ValueError(f"is {shown}, which has encoded control characters in it")
        if url_parts.query or url_parts.fragment:
            raise ValueError(f"is {shown}, expected a URL without a query")
        if url_parts.scheme in ("http", "https"):
            return cls._of_http(url_parts)
        if password is not None:
            raise ValueError(f"is {shown}, but only http:// and https:// accept a password")
        if "@" in url_parts.netloc and not re.fullmatch(
            _USER, unquote(url_parts.username or "").replace("@", "_")
        ):
            raise ValueError(f"is {shown}, whose user is not valid")
        return cls(text)

    @classmethod
    def _of_http(cls, parts: SplitResult) -> Self:
        userinfo, mark, host = parts.netloc.rpartition("@")
        url = parts._replace(netloc=host).geturl()
        if not mark:
            return cls(url)
        user, _, password = userinfo.partition(":")
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        return cls(url, Secret(f"Authorization: Basic {base64.b64encode(pair).decode()}"))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that pass the credentials to git, for this server only."""
        if self.authorization is None:
            return {}
        url_parts = urlsplit(self.url)
        return {
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": f"http.{url_parts.scheme}://{url_parts.netloc}/.extraHeader",
            "GIT_CONFIG_VALUE_0": self.authorization.reveal(),
            # After a redirect, git would send the same headers to another server.
            "GIT_CONFIG_KEY_1": "http.followRedirects",
            "GIT_CONFIG_VALUE_1": "false",
        }


_LOCAL = 600.0  # seconds
_NETWORK = 3600.0  # seconds; a stalled transfer is aborted after a minute
_OUTPUT_LIMIT = 64 * 1024 * 1024  # bytes; the output must be complete
_TAIL = 10  # lines of a failed command's output

_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "protocol.ext.allow": "never",
    "safe.directory": "",  # overrides every exception: git never runs in the tree of another user
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "filter.lfs.clean": "",
    "filter.lfs.smudge": "",
    "filter.lfs.process": "",
    "filter.lfs.required": "false",
    "advice.detachedHead": "false",
    "gc.autoDetach": "false",  # background processes would be killed with the command
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60",
}
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_ALLOW_PROTOCOL": PROTOCOLS,
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",  # replaced commits are compared and counted as the originals
}


class IndexEntry(NamedTuple):
    """A file in the index."""

    mode: str
    """Six octal digits. ``160000`` is a submodule."""
    object: str
    path: str
    is_marked: bool
    """Whether git ignores its changes (assume-unchanged, skip-worktree)."""


Runner = Callable[[Command], Completed]


class StillRunning(ResourceError):
    """A killed git process, which may have left locks and partial work."""


def is_installed() -> bool:
    """Return whether git is installed."""
    return any(os.access(f"{directory}/git", os.X_OK) for directory in SEARCH_PATH.split(":"))


class Git(msgspec.Struct, frozen=True):
    """git in one directory, run as its owner. Methods raise ``ResourceError``."""

    system: System
    directory: str
    identity: Identity | None
    """The user of git. ``None``: the user that runs Puller."""
    remote: Remote | None = None
    is_sensitive: bool = False
    """Whether the output must not be shown."""
    is_bare: bool = False
    """Whether the directory is a git directory without a working tree."""
    why_offline: str = ""
    """Why commands must not contact the remote. Usually empty."""

    def at(self, directory: str, *, is_bare: bool = False) -> "Git":
        """Return a git for a submodule, without a remote."""
        return msgspec.structs.replace(self, directory=directory, remote=None, is_bare=is_bare)

    def why_refused(self) -> str:
        """Return why another user could exchange the repository while git runs. Empty if only its owner can.

        Git makes its working directory an absolute path and opens files by it, regardless of the directory that it was
        started in. Another repository at this path would name programs that run as the user of git. Raises ``OSError``.
        """
        reason = distrust_of_way(f"{self.directory}/{'HEAD' if self.is_bare else '.git'}", self.identity)
        user = user_name(self.identity.uid if self.identity else os.geteuid())
        return reason and f"git is not run as {user} where others could exchange the tree: {reason}"

    def changed_files(self) -> list[str]:
        """Return the files of the commit that have changed."""
        return [path for _, path in self._status("--untracked-files=no", "--ignore-submodules=all")]

    def status(self) -> list[tuple[str, str]]:
        """Return all changed, untracked and ignored files, each with its status code.

        A submodule counts as changed if another commit is checked out in it. Its own files are not compared.
        """
        return self._status("--untracked-files=normal", "--ignored", "--ignore-submodules=dirty")

    def _status(self, *options: str) -> list[tuple[str, str]]:
        entries = self._ask("status", "--porcelain", "-z", "--no-renames", *options).split("\0")
        return [(entry[:2], entry[3:]) for entry in entries if entry]

    def index_entries(self) -> list[IndexEntry]:
        """Return all files of the index."""
        entries = []
        for line in self._ask("ls-files", "-v", "--stage", "-z").split("\0"):
            fields, _, path = line.partition("\t")
            if path:
                mark, mode, object_id, _ = fields.split(" ")
                entries.append(IndexEntry(mode, object_id, path, is_marked=mark != "H"))
        return entries

    def resolve(self, name: str) -> str:
        """Return the commit of a name. Empty if the name is unknown or an ambiguous id."""
        arguments = ("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        completed = self._run(self.system.query, arguments)
        return completed.stdout.strip() if completed.exit_code == 0 else ""

    def differing(self, one: str, other: str) -> set[str]:
        """Return the files that differ between two commits."""
        return {
            *filter(
                None,
                self._ask(
                    "diff", "--name-only", "--no-ext-diff", "--no-renames", "-z", one, other, "--"
                ).split("\0"),
            )
        }

    def find_unpublished_head(self, known: Collection[str]) -> str:
        """Return the newest commit of HEAD that is neither in ``known`` nor in a branch or tag of the remote.

        Empty if none.
        """
        return self._rev_list("HEAD", "--not", "--remotes", "--tags", *known)

    def find_own_commit(self, known: Collection[str], others: Iterable[str], *, has_head: bool) -> str:
        """Return a commit of any ref, HEAD or ``others`` that only this repository has. Empty if none exists.

        Refs of remotes and ``known`` commits are not its own. Tags may be.
        """
        listed = "".join(f"{name}\n" for name in (*others, *(f"^{name}" for name in known)))
        head = ("HEAD",) if has_head else ()
        return self._rev_list("--stdin", *head, "--all", "--not", "--remotes", listed=listed)

    def _rev_list(self, *arguments: str, listed: str = "") -> str:
        options = ("--max-count=1", "--ignore-missing")
        return self._ask("rev-list", *options, *arguments, "--", listed=listed).strip()

    def list_remote(self, *patterns: str) -> dict[str, str]:
        """Return the ids of refs of the remote, by full name."""
        text = self._ask("ls-remote", "--", self.url, *patterns, network=True)
        pairs = (line.split("\t", 1) for line in text.splitlines() if "\t" in line)
        return {name: item for item, name in pairs}

    def clone(self, depth: int | None) -> None:
        """Clone the remote into this empty directory, without files."""
        shallow = ("--depth", str(depth)) if depth else ()
        # Objects of a local repository are copied as well, because its owner could change them later.
        options = ("--quiet", "--no-checkout", "--no-local", "--origin=origin", "--template=", *shallow)
        self._do("clone", *options, "--", self.url, ".", network=True)

    def set_url(self, *, is_new: bool) -> None:
        """Set the URL of the remote. ``is_new``: the repository has no remote yet."""
        self._do("remote", "add" if is_new else "set-url", "origin", self.url)

    def fetch(self, *references: str, depth: int | None = None, complete: bool = False) -> None:
        """Fetch references. ``complete``: with all history."""
        history = ("--unshallow",) if complete else ("--depth", str(depth)) if depth else ()
        self._do("fetch", "--quiet", "--force", *history, "--", "origin", *references, network=True)

    def discard(self) -> None:
        """Restore every file of the commit."""
        self._do("reset", "--hard", "--quiet", "HEAD", "--")

    def checkout(self, revision: str, *, again: bool = False) -> None:
        """Check out a commit. ``again``: an earlier checkout of it may be incomplete.

        If the checkout would overwrite an untracked file, it fails with the file's name.
        """
        how = ("--force",) if again else ("--no-overwrite-ignore",)
        self._do("checkout", "--quiet", "--detach", *how, revision, "--")

    @property
    def url(self) -> str:
        """The URL of the remote without credentials. Raises ``ResourceError`` if it is missing."""
        if self.remote is None:
            raise ResourceError("url is missing")
        return self.remote.url

    def _ask(self, *arguments: str, network: bool = False, listed: str = "") -> str:
        completed = self._run(self.system.query, arguments, network=network, listed=listed)
        return self._output(arguments, completed)

    def _do(self, *arguments: str, network: bool = False) -> None:
        completed = self._run(self.system.execute, arguments, network=network)
        self._output(arguments, completed)

    def _run(
        self, run: Runner, arguments: tuple[str, ...], *, network: bool = False, listed: str = ""
    ) -> Completed:
        if network and self.why_offline:
            raise ResourceError(self.why_offline)
        if refusal := self.why_refused():
            raise ResourceError(refusal)
        settings = [word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}")]
        where = ["--git-dir=.", "--work-tree=."] if self.is_bare else []
        command = Command(
            ["git", *settings, *where, *arguments],
            self._environment(network=network),
            self.directory,
            timeout=_NETWORK if network else _LOCAL,
            output_limit=_OUTPUT_LIMIT,
            input=listed.encode(),
            identity=self.identity,
            directory_owner=self.identity.uid if self.identity else os.geteuid(),
        )
        try:
            return run(command)
        except FileNotFoundError as error:
            if is_installed():
                raise
            raise ResourceError(
                "git is not installed", code=ProblemCode.MISSING_DEPENDENCY, hint="it is in the package git"
            ) from error

    def _environment(self, *, network: bool) -> Mapping[str, str]:
        """Return the environment. Only commands that contact the remote get its credentials.

        Other commands run filters and further programs that the owner of the repository has configured.
        """
        # Reading takes no lock, and git does not search for a repository in directories above.
        own = {"GIT_OPTIONAL_LOCKS": "0", "GIT_CEILING_DIRECTORIES": os.path.dirname(self.directory)}
        return {**_ENVIRONMENT, **own, **(self.remote.environment if self.remote and network else {})}

    def _output(self, arguments: tuple[str, ...], completed: Completed) -> str:
        if completed.exit_code == 0:
            return completed.stdout
        printed = completed.stderr.strip() or completed.stdout.strip()
        tail = "\n".join(printed.splitlines()[-_TAIL:]) if not self.is_sensitive else ""
        sentence = f"git {arguments[0]}: {completed.outcome}" + (f"; it printed:\n{tail}" if tail else "")
        raise (StillRunning if completed.exit_code is None else ResourceError)(sentence)
