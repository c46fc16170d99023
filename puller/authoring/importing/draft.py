"""Drafts of bundles: resources with comments about their origin, written as readable manifests.

* A source object without a counterpart stays at its place as a comment, with its origin, the reason and a proposal.
* The same source produces the same bytes.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from bundles.filesystem.safe_paths import OutputTree, open_output_directory
from foundation.problems import ProblemCode
from hiera.tree import psych
from hiera.tree.psych import RefusedError
from puller.errors import SourceError

_WIDTH: Final = 110
_WORD: Final = r"[A-Za-z0-9_/.@%+=~#-]+(?::[A-Za-z0-9_/.@%+=~#-]+)*"
_PLAIN: Final = re.compile(rf"(?![@%#=~-]){_WORD}(?: (?!#)[()]*{_WORD}[()]*)*")
_RESOLVERS: Final = yaml.SafeLoader.yaml_implicit_resolvers


class Outcome(StrEnum):
    """How much of a source object the draft contains."""

    MAPPED = "mapped"
    REMARK = "remark"
    """A part is missing or needs a check."""
    UNMAPPED = "unmapped"
    NO_CHANGE = "no-change"
    """It changes nothing on a host, such as a message or a query."""


class Origin(msgspec.Struct, frozen=True, order=True):
    """A place in the source."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Remark(msgspec.Struct, frozen=True):
    """The result for one source object."""

    origin: Origin
    subject: str
    """The name of the task or object."""
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    kind: str = ""
    """The module of the task."""


class Resource(msgspec.Struct):
    """A declaration of a resource."""

    type: str
    name: str
    properties: dict[str, Any] = {}
    loop: str = ""
    """``item in data.items``, or empty."""
    outer: tuple[str, ...] = ()
    """Loops around ``loop``, the outermost first."""
    label: str = ""
    comments: list[str] = []
    disabled: bool = False
    """Whether it is only a proposal, written as a comment."""

    @property
    def reference(self) -> str:
        """The reference for subscribers."""
        return f"label#{self.label}" if self.label else f"{self.type}#{self.name}"

    @property
    def identity(self) -> tuple[str, str]:
        """Type and name."""
        return self.type, self.name


class ManifestDraft(msgspec.Struct):
    """One manifest of the draft."""

    path: str
    comments: list[str] = []
    data: dict[str, Any] = {}
    hierarchy: list[str] = []
    overrides: dict[str, dict[str, Any]] = {}
    resources: list[Resource] = []

    def text(self) -> str:
        """Return the manifest as YAML."""
        lines = list(_comment_lines(self.comments, ""))
        if self.data:
            lines += ["data:", *_mapping_lines(self.data, 2)]
        if self.overrides:
            lines += ["hierarchy:", "  order:", *(f"    - {scalar(entry)}" for entry in self.hierarchy)]
            lines += ["  merge: first", "overrides:", *_mapping_lines(self.overrides, 2)]
        lines += list(self._resource_lines())
        return "\n".join(lines) + "\n"

    def _resource_lines(self) -> Iterator[str]:
        if not any(not resource.disabled for resource in self.resources):
            yield "resources: []"
            for resource in self.resources:
                yield from _commented(resource, 0)
            return
        yield "resources:"
        kind = ""
        pending: list[Resource] = []
        for resource in self.resources:
            if resource.disabled:
                pending.append(resource)
                continue
            if resource.type == kind:
                for proposal in pending:
                    yield from _commented(proposal, 6)
            else:
                for proposal in pending:
                    yield from _commented(proposal, 2)
                yield f"  - {resource.type}:"
                kind = resource.type
            pending = []
            yield from _comment_lines(resource.comments, " " * 6)
            yield from _entry_lines(resource)
        for proposal in pending:
            yield from _commented(proposal, 2)


def _comment_lines(comments: Iterable[str], blank: str) -> Iterator[str]:
    """Yield the lines of comments. YAML permits only printable characters in them."""
    for comment in comments:
        for line in comment.splitlines():
            yield f"{blank}# {printable(line)}".rstrip()


def printable(text: str) -> str:
    """Return a text on one line with a replacement for characters that cannot be printed."""
    return "".join(
        character if character.isprintable() or character == "\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def _commented(resource: Resource, indent: int) -> Iterator[str]:
    """Yield a proposal as comments."""
    blank = " " * indent
    yield from _comment_lines(resource.comments, blank)
    if resource.type:
        yield f"{blank}#   - {resource.type}:"
        yield from (f"{blank}#   {line[2:]}".rstrip() for line in _entry_lines(resource))


def _entry_lines(resource: Resource) -> Iterator[str]:
    properties = {key: value for key, value in resource.properties.items() if value is not None}
    if resource.label:
        properties = {**properties, "label": resource.label}
    start = f"      - {scalar(resource.name)}:"
    if resource.loop:
        loops = [*resource.outer, resource.loop]
        yield f"      - for: {scalar(resource.loop) if len(loops) == 1 else _flow(loops)}"
        start = f"        {scalar(resource.name)}:"
    flow = _flow(properties)
    if not properties:
        yield f"{start} {{}}" if resource.loop else start
    elif flow is not None and len(start) + len(flow) < _WIDTH and len(properties) <= 4:
        yield f"{start} {flow}"
    else:
        yield start
        yield from _mapping_lines(properties, 10)


# YAML.


def scalar(value: Any, *, in_flow: bool = False) -> str:
    """Return a scalar as YAML on one line. A text stays a text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # YAML requires a point before an exponent.
        return re.sub(r"^(-?\d+)e", r"\1.0e", str(value)) if math.isfinite(value) else f'"{value}"'
    if isinstance(value, int):
        return str(value)
    text = str(value)
    is_plain = (
        _PLAIN.fullmatch(text)
        and not any(pattern.match(text) for _, pattern in _RESOLVERS.get(text[:1], ()))
        and _is_text_for_hiera(text)
    )
    if is_plain and not (in_flow and ":" in text):
        return text
    if "'" not in text and ('"' in text or "\\" in text) and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _is_text_for_hiera(text: str) -> bool:
    """Return whether the Hiera tree reads a plain scalar as text. Like Psych, it takes ``03:00`` for a number."""
    try:
        value = psych.plain(text)
    except RefusedError:  # a date
        return False
    return isinstance(value, str) and value == text


def _flow(value: Any) -> str | None:
    """Return a value in flow style, or ``None`` for a text of several lines."""
    if isinstance(value, Mapping):
        pairs = [(scalar(key, in_flow=True), _flow(item)) for key, item in value.items()]
        if any(item is None for _, item in pairs):
            return None
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    if isinstance(value, (list, tuple)):
        items = [_flow(item) for item in value]
        return None if None in items else f"[{', '.join(map(str, items))}]"
    if isinstance(value, str) and "\n" in value.rstrip("\n"):
        return None
    return scalar(value, in_flow=True)


def _mapping_lines(mapping: Mapping[str, Any], indent: int) -> Iterator[str]:
    for key, value in mapping.items():
        yield from _value_lines(f"{' ' * indent}{scalar(key)}:", value, indent)


def _value_lines(start: str, value: Any, indent: int) -> Iterator[str]:
    blank = " " * indent
    flow = _flow(value)
    is_nested = isinstance(value, (Mapping, list, tuple))
    if isinstance(value, str) and "\n" in value and _is_block(value):
        yield from _block_lines(start, value, indent)
    elif flow is not None and (not value or not is_nested or len(start) + len(flow) < _WIDTH):
        yield f"{start} {flow if is_nested else scalar(value)}"
    elif isinstance(value, Mapping):
        yield start
        yield from _mapping_lines(value, indent + 2)
    elif isinstance(value, (list, tuple)):
        yield start
        for item in value:
            yield from _item_lines(item, blank)
    else:
        yield f"{start} {scalar(value)}"


def _item_lines(item: Any, blank: str) -> Iterator[str]:
    flow = _flow(item)
    if flow is not None and len(flow) + len(blank) + 4 < _WIDTH:
        yield f"{blank}  - {flow if isinstance(item, (Mapping, list, tuple)) else scalar(item)}"
    elif isinstance(item, Mapping) and item:
        lines = list(_mapping_lines(item, len(blank) + 4))
        yield f"{blank}  - {lines[0].lstrip()}"
        yield from lines[1:]
    elif isinstance(item, (list, tuple)):
        yield f"{blank}  -"
        for inner in item:
            yield from _item_lines(inner, blank + "  ")
    else:
        yield from _value_lines(f"{blank}  -", item, len(blank) + 2)


def _is_block(text: str) -> bool:
    """Return whether a text of several lines can be a literal block."""
    return (
        text.replace("\n", "").replace("\t", "").isprintable()
        and not text.startswith((" ", "\t", "\n"))
        and not any(line != line.rstrip() for line in text.splitlines())
    )


def _block_lines(start: str, text: str, indent: int) -> Iterator[str]:
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    yield f"{start} |{'-' if ends == 0 else '' if ends == 1 else '+'}"
    for line in [*body.split("\n"), *[""] * max(0, ends - 1)]:
        yield f"{' ' * (indent + 2)}{line}".rstrip()


def document_text(value: Mapping[str, Any], comments: Iterable[str] = ()) -> str:
    """Return a mapping as a YAML document with comments above it."""
    lines = list(_comment_lines(comments, ""))
    return "\n".join([*lines, *(_mapping_lines(value, 0) if value else ["{}"])]) + "\n"


# The complete draft.


class Draft(msgspec.Struct):
    """The files of a draft, and the results of all source objects."""

    source: str
    """The name of the source in messages."""
    kind: str
    """Name of the command, such as ``ansible``."""
    manifests: dict[str, ManifestDraft] = {}
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    remarks: list[Remark] = []
    assumptions: dict[str, int] = {}
    """General decisions, with their number of resources."""
    checks: list[str] = []
    """Sentences about parts to check."""

    def count(self) -> Counter[Outcome]:
        """Return the number of source objects by outcome."""
        return Counter(remark.outcome for remark in self.remarks)

    def assume(self, sentence: str) -> None:
        """Record a general decision for one more resource."""
        self.assumptions[sentence] = self.assumptions.get(sentence, 0) + 1

    def check(self, sentence: str) -> None:
        """Record a part to check, once."""
        if sentence not in self.checks:
            self.checks.append(sentence)

    def note(self, origin: Origin, subject: str, outcome: Outcome, reason: str, kind: str = "") -> None:
        """Record the result for one source object. An empty reason is left out."""
        self.remarks.append(Remark(origin, subject, outcome, (reason,) if reason else (), kind))

    def note_unreadable(self, path: str, reason: str) -> None:
        """Record a source file that cannot be read."""
        self.note(Origin(path), "the complete file", Outcome.UNMAPPED, f"the file cannot be read: {reason}")

    def all_files(self) -> dict[str, bytes]:
        """Return all files by path, with ``IMPORT.md``."""
        manifests = {path: manifest.text().encode() for path, manifest in self.manifests.items()}
        return dict(sorted({**self.files, **manifests, "IMPORT.md": self.report().encode()}.items()))

    def summary(self) -> str:
        """Return one line with the counts."""
        count = self.count()
        return (
            f"{count[Outcome.MAPPED]} mapped, {count[Outcome.REMARK]} with a remark, "
            f"{count[Outcome.UNMAPPED]} not mapped, {count[Outcome.NO_CHANGE]} without a change of the host"
        )

    def report(self) -> str:
        """Return ``IMPORT.md``."""
        count = self.count()
        lines = [
            f"# Import of {_code(self.source)}",
            "",
            f"`puller import {self.kind}` wrote this draft. Read it before you publish it.",
            "",
            "| result | number |",
            "| --- | --- |",
            f"| mapped | {count[Outcome.MAPPED]} |",
            f"| mapped, with a remark | {count[Outcome.REMARK]} |",
            f"| not mapped | {count[Outcome.UNMAPPED]} |",
            f"| without a change of the host | {count[Outcome.NO_CHANGE]} |",
            "",
        ]
        for outcome, title, text in _SECTIONS:
            entries = [remark for remark in self.remarks if remark.outcome is outcome and remark.reasons]
            if entries:
                lines += [f"## {title}", "", text, ""]
                lines += [
                    _remark_line(remark) for remark in sorted(entries, key=lambda remark: remark.origin)
                ]
                lines.append("")
        if self.assumptions:
            lines += ["## Decisions", ""]
            lines += [f"* {sentence} ({number})" for sentence, number in sorted(self.assumptions.items())]
            lines.append("")
        if self.checks:
            lines += ["## To check", "", *(f"* {sentence}" for sentence in self.checks), ""]
        lines += [
            "## Next steps",
            "",
            "1. `puller lint` lists errors of the draft.",
            "2. `puller test` checks the draft on each system in `tests`.",
            "3. `puller apply --noop --diff` lists the differences to a host that the source configured before.",
        ]
        return "\n".join(lines) + "\n"


_SECTIONS: Final = (
    (Outcome.UNMAPPED, "Not mapped", "The draft contains these parts only as comments."),
    (Outcome.REMARK, "Mapped with a remark", "A part of the source is missing, or can behave differently."),
    (
        Outcome.NO_CHANGE,
        "Without a change of the host",
        "These parts of the source change nothing on a host. The draft omits them.",
    ),
)


def _remark_line(remark: Remark) -> str:
    kind = f" ({remark.kind})" if remark.kind else ""
    return (
        f"* {_code(str(remark.origin))} {_plain(remark.subject)}{kind}: {_plain('. '.join(remark.reasons))}."
    )


def _code(text: str) -> str:
    return f"`{_plain(text).replace('`', '')}`"


def _plain(text: str) -> str:
    """Return a text on one line that starts no markup."""
    line = " ".join(text.split())
    line = line[:300] + "…" if len(line) > 300 else line
    return "".join(character for character in line if character.isprintable()).replace("<", "&lt;")


def slug(text: str) -> str:
    """Return a text as lower-case words with dashes."""
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"{{.*?}}", "", text).lower()).strip("-")
    return slug[:50].strip("-") or "task"


def unique_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, and add it to the taken names."""
    result, number = name, 2
    while result in taken:
        result, number = f"{name}-{number}", number + 1
    taken.add(result)
    return result


# Output.


def refuse_used_directory(target: Path) -> None:
    """Raise ``SourceError`` if the target exists and is not an empty directory."""
    if os.path.lexists(target) and (not target.is_dir() or os.listdir(target)):
        raise SourceError(f"{target}: exists already and is not empty", code=ProblemCode.UNWRITABLE_OUTPUT)


def write_draft(draft: Draft, target: Path) -> None:
    """Write all files of a draft into a new or empty directory. Raises ``SourceError``."""
    try:
        with open_output_directory(target, make=True) as directory:
            if os.listdir(directory):
                raise SourceError(
                    f"{target}: exists already and is not empty", code=ProblemCode.UNWRITABLE_OUTPUT
                )
        tree = OutputTree(target)
        for path, content in draft.all_files().items():
            mode = 0o755 if path in draft.executable else 0o644
            tree.write(path, [content], mode=mode, durable=False)
        tree.close()
    except OSError as error:
        raise SourceError(
            f"{target}: cannot be written: {error.strerror}", code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error
