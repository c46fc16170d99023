"""Properties of a file, and their validation (``docs/resources/file.md``)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from puller.resources.base import Properties, PropertyError, missing_property
from puller.resources.content_sources import check_sha256, is_url
from puller.resources.paths import MISSING
from puller.resources.tool import Validation, check_validate
from puller.values.file_mode import FileMode

_ATTRIBUTES = ("owner", "group", "mode")
CONTENT_SOURCES = ("content", "source", "template", "fragments")
"""Properties that declare the content of a file. At most one is allowed."""

UNUSED: Final[Mapping[str, frozenset[str]]] = {
    "absent": frozenset(
        {
            *(*_ATTRIBUTES, *CONTENT_SOURCES),
            *("checksum", "engine", "data", "encoding", "interpolate", "validate", "validate_in_place"),
            *("create", "recurse", "purge"),
        }
    )
}


class FileProperties(Properties, frozen=True):
    """The properties of a file or directory."""

    content: str | None = None
    """The text of the file."""
    source: str | None = None
    """A file to copy, or a directory with ``recurse``: relative to the manifest, absolute, or an ``http(s)://`` URL."""
    checksum: str | None = None
    """SHA-256 of a URL source, in hexadecimal. Puller downloads nothing while the file has this checksum."""
    template: str | None = None
    """A template file, relative to the manifest or absolute."""
    engine: str | None = None
    """The template engine: ``jinja``, ``jet`` or ``go``. The default follows the file name, otherwise ``jinja``."""
    data: dict[Any, Any] | None = None
    """Data for the template, instead of the data of the manifest."""
    owner: str | int | None = None
    """User name, or numeric id."""
    group: str | int | None = None
    """Group name, or numeric id."""
    mode: FileMode | None = None
    """Octal digits, a mask such as ``x00``, or changes such as ``u+rwX,go-w``."""
    create: bool = True
    """``false``: set the given owner, group and mode of an existing object, and create nothing."""
    encoding: str = "utf-8"
    """Encoding of the text."""
    force: bool = False
    """Remove an object of another type at the path, and remove directories with contents."""
    recurse: bool = False
    """Manage the contents of the directory too: copy ``source``, if given, and set owner, group and mode."""
    purge: bool = False
    """Remove contents of the directory that neither ``source`` nor another resource declares."""
    validate: str | None = None
    """A command that validates new content before it is installed: ``visudo -cf {}``."""
    validate_in_place: bool = False
    """Run ``validate`` with the new content at the final path, visible only to the command."""
    fragments: bool = False
    """Join the texts of all ``fragment`` resources with this path."""
    interpolate: bool = False
    """For TinyCM: replace ``{name}`` in ``content``, or render the downloaded text. Templates can use data by name."""

    @property
    def validation(self) -> Validation | None:
        """Validation of new content. ``None``: the content is not validated."""
        if self.validate is None:
            return None
        return Validation(self.validate, self.validate_in_place, self.provider == "shell")


def content_sources(properties: FileProperties) -> list[str]:
    """Return the given properties that declare the content."""
    return [name for name in CONTENT_SOURCES if getattr(properties, name) not in (None, False)]


def check_attributes(properties: FileProperties) -> Iterator[PropertyError]:
    """Yield the errors in owner, group and mode of a path that should exist."""
    # Written without a loop for speed, because most files have all three. An id of 0 counts as set.
    owner, group = properties.owner not in (None, ""), properties.group not in (None, "")
    if not (properties.create and owner and group and properties.mode is not None):
        yield from _check_given(properties, (owner, group, properties.mode is not None))
    mode = properties.mode
    # Checked first for speed: the modes of most files cannot set set-id bits.
    if mode is not None and (mode.is_exact or mode.changes) and mode.gives_set_id:
        yield from _check_set_id(properties, str(mode))


def _check_set_id(properties: FileProperties, mode: str) -> Iterator[PropertyError]:
    """Yield errors unless the publisher controls the content of a set-id program."""
    if properties.ensure == "directory" and not properties.recurse:
        return
    if properties.source is not None and is_url(properties.source) and properties.checksum is None:
        sentence = f"is {mode!r}; a set-id file from a URL requires a checksum"
        yield PropertyError("mode", sentence, because=["source", "checksum"])
    names = ("source",) if properties.ensure == "directory" else CONTENT_SOURCES
    is_managed = properties.create and properties.ensure != "exists"
    if is_managed and any(getattr(properties, name) not in (None, False) for name in names):
        return
    fact = f"is {mode!r}, which gives a set-id bit to files whose content is not managed"
    fix = "give content, source or template with ensure: present, or leave the bit out"
    if properties.ensure == "directory":
        fix = "give a source, or declare the directory without recurse"
    yield PropertyError(
        "mode", f"{fact}", because=["ensure", "create", "recurse", *CONTENT_SOURCES], hint=fix
    )


def _check_given(properties: FileProperties, are_given: Sequence[bool]) -> Iterator[PropertyError]:
    provided = [name for name, is_given in zip(_ATTRIBUTES, are_given, strict=True) if is_given]
    if not properties.create:
        yield from _check_not_created(properties, provided)
        return
    for name in _ATTRIBUTES:
        if name not in provided:
            yield missing_property(name, MISSING, because=["ensure", "create"])


def _check_not_created(properties: FileProperties, provided: Sequence[str]) -> Iterator[PropertyError]:
    if not provided:
        yield PropertyError("create", "is false, so owner, group or mode is required", because=_ATTRIBUTES)
    for name in (*CONTENT_SOURCES, "force"):
        if getattr(properties, name) not in (None, False):
            yield PropertyError(name, "has no effect with create: false", because=["create"])


def check_validation(properties: FileProperties) -> Iterator[PropertyError]:
    """Yield the errors in the validation properties."""
    yield from check_validate(
        properties.validate, in_place=properties.validate_in_place, provider=properties.provider
    )
    if properties.validate is not None and (
        not content_sources(properties) or properties.ensure == "directory"
    ):
        yield PropertyError(
            "validate", "is only for a file whose content is managed", because=CONTENT_SOURCES
        )


def check_content(properties: FileProperties) -> Iterator[PropertyError]:
    """Yield the errors in the content properties."""
    provided = content_sources(properties)
    for other in provided[1:]:
        yield PropertyError(other, f"cannot be given together with {provided[0]}", because=[provided[0]])
    if properties.ensure == "directory":
        for name in provided:
            if name != "source" or not properties.recurse:
                yield PropertyError(
                    name, "has no effect with ensure: directory", because=["ensure", "recurse"]
                )
    if properties.recurse or properties.purge:
        yield from _check_tree(properties)
    if properties.engine is not None:
        yield from _check_engine(properties.template or "", properties.engine)
    if properties.data is not None and properties.template is None:
        yield PropertyError("data", "is only for a template", because=["template", "content", "source"])
    if properties.checksum is not None:
        yield from check_sha256("checksum", properties.checksum)
        if properties.source is None or not is_url(properties.source):
            yield PropertyError("checksum", "is only for a source that is a URL", because=["source"])
    if properties.fragments and properties.ensure == "exists":
        yield PropertyError("fragments", "has no effect with ensure: exists", because=["ensure"])
    if properties.encoding != "utf-8":  # skip the codec lookup for most files
        yield from _check_encoding(properties)


def _check_tree(properties: FileProperties) -> Iterator[PropertyError]:
    for name in ("recurse", "purge"):
        if getattr(properties, name) and properties.ensure != "directory":
            yield PropertyError(name, "is only for ensure: directory", because=["ensure"])
    if properties.source is not None and is_url(properties.source):
        yield PropertyError("source", "is a URL", because=["recurse"], expected="a directory of the bundle")
    if properties.source is not None and not properties.create:
        yield PropertyError("source", "has no effect with create: false", because=["create"])
    if properties.purge and properties.name.count("/") < 2:
        yield PropertyError(
            "purge", f"is not done of {properties.name}: all of the system is in there", because=["name"]
        )


def _check_engine(template: str, engine: str) -> Iterator[PropertyError]:
    from puller.templates.rendering import ENGINES, choose_engine  # 3 % of an idle apply without templates

    if engine not in ENGINES:
        yield PropertyError("engine", f"is {engine!r}", expected="jinja, jet or go")
        return
    try:
        choose_engine(template, engine)
    except ValueError as error:
        yield PropertyError("template", str(error), because=["engine"])


def _check_encoding(properties: FileProperties) -> Iterator[PropertyError]:
    encoding = properties.encoding
    try:
        newline = "\n".encode(encoding)
    except LookupError:
        yield PropertyError("encoding", f"is {encoding!r}, which is not a known encoding")
        return
    if properties.fragments and newline != b"\n":  # each text would start with a byte order mark
        message = f"is {encoding!r}, and the texts of fragments cannot be joined in it"
        yield PropertyError("encoding", message, because=["fragments"], expected="an extension of ASCII")
