"""Data without the intended meaning or without effect.

Notations: expressions of another tool, and octal numbers without quotes.

Without effect: keys, overrides and files that no host can use, and comments that look like annotations.

* ``unreachable-override``: an override section that no entry of the hierarchy's order produces, with any facts.
* ``unused-data``: a key of data whose name occurs nowhere else in the bundle. This check is skipped if data is used as
  a whole, or by a computed name.
* ``unused-file``: a data file of the Hiera tree that no level names, with any interpolated values. Levels without files
  are valid, because sites or hosts may add files. This check requires that all data is in files of the bundle.
* A misspelt ``@sensitive``, ``@require`` or ``@validate``, or an annotation that belongs to no key, is an error,
  because the value is shown or unchecked. Any other ``@word`` may be for another program.

``unneeded-reader``: an encrypted file that more recipients can read than need it.

* The check compares the recipients of each file of the bundle with ``recipients.yaml``, in the directory of the bundle
  or above it. Without this file, the hosts of the bundle are unknown, and there are no findings.
* A host whose ``bundles`` do not contain the bundle is unneeded. The bundle has the name of its directory. Hosts
  without the key ``bundles`` are accepted, and so are all people.
* A recipient that belongs to no person and no host is unneeded: usually a host that has gone.
* The store of the fleet is not read, so that lint has the same result everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from foundation.problems import Location, Problem, ProblemCode
from foundation.quantities import first_few
from foundation.suggestions import nearest
from hiera.document.annotations import find_annotations
from hiera.document.foreign_notation import ORDER, converted, find_foreign
from hiera.errors import HieraError
from hiera.expressions.expressions import parse
from hiera.tree.schema import LevelConfig
from puller.authoring.lint.bundle import Bundle, ManifestFile, bundle_of
from puller.authoring.lint.expression_names import levels_of
from puller.authoring.lint.findings import Finding, Severity, Subject, finding, read_text
from puller.authoring.secrets.readers import Sealed, find_sealed
from puller.authoring.secrets.recipients import Recipients, find_recipients
from puller.errors import PullerError
from puller.manifest.problems import Problems

_OCTAL: Final = re.compile(r"0[0-7_]*[1-7][0-7_]*")
_MAYBE_OCTAL: Final = re.compile(r"(?<![\w.'\"])0[0-7_]+\b")

_FILTERS: Final = "Jinja2 has no equivalent, so use filters such as select, map and length"


def check_notations(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all texts, and in the given data documents."""
    provided = (Problems.of_text(str(path), path.read_text()) for path in subject.data_files)
    for text in (*subject.texts, *provided):
        yield from _foreign(text)
        yield from _octal(text)


def _foreign(text: Problems) -> Iterator[Finding]:
    """Yield expressions of CCM: errors where they are evaluated, and warnings where they would be installed literally.

    ``puller apply`` evaluates them in a manifest of CCM. A published bundle has one notation.
    """
    for match in find_foreign(text.text):
        severity = Severity.ERROR if match.is_evaluated else Severity.WARNING
        detail = "is an expression of CCM" if match.is_evaluated else "is ordinary text here"
        column = text.line(match.line).find(match.text) + 1
        fix = f"write {match.replacement}" if match.replacement else _FILTERS
        message = text.mask(f"{match.text} {detail}: {fix}")
        place = Location(text.source, match.line, column)
        yield Finding.of(ProblemCode.FOREIGN_EXPRESSION, place, message, severity=severity)


def _octal(text: Problems) -> Iterator[Finding]:
    """Yield numbers such as ``0644``, which YAML reads as 420."""
    if not _MAYBE_OCTAL.search(text.text):
        return
    try:
        for event in yaml.parse(text.text, yaml.CSafeLoader):
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _OCTAL.fullmatch(event.value):
                mark: Any = event.start_mark  # the types allow events without one
                detail = f"{event.value} is the number {int(event.value, 8)}: quote it, '{event.value}', for a mode"
                place = Location(text.source, mark.line + 1, mark.column + 1)
                yield Finding.of(ProblemCode.UNQUOTED_OCTAL, place, text.mask(detail))
    except yaml.YAMLError:
        return  # already reported


_DEFAULT_ORDER: Final = ("default",)
_WHOLE: Final = re.compile(
    r"\b[dD]ata\b(?!\s*[.\[]\s*['\"]?\w)(?!\s*:)|\b[dD]ata\s*\[\s*[^'\"\s]|\bdata\.(items|keys|values)\("
    r"|\b(lookup|hiera)\(\s*[^'\"\s]"
)
_WORD: Final = re.compile(r"\w+")


def _unreachable(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all manifests of the bundle."""
    bundle = bundle_of(subject)
    for manifest in bundle.manifests.values():
        yield from _overrides(manifest)
    written = [manifest for manifest in bundle.manifests.values() if manifest.rendered is None]
    if subject.manifest is not None and len(written) == 1 and not bundle.files.libraries:
        yield from _unused(bundle, *written)


# -- overrides ------------------------------------------------------------------------------------


def _overrides(manifest: ManifestFile) -> Iterator[Finding]:
    overrides, hierarchy = manifest.value.get("overrides"), manifest.value.get("hierarchy")
    order = hierarchy.get("order") if isinstance(hierarchy, Mapping) else list(_DEFAULT_ORDER)
    if not isinstance(overrides, Mapping) or not isinstance(order, list):
        return
    patterns = [_pattern(converted(entry, ORDER)) for entry in order if isinstance(entry, str)]
    for section in overrides:
        if any(pattern.fullmatch(str(section)) for pattern in patterns):
            continue
        constants = [entry for entry in order if isinstance(entry, str) and "{{" not in entry]
        detail = f"no entry of hierarchy.order produces {section!r}, so no host uses it"
        name = str(section)
        yield manifest.yaml.part(("overrides", section)).finding(
            ProblemCode.UNREACHABLE_OVERRIDE,
            detail,
            name=name,
            suggestions=nearest(name, constants),
        )


def _pattern(entry: str) -> re.Pattern[str]:
    """Return a pattern of all values of an entry. An expression may produce any text."""
    try:
        pieces = parse(entry)
    except HieraError:
        return re.compile(".*", re.DOTALL)
    return re.compile(
        "".join(re.escape(piece) if isinstance(piece, str) else ".*" for piece in pieces), re.DOTALL
    )


# -- data -----------------------------------------------------------------------------------------


def _unused(bundle: Bundle, manifest: ManifestFile) -> Iterator[Finding]:
    data = manifest.value.get("data")
    if not isinstance(data, Mapping) or bundle.tree is not None:
        return
    texts = [*_values({key: value for key, value in manifest.value.items() if key != "data"}), *_values(data)]
    texts += (text for path in _others(bundle, manifest) if (text := read_text(path)) is not None)
    annotated = [line for line in manifest.yaml.text.splitlines() if "@" in line and "#" in line]
    if any(_WHOLE.search(text) for text in texts):
        return
    words = {word for text in (*texts, *annotated) for word in _WORD.findall(text)}
    for place, key in _keys(manifest, data):
        if not words.issuperset(_WORD.findall(key)):
            similar = () if key in data else nearest(key, filter(_is_text, data))
            code, message = ProblemCode.UNUSED_DATA, f"the bundle does not use data.{key}"
            part = manifest.yaml.part(place)
            yield part.finding(code, message, name=key, suggestions=similar)


def _keys(manifest: ManifestFile, data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys of data, and keys that only override sections have, each with its place."""
    yield from ((("data", key), key) for key in filter(_is_text, data))
    overrides = manifest.value.get("overrides")
    for section, own in overrides.items() if isinstance(overrides, Mapping) else ():
        if isinstance(own, Mapping):
            others = (key for key in filter(_is_text, own) if key not in data)
            yield from ((("overrides", section, key), key) for key in others)


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def _others(bundle: Bundle, manifest: ManifestFile) -> Iterator[str]:
    return (path for path in bundle.listed[bundle.root] if path != manifest.path)


def _values(value: Any) -> Iterator[str]:
    """Yield all texts of a value, including conditions and loops, which have no braces."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key) if "{{" in str(key) else ""
            yield from _values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item)


_INTERPOLATION: Final = re.compile(r"%\{[^}]*\}")
_SPECIAL: Final = re.compile(r"[*?\[{\\]|%\{")


def _unreachable_files(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in the tree of the environment and its modules."""
    bundle = bundle_of(subject)
    trees = list(levels_of(bundle.root))
    patterns = [pattern for levels, _ in trees for level in levels for pattern in _patterns(level)]
    for _, files in trees:
        unused = [file for file in files if not any(pattern.fullmatch(file) for pattern in patterns)]
        for file in unused:
            if not _is_named(file, bundle):
                detail = "no level of the Hiera tree refers to this file"
                yield Finding.of(ProblemCode.UNUSED_FILE, Location(bundle.name_of(file)), detail)


def _is_named(path: str, bundle: Bundle) -> bool:
    """Return whether a manifest contains the name of a file, and may use it otherwise."""
    name = os.path.basename(path)
    return any(name in manifest.yaml.text for manifest in bundle.manifests.values())


def _patterns(level: LevelConfig) -> Iterator[re.Pattern[str]]:
    """Yield patterns of all paths that a level may have."""
    places = level.places[-1:] if level.location == "mapped_paths" else level.places
    if level.location is None:
        yield re.compile(re.escape(os.path.join(level.datadir, "")) + ".*", re.DOTALL)
    for place in places:
        written = os.path.normpath(os.path.join(level.datadir, place))
        if not written.endswith(level.extension):
            written += level.extension
        if level.location in ("glob", "globs"):
            texts = [_SPECIAL.split(written, maxsplit=1)[0], ""]
        else:
            texts = _INTERPOLATION.split(written)
        yield re.compile(".*".join(map(re.escape, texts)), re.DOTALL)


def _annotations(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all texts of authors."""
    written = [(text.text, text.source) for text in subject.texts if not text.is_rendered]
    written += [(file.yaml.text, file.yaml.name) for file in bundle_of(subject).data_files]
    for text, source in written:
        try:
            problems = find_annotations(text, source).warnings
        except (HieraError, yaml.YAMLError):
            continue  # reading the manifest reports the mistake
        yield from (finding(problem, subject) for problem in problems)


def check_effects(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in annotations, Hiera files and data."""
    yield from _annotations(subject)
    yield from _unreachable_files(subject)
    yield from _unreachable(subject)


def check_readers(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each file with unneeded readers."""
    if not subject.is_bundle:
        return
    root = os.path.realpath(subject.directory)
    try:
        files = list(find_sealed([root]))
    except (PullerError, HieraError):  # other rules report files that a host cannot read
        return
    if not files:
        return
    try:
        recipients = find_recipients(root)
    except PullerError as error:
        for problem in error.problems:
            yield finding(problem, subject, rule=ProblemCode.UNNEEDED_READER)
        return
    for sealed in files if recipients.source else ():
        unneeded = list(_unneeded(sealed, recipients, os.path.basename(root)))
        if unneeded:
            place = Location(os.path.normpath(os.path.join(subject.name, os.path.relpath(sealed.path, root))))
            message = f"can be read by {first_few(unneeded)}, which the bundle does not need"
            hint = "correct recipients.yaml, or remove the readers with `puller secrets rekey`"
            problem = Problem(code=ProblemCode.UNNEEDED_READER, message=message, location=place, hint=hint)
            yield Finding(problem, Severity.WARNING)


def _unneeded(sealed: Sealed, recipients: Recipients, bundle: str) -> Iterator[str]:
    people = set(recipients.people.values())
    for recipient, name in sealed.names(recipients).items():
        if recipient in people:
            continue
        known = recipients.host_of(recipient)
        if known is None:
            yield f"{name} (unknown)"
        elif known[1].bundles is not None and bundle not in known[1].bundles:
            yield name
