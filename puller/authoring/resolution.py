"""A bundle resolved for one machine: its resources, and the contents of their files.

* The machine is represented only by its facts and data, so a remote or future machine gives the same result. Only the
  bundle is read.
* Values derived from secrets are not kept. Their keyed fingerprints allow comparing two resolutions with the same key,
  and reveal nothing without the key.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from foundation.problems import KeyPath, Problem
from hiera.errors import HieraError
from hiera.values import Secret, revealed
from puller.engine.conditions import JoinedParts, why_unmanaged
from puller.errors import PullerError, ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.declare import evaluate_again
from puller.manifest.graph.host_catalog import load_together
from puller.manifest.manifest import Inputs, Manifest, ManifestSource
from puller.manifest.masking import Masks
from puller.resources.base import Content, Context
from puller.system.noop import NoopSystem
from puller.system.protocol import System

_SHOWN = 256 * 1024
"""Maximum bytes of a content whose text is kept."""


_SETTINGS = ("fail_on_error", "give_up_after", "trial", "pre_message", "post_message")


class ResolvedContent(msgspec.Struct, frozen=True):
    """The bytes of one file that a resource would write."""

    size: int
    """Size in bytes."""
    fingerprint: bytes
    """Fingerprint of all bytes. Equal contents have equal fingerprints with the same key."""
    text: str | None = None
    """``None`` for binary, too large or secret content."""
    is_secret: bool = False
    executable: bool = False
    """Whether it becomes a program, if the mode of the resource depends on the file in the bundle."""


class ResolvedResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource on one machine."""

    reference: str
    """Such as ``file#/etc/motd``."""
    names: tuple[str, ...] = ()
    """All references to it: its own, and those by its aliases. Empty for the placeholder of a loop."""
    where: str
    """*file:line* of its declaration, and the item of a loop."""
    properties: Mapping[str, Any] = {}
    """Plain values. Hidden values are masked."""
    hidden: frozenset[KeyPath] = frozenset()
    """The path of each hidden value in ``properties``. A value with a text like a mask may be an ordinary value."""
    contents: Mapping[str, ResolvedContent] = {}
    """By path or name on the machine."""
    failures: tuple[Problem, ...] = ()
    """Reasons why it cannot be applied on this machine."""
    is_late: bool = False
    """Whether another resource may repair the failure by creating a file that is read again later."""
    unmanaged: str = ""
    """Why it is not managed on this machine, by its ``control`` or that of its parent."""
    requires: tuple[str, ...] = ()
    refreshed_by: tuple[str, ...] = ()
    """The resources whose changes refresh it."""
    reloaded_by: tuple[str, ...] = ()
    """The resources whose changes only make it reload."""
    fingerprint: bytes = b""
    """Fingerprint of its properties, including hidden values."""

    @property
    def failure(self) -> str:
        """The failures as text. Empty without any."""
        return "; ".join(map(str, self.failures))


class Resolution(msgspec.Struct, frozen=True):
    """All resources of a bundle on one machine, in the order of their application."""

    resources: tuple[ResolvedResource, ...]
    data: Mapping[str, Any]
    """All data of the bundle's manifest, with its secrets hidden."""
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}
    """The given settings: ``fail_on_error``, ``give_up_after``, ``trial`` and the messages, with secrets hidden."""
    hidden_settings: frozenset[str] = frozenset()


def resolve(
    source: ManifestSource, inputs: Inputs, *, key: bytes, before: Iterable[ManifestSource] = ()
) -> Resolution:
    """Return the bundle at ``source``, resolved for the machine that ``inputs`` describe.

    ``before``: the bundles that precede it on its hosts. ``key``: 16 to 64 random bytes, the same for all resolutions
    to compare. Raises ``SourceError``, and ``ManifestError`` if a host would refuse it.
    """
    manifest = load_together((*before, source), inputs).manifests[-1]
    return _Resolving(manifest, key).resolution()


class Failing(msgspec.Struct):
    """The resources of a valid manifest that fail when they are applied."""

    most: int
    """Maximum number of different files to render. A template for many items counts once."""
    left_out: int = 0
    """Number of resources whose files were not rendered, because of that limit."""

    def of(self, manifest: Manifest) -> Iterator[tuple[Declaration, tuple[Problem, ...]]]:
        """Yield each failing resource with its reasons: its template, its condition, or its content."""
        resolving = _Resolving(manifest, bytes(16))
        rendered: dict[tuple[str, str], int] = {}
        for declaration in manifest.declarations:
            template = _template_of(declaration)
            if declaration.failure:
                continue
            if template and template not in rendered and sum(rendered.values()) >= self.most:
                self.left_out += 1
                continue
            files, failures = resolving.failures_of(declaration)
            if template:
                rendered.setdefault(template, files)
            if failures and not resolving.is_late(declaration):
                yield declaration, failures


def _template_of(declaration: Declaration) -> tuple[str, str] | None:
    """Return the file or directory that a resource renders."""
    name = "source" if declaration.type.type_name == "scaffold" else "template"
    path = getattr(declaration.properties, name, None)
    return (declaration.home.files.directory, path) if isinstance(path, str) else None


class _Resolving:
    """The state of one ``resolve`` call."""

    def __init__(self, manifest: Manifest, key: bytes) -> None:
        self.manifest = manifest
        self.key = key
        self.system: System = NoopSystem()
        self.shared: dict[type, Any] = {}
        self.masks = Masks()

    def resolution(self) -> Resolution:
        resources = tuple(map(self._resource, self.manifest.order))
        data = {str(name): _shown(value) for name, value in self.manifest.scope.data.items()}
        settings = {name: value for name in _SETTINGS if (value := getattr(self.manifest, name))}
        return Resolution(
            resources,
            data,
            tuple(map(str, self.manifest.warnings)),
            {name: _shown(value) for name, value in settings.items()},
            frozenset(name for name, value in settings.items() if isinstance(value, Secret)),
        )

    def _resource(self, index: int) -> ResolvedResource:
        declaration = self.manifest.declarations[index]
        contents: dict[str, ResolvedContent] = {}
        failures, unmanaged = declaration.failures, ""
        try:
            unmanaged = why_unmanaged(declaration)
            if not failures and not unmanaged:
                contents = self._contents(declaration)
        except (ResourceError, HieraError) as error:
            failures = failures or self.masks.problems(error.problems, declaration)
        of = self.manifest.declarations
        return ResolvedResource(
            reference=str(declaration.reference),
            names=tuple(map(str, declaration.names())),
            where=declaration.origin,
            properties={}
            if declaration.failure
            else {**declaration.shown(), **dict(_file_checksums_of_checks(declaration))},
            hidden=frozenset() if declaration.failure else declaration.hidden_paths(),
            contents=contents,
            failures=failures,
            is_late=bool(failures) and self.is_late(declaration),
            unmanaged=unmanaged,
            requires=tuple(str(reference) for reference, _ in self.manifest.requirements(index)),
            refreshed_by=tuple(str(of[i].reference) for i in self.manifest.subscriptions(index)),
            reloaded_by=tuple(str(of[i].reference) for i in self.manifest.reloads(index)),
            fingerprint=b"" if declaration.failure else self._digest(_all_properties(declaration)),
        )

    def failures_of(self, declaration: Declaration) -> tuple[int, tuple[Problem, ...]]:
        """Return the number of files of a resource, and its failures. Empty if it is not managed."""
        try:
            if why_unmanaged(declaration):
                return 1, ()
            contents = declaration.type(declaration.properties, self._context(declaration)).contents()
            return len(contents), ()
        except (ResourceError, HieraError) as error:
            return 1, self.masks.problems(error.problems, declaration)

    def is_late(self, declaration: Declaration) -> bool:
        """Return whether another resource may repair a failure."""
        if declaration.late is None:
            return False

        # A missing key stays missing, and so does a file of the bundle that no resource creates.
        requested = evaluate_again(msgspec.structs.replace(declaration))
        return any(one.properties.name in requested for one in self.manifest.declarations)

    def _contents(self, declaration: Declaration) -> dict[str, ResolvedContent]:
        resource = declaration.type(declaration.properties, self._context(declaration))
        is_hidden = declaration.properties.sensitive
        return {
            path: self._content(content, is_secret=is_hidden or content.is_secret)
            for path, content in resource.contents().items()
        }

    def _context(self, declaration: Declaration) -> Context:
        return Context(
            system=self.system,
            files=declaration.home.files,
            scope=declaration.scope,
            fetch=_no_fetch,
            shared=self.shared,
            declared=self.manifest.names_of,
            joined_parts=JoinedParts(self.manifest, self._context).of,
            noop=True,
        )

    def _content(self, content: Content, *, is_secret: bool) -> ResolvedContent:
        text = None
        if content.size <= _SHOWN:
            data = b"".join(content.chunks())
            digest = self._digest([data])
            text = None if is_secret else _text(data)
        else:
            digest = self._digest(content.chunks())
        executable: bool = getattr(content, "executable", False)  # only contents of files with modes have it
        return ResolvedContent(content.size, digest, text, is_secret, executable)

    def _digest(self, pieces: Iterable[bytes]) -> bytes:
        digest = hashlib.blake2b(key=self.key, digest_size=16)
        for piece in pieces:
            digest.update(piece)
        return digest.digest()


def _all_properties(declaration: Declaration) -> Iterator[bytes]:
    properties = msgspec.to_builtins(declaration.properties, enc_hook=_encoded)
    yield json.dumps(properties, sort_keys=True, default=str).encode("utf-8", "surrogateescape")


def _file_checksums_of_checks(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Yield the SHA-256 of each file of health checks. Its tests decide about a release, and its name may stay the
    same.
    """
    for place in declaration.united or [declaration]:
        for check in place.properties.health_checks:
            if check.goss is None:
                continue
            try:
                data = Path(place.home.files.find(check.goss)).read_bytes()
            except (PullerError, OSError):
                continue  # it fails on the host, and lint reports it
            yield f"health_checks: {check.goss}", f"sha256 {hashlib.sha256(data).hexdigest()[:12]}"


def _encoded(value: Any) -> Any:
    opened = revealed(value)
    return opened if opened is not value else str(value)


def _shown(value: Any) -> Any:
    """Return a plain value. Secrets become their masks."""
    if isinstance(value, Mapping):
        return {str(key): _shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _no_fetch(url: str) -> bytes:
    raise ResourceError(f"{url} is not downloaded while a bundle is only inspected")
