"""The ``fragment`` resource: a part of a file that several bundles write together (``docs/resources/fragment.md``).

* A fragment changes nothing. The ``file`` with ``fragments: true`` at its path writes all parts at once, so the file
  is validated, changed and restored as any other file.
* Each text is rendered with the data of its own manifest.
* The file waits for all its fragments, and for their requirements. It is not written without one of them.
* Parts are sorted by ``order``, then by name, so the order of bundles and manifests does not matter.

Types of other distributions can be parts of a file too: subclasses of ``FilePart`` (``docs/adding-a-type.md``).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from puller.resources import base
from puller.resources.base import Properties, PropertyError, missing_property
from puller.resources.claims import agree
from puller.resources.content_sources import is_url
from puller.resources.files.content import (
    DEFAULT_ORDER,
    Bytes,
    Content,
    FilePart,
    bundled_content,
    find_content,
)
from puller.resources.files.file_properties import FileProperties, check_content, content_sources
from puller.resources.paths import check_path


class FragmentProperties(Properties, frozen=True):
    """The properties of a fragment."""

    path: str = ""
    """The file, which a ``file`` resource declares with ``fragments: true``."""
    order: int = DEFAULT_ORDER
    """Position in the file, by default 50. Fragments with the same position are sorted by name."""
    content: str | None = None
    """The text of the fragment."""
    source: str | None = None
    """A file with the text: relative to the manifest, absolute, or an ``http(s)://`` URL."""
    checksum: str | None = None
    """SHA-256 of a URL source, in hexadecimal."""
    template: str | None = None
    """A template file, relative to the manifest or absolute."""
    engine: str | None = None
    """The template engine: ``jinja``, ``jet`` or ``go``. The default follows the file name, otherwise ``jinja``."""
    data: dict[Any, Any] | None = None
    """Data for the template, instead of the data of the manifest."""

    def as_file(self, encoding: str = "utf-8") -> FileProperties:
        """Return the properties of a file with this text."""
        names = ("name", "content", "source", "checksum", "template", "engine", "data", "sensitive")
        return FileProperties(**{name: getattr(self, name) for name in names}, encoding=encoding)


class Fragment(FilePart[FragmentProperties]):
    """A part of a file."""

    type_name = "fragment"
    properties_type = FragmentProperties
    secret_properties = frozenset({"content", "data"})
    relative_paths = frozenset({"source", "template"})
    rendered = frozenset({"template"})
    unused = {  # noqa: RUF012  declared as ClassVar in the base class
        "absent": frozenset({"content", "source", "checksum", "template", "engine", "data"})
    }

    @classmethod
    def path(cls, properties: FragmentProperties) -> str:
        return properties.path

    @classmethod
    def position(cls, properties: FragmentProperties) -> int:
        return properties.order

    def look(self) -> None:
        if not is_url(self.properties.source or ""):  # the file downloads it, once
            super().look()

    def text(self, encoding: str) -> Content:
        content = find_content(self.properties.as_file(encoding), self.context)
        return content or Bytes(b"", self.context.system)

    def contents(self) -> Mapping[str, base.Content]:
        if self.properties.ensure != "present":
            return {}
        content = bundled_content(self.properties.as_file(), self.context)
        return {} if content is None else {self.properties.name: content}

    @classmethod
    def check(cls, properties: FragmentProperties) -> Iterator[PropertyError]:
        yield from super().check(properties)
        if not properties.path:
            yield missing_property("path", expected="the path of a file with fragments: true")
        else:
            yield from check_path("path", properties.path)
        file = properties.as_file()
        yield from check_content(file)
        if properties.ensure == "present" and not content_sources(file):
            yield missing_property(
                "content", because=["ensure", "source", "template"], hint="or give source or template"
            )

    @classmethod
    def agree(cls, first: FragmentProperties, second: FragmentProperties) -> FragmentProperties:
        return agree(first, second, exact=("order", "content", "source", "template", "engine", "data"))
