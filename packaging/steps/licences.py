"""Licences of the distributions in a directory, as paragraphs of a machine-readable copyright file."""

from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path


def licences_of(packages: Path, place: str) -> str:
    """Return one paragraph for each distribution except Puller, by name, with the paths of its licence texts.

    ``packages`` is the directory of the modules, which the package installs at the pattern ``place``.
    """
    records = sorted(packages.glob("*.dist-info/METADATA"))
    return "\n".join(paragraph for record in records for paragraph in _paragraph(packages, record, place))


def _paragraph(packages: Path, record: Path, place: str) -> Iterator[str]:
    text = HeaderParser().parsestr(record.read_text(encoding="utf-8"))
    if text["Name"] == "puller-agent":
        return
    folder = record.parent
    texts = sorted(
        str(path.relative_to(packages)) for path in folder.rglob("*") if path.is_file() and _is_licence(path)
    )
    author = (
        text["Author"]
        or text["Author-email"]
        or text["Maintainer"]
        or text["Maintainer-email"]
        or "its authors"
    )
    yield (
        f"Files: {place}/{folder.name}/*\n"
        f"Copyright: {' '.join(author.split())}\n"
        f"License: {_licence(text)}\n"
        f"Comment: {text['Name']} {text['Version']}, as it is published for Python. Its own texts are, beside\n"
        f" that directory: {', '.join(texts) or 'none'}\n"
    )


def _licence(text: Message) -> str:
    if expression := text["License-Expression"]:
        return str(expression)
    classified = [
        value.rpartition(" :: ")[2] for value in text.get_all("Classifier", ()) if value.startswith("License")
    ]
    return " and ".join(classified) or str(text["License"] or "as its texts say").splitlines()[0]


def _is_licence(path: Path) -> bool:
    return path.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "AUTHORS"))
