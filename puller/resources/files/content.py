"""The desired content of a file, from its properties, in memory or in another file.

* Text, rendered templates and downloads are held in memory. A file of the bundle is streamed, whatever its size.
* In noop, content from an earlier resource is not known yet. The file would be written with unknown content.
* An invalid source raises ``ResourceError``.
* The parts of a file with ``fragments: true`` are sorted by position, then by name. Types of other distributions can be
  parts too: subclasses of ``FilePart``.
"""

import os
import stat
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from foundation.problems import ProblemCode
from hiera.expressions.expressions import Scope
from puller.errors import ResourceError
from puller.resources import base
from puller.resources.base import Context, Properties, PropertyError, Resource, Stateless
from puller.resources.claims import Claim
from puller.resources.content_sources import fetched, is_url, sha256
from puller.resources.files.file_properties import FileProperties
from puller.resources.paths import require_trusted_source
from puller.system.protocol import System
from puller.templates.functions import over_data
from puller.values.common_properties import Reference

if TYPE_CHECKING:
    from puller.templates.rendering import Rendered


class Content(base.Content, Protocol):
    """The desired bytes of a file."""

    def same_as(self, path: str) -> bool:
        """Return whether the regular file at ``path`` holds these bytes. The caller has compared the size."""


class Bytes(msgspec.Struct, frozen=True):
    """Content in memory: inline, rendered or downloaded."""

    data: bytes
    system: System
    is_secret: bool = False

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterable[bytes]:
        return (self.data,)

    def same_as(self, path: str) -> bool:
        return self.system.holds(path, self.data)


class SourceFile(msgspec.Struct, frozen=True):
    """Content in a file of the bundle, which is streamed."""

    path: str
    size: int
    system: System
    is_secret: bool = False
    executable: bool = False
    """Whether its owner may execute it."""

    def chunks(self) -> Iterable[bytes]:
        return self.system.read_chunks(self.path)

    def same_as(self, path: str) -> bool:
        return sha256(self.system.read_chunks(path)) == sha256(self.chunks())


class Pending(msgspec.Struct, frozen=True):
    """In noop: content from an earlier resource of the run. ``chunks`` raises ``ResourceError``."""

    path: str
    size: int = -1
    is_secret: bool = False

    def chunks(self) -> Iterable[bytes]:
        raise ResourceError(f"source {self.path} is not there yet")

    def same_as(self, path: str) -> bool:
        del path
        return False


def find_content(properties: FileProperties, context: Context) -> Content | None:
    """Return the declared content, ``None`` if only attributes are managed. Raises ``ResourceError``."""
    if properties.content is not None:
        text = properties.content
        if properties.interpolate:
            # 4 % of an idle apply, and a rare migration aid
            from puller.resources.files.tinycm import interpolate

            return _of_rendered(interpolate(text, context.scope.data), properties, context)
        return Bytes(_encoded(text, properties.encoding), context.system)
    if properties.template is not None:
        return _of_template(properties.template, properties, context)
    if properties.source is not None:
        if is_url(properties.source):
            return _of_download(properties.source, properties, context)
        return _of_file(properties.source, context, gives_set_id=_gives_set_id(properties))
    if properties.fragments:
        return _joined(properties, context)
    return None


def bundled_content(properties: FileProperties, context: Context) -> Content | None:
    """Return content that depends only on the bundle, not on a server or on the machine.

    Raises like ``find_content``.
    """
    for source in (properties.source, properties.template):
        if source is not None and (is_url(source) or os.path.isabs(source)):
            return None
    return find_content(properties, context)


def _of_template(template: str, properties: FileProperties, context: Context) -> Content:
    # 3 % of an idle apply without templates
    from puller.templates.rendering import choose_engine, render_file

    engine = choose_engine(template, properties.engine)
    path, sensitive = resolved(template, context), properties.sensitive
    if _is_pending(path, context):
        return Pending(path)
    if _gives_set_id(properties) and os.path.lexists(path):
        require_trusted_source(path)
    rendered = render_file(path, engine, _scope(properties, context), context.files, sensitive=sensitive)
    return _of_rendered(rendered, properties, context)


def _of_download(source: str, properties: FileProperties, context: Context) -> Content:
    data = fetched(context.fetch, source, properties.checksum)
    if not properties.interpolate:
        return Bytes(data, context.system)
    from puller.templates.rendering import render_text  # as above

    text, sensitive = _decoded(data, source, properties.encoding), properties.sensitive
    scope = _scope(properties, context)
    rendered = render_text(source, text, "jinja", scope, context.files, sensitive=sensitive)
    return _of_rendered(rendered, properties, context)


def _of_file(source: str, context: Context, *, gives_set_id: bool) -> Content:
    path = resolved(source, context)
    if _is_pending(path, context):
        return Pending(path)
    try:
        if gives_set_id:
            require_trusted_source(path)
        status = os.lstat(path)  # resolved, so only a link made meanwhile is possible
    except OSError as error:
        raise ResourceError(
            f"source {path} cannot be read: {error.strerror}", code=ProblemCode.MISSING_FILE, name=path
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise ResourceError(f"source {path} is not a regular file")
    executable = bool(status.st_mode & stat.S_IXUSR)
    return SourceFile(path, status.st_size, context.system, executable=executable)


def _gives_set_id(properties: FileProperties) -> bool:
    return properties.mode is not None and properties.mode.gives_set_id


def _of_rendered(rendered: "Rendered", properties: FileProperties, context: Context) -> Content:
    return Bytes(_encoded(rendered.text, properties.encoding), context.system, rendered.is_secret)


def _scope(properties: FileProperties, context: Context) -> Scope:
    """Return the template scope: the manifest's scope, or a scope with the file's own data.

    TinyCM's templates (``interpolate``) also see the data by name.
    """
    scope = context.scope
    if properties.data is not None:
        scope = over_data(scope, properties.data, context.files)
    return scope.with_names(scope.data) if properties.interpolate else scope


def _is_pending(path: str, context: Context) -> bool:
    """Return whether an earlier resource would or may create this file, in noop."""
    return context.system.will_be_written(path) or (context.uncertain(path) and not os.path.lexists(path))


def resolved(path: str, context: Context) -> str:
    """Return the real path of a source. Links in an absolute path are checked like those of a managed file."""
    if os.path.isabs(path):
        return context.system.resolve(os.path.normpath(path))
    return context.files.find(path)


def _encoded(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise ResourceError(f"content cannot be written as {encoding}: {error.reason}") from error


def _decoded(data: bytes, source: str, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ResourceError(f"source {source} is not {encoding}: {error.reason}") from error


# Files of several parts.

DEFAULT_ORDER = 50
"""The position of a part without its own."""

P = TypeVar("P", bound=Properties)


class FilePart(Stateless[P]):
    """A resource whose text is a part of a ``file`` with ``fragments: true``."""

    # Methods of the types

    @classmethod
    @abstractmethod
    def path(cls, properties: Any) -> str:
        """Return the path of the file."""

    @abstractmethod
    def text(self, encoding: str) -> Content:
        """Return the text. A missing newline at its end is added. Raises ``ResourceError`` and ``HieraError``."""

    @classmethod
    def position(cls, properties: Any) -> int:
        """Return the position in the file. Parts with the same position are sorted by their references."""
        del properties
        return DEFAULT_ORDER

    # Resource

    @classmethod
    def part_of(cls, properties: Any) -> Reference | None:
        return Reference.to("file", cls.path(properties)) if properties.ensure == "present" else None

    def look(self) -> None:
        """Return nothing: the file reads its own state.

        Raises the errors of ``text``, so that a part that cannot be made fails at its own place.
        """
        self.text("utf-8")

    @classmethod
    def check(cls, properties: Any) -> Iterator[PropertyError]:
        if properties.ensure not in ("present", "absent"):
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
        hint = "set it on the file that contains the fragment"
        for name in ("health_checks", "noop", "removed"):
            if getattr(properties, name):
                yield PropertyError(name, "has no effect on a part of a file", hint=hint)

    @classmethod
    def claims(cls, properties: Any) -> Sequence[Claim]:
        """Return no claims: the file claims its path."""
        del properties
        return ()

    @classmethod
    def places(cls, properties: Any) -> Sequence[str]:
        """Return no paths, also if the name looks like one."""
        del properties
        return ()

    @classmethod
    def identity(cls, properties: Any, spellings: Any) -> str:
        """Return the name, which is no path."""
        del spellings
        name: str = properties.name
        return name


def _joined(properties: FileProperties, context: Context) -> Content:
    """Return the content of a file with ``fragments: true``. ``Pending`` if a part is unknown in noop.

    Raises ``ResourceError`` and ``HieraError`` if the text of a part cannot be determined.
    """
    reference = f"file#{properties.name}"
    parts = context.joined_parts(reference)
    if parts is None:
        return Pending(reference)
    texts = [_text(part, properties.encoding) for part in sorted(_file_parts(parts), key=_place)]
    if pending := next((text for text in texts if isinstance(text, Pending)), None):
        return pending
    data = b"".join(map(_ended, texts))
    is_secret = any(text.is_secret for text in texts) or any(part.properties.sensitive for part in parts)
    return Bytes(data, context.system, is_secret)


def _file_parts(parts: Sequence[Resource[Any, Any]]) -> Iterator[FilePart[Any]]:
    """Yield the parts. Raises ``ResourceError`` for a type without a text, whose part would be lost."""
    for part in parts:
        if not isinstance(part, FilePart):
            reference = f"{part.type_name}#{part.properties.name}"
            raise ResourceError(
                f"{reference} is a part of this file, and its type is no subclass of FilePart"
            )
        yield part


def _place(part: FilePart[Any]) -> tuple[int, str, str]:
    return part.position(part.properties), part.properties.name, part.type_name


def _text(part: FilePart[Any], encoding: str) -> Content:
    try:
        return part.text(encoding)
    except ResourceError as error:
        reference = f"{part.type_name}#{part.properties.name}"
        raise ResourceError(f"{reference}: {error}", code=error.code) from None


def _ended(text: Content) -> bytes:
    """Return the bytes of a text, with a newline at the end, so that lines of two parts never join."""
    data = b"".join(text.chunks())
    return data if not data or data.endswith(b"\n") else data + b"\n"
