"""Licences of the distributions in a directory, as paragraphs of a machine-readable copyright file."""

from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path


def licences_of(packages: Path) -> str:
    """Return one paragraph for each distribution except Puller, by name, with the paths of its licence texts."""
    records = sorted(packages.glob("*.dist-info/METADATA"))
    return "\n".join(paragraph for record in records for paragraph in _paragraph(packages, record))


def _paragraph(packages: Path, record: Path) -> Iterator[str]:
    said = HeaderParser().parsestr(record.read_text(encoding="utf-8"))
    if said["Name"] == "puller-agent":
        return
    folder = record.parent
    texts = sorted(
        str(path.relative_to(packages)) for path in folder.rglob("*") if path.is_file() and _is_licence(path)
    )
    author = (
        said["Author"]
        or said["Author-email"]
        or said["Maintainer"]
        or said["Maintainer-email"]
        or "its authors"
    )
    yield (
        f"Files: usr/lib/puller/*/{folder.name}/*\n"
        f"Copyright: {' '.join(author.split())}\n"
        f"License: {_licence(said)}\n"
        f"Comment: {said['Name']} {said['Version']}, as it is published for Python. Its own texts are, below\n"
        f" site-packages: {', '.join(texts) or 'none'}\n"
    )


def _licence(said: Message) -> str:
    if expression := said["License-Expression"]:
        return str(expression)
    classified = [
        value.rpartition(" :: ")[2] for value in said.get_all("Classifier", ()) if value.startswith("License")
    ]
    return " and ".join(classified) or str(said["License"] or "as its texts say").splitlines()[0]


def _is_licence(path: Path) -> bool:
    return path.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "AUTHORS"))
