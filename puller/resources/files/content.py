"""The desired content of a file, from its properties, in memory or in another file.

* Text, rendered templates and downloads are held in memory. A file of the bundle is streamed, whatever its size.
* In noop, content from an earlier resource is not known yet. The file would be written with unknown content.
* An invalid source raises ``ResourceError``.
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
from puller.resources.content_sources import fetched, is_url, sha256
from puller.resources.files.file_properties import FileProperties
from puller.resources.owners import require_trusted_source
from puller.system.protocol import System
from puller.templates.functions import over_data

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
            from puller.resources.files.tinycm import interpolate  # a rarely used migration aid

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
    """Return content that depends only on the bundle, not on a server or on the machine.

    Raises like ``find_content``.
    """
    for source in (properties.source, properties.template):
        if source is not None and (is_url(source) or os.path.isabs(source)):
            return None
    return find_content(properties, context)


def _of_template(template: str, properties: FileProperties, context: Context) -> Content:
    from puller.templates.rendering import (
        choose_engine,  # engines import many modules
        render_file,
    )

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
