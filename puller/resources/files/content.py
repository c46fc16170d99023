"""The content that a file should have: found where its properties say, in memory or in another file.

* Text, a rendered template and a download are held in memory; a file of the bundle is streamed, however large it is.
* In noop, what an earlier resource would bring is not known yet; the file would be written, and nobody can say how.
* Whatever is wrong with a source raises ``ResourceError``.
"""

import os
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from foundation.problems import ProblemCode
from hiera.expressions.expressions import Scope
from puller.errors import ResourceError
from puller.resources import base
from puller.resources.base import Context
from puller.resources.checksums import sha256
from puller.resources.content_sources import fetched, is_url
from puller.resources.files.file_properties import FileProperties
from puller.resources.owners import require_trusted_source
from puller.system.protocol import System
from puller.templates.functions import over_data

if TYPE_CHECKING:
    from puller.templates.rendering import Rendered


class Content(base.Content, Protocol):
    """The wanted bytes of a file."""

    def same_as(self, path: str) -> bool:
        """Whether the regular file at ``path``, known to have this size, holds these bytes."""


class Bytes(msgspec.Struct, frozen=True):
    """Content that is in memory: inline, rendered or downloaded."""

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
    """Content that stays in a file of the bundle, however large."""

    path: str
    size: int
    system: System
    is_secret: bool = False
    executable: bool = False
    """Whether its owner may run it."""

    def chunks(self) -> Iterable[bytes]:
        return self.system.read_chunks(self.path)

    def same_as(self, path: str) -> bool:
        return sha256(self.system.read_chunks(path)) == sha256(self.chunks())


class Pending(msgspec.Struct, frozen=True):
    """In noop: content that an earlier resource of the run would bring. Raises ``ResourceError`` for its bytes."""

    path: str
    size: int = -1
    is_secret: bool = False

    def chunks(self) -> Iterable[bytes]:
        raise ResourceError(f"source {self.path} is not there yet")

    def same_as(self, path: str) -> bool:
        del path
        return False


def find_content(properties: FileProperties, context: Context) -> Content | None:
    """The content that these properties name; ``None`` when only attributes are managed. Raises ``ResourceError``."""
    if properties.content is not None:
        text = properties.content
        if properties.interpolate:
            from puller.resources.files.tinycm import interpolate  # a migration aid, rarely used

            return _of_rendered(interpolate(text, context.scope.data), properties, context)
        return Bytes(_encoded(text, properties.encoding), context.system)
    if properties.template is not None:
        return _of_template(properties.template, properties, context)
    if properties.source is not None:
        if is_url(properties.source):
            return _of_download(properties.source, properties, context)
        return _of_file(properties.source, context, gives_set_id=_gives_set_id(properties))
    return None


def bundled_content(properties: FileProperties, context: Context) -> Content | None:
    """The content that the bundle alone gives, without that of a server or of the machine; errors as above."""
    for source in (properties.source, properties.template):
        if source is not None and (is_url(source) or os.path.isabs(source)):
            return None
    return find_content(properties, context)


def _of_template(template: str, properties: FileProperties, context: Context) -> Content:
    from puller.templates.engine_choice import choose_engine  # the engines load what they need
    from puller.templates.rendering import render_file

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
    from puller.templates.rendering import render_text

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
        found = os.lstat(path)  # there is no link left in it, unless one was put there since
    except OSError as error:
        raise ResourceError(
            f"source {path} cannot be read: {error.strerror}", code=ProblemCode.MISSING_FILE, name=path
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise ResourceError(f"source {path} is not a regular file")
    executable = bool(found.st_mode & stat.S_IXUSR)
    return SourceFile(path, found.st_size, context.system, executable=executable)


def _gives_set_id(properties: FileProperties) -> bool:
    return properties.mode is not None and properties.mode.gives_set_id


def _of_rendered(rendered: "Rendered", properties: FileProperties, context: Context) -> Content:
    return Bytes(_encoded(rendered.text, properties.encoding), context.system, rendered.is_secret)


def _scope(properties: FileProperties, context: Context) -> Scope:
    """The scope of templates: that of the manifest, or with data of the file's own.

    Those of TinyCM's definitions also see its constants, the data, by their own names.
    """
    scope = context.scope
    if properties.data is not None:
        scope = over_data(scope, properties.data, context.files)
    return scope.with_names(scope.data) if properties.interpolate else scope


def _is_pending(path: str, context: Context) -> bool:
    """In noop: whether an earlier resource would bring this file, or may do so."""
    return context.system.will_be_written(path) or (context.uncertain(path) and not os.path.lexists(path))


def resolved(path: str, context: Context) -> str:
    """The real path of a source; the links that lead to an absolute one are judged as those of a managed file are."""
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
