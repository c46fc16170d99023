"""Comparison of a resolved bundle with the expectations and the snapshot of a case.

* Properties and resources that a case does not mention are not compared. A resource that fails unexpectedly fails the
  case.
* Hidden values cannot be compared. An expectation about a hidden value is a failure with this reason.
* A snapshot lists all resources of one case as sorted YAML, for reviews. It contains no times, manifest lines or
  paths of the author's machine.
* A hidden value is a marker in a snapshot. A digest would allow guesses.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from os.path import join
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from bundles.filesystem.atomic import read_limited
from foundation.formatting import did_you_mean
from foundation.masking import HIDDEN, mask_urls
from foundation.problems import Problem
from hiera.errors import HieraError
from puller.authoring.cases.case_files import (
    ABSENT,
    CONTENT,
    SNAPSHOTS,
    TESTS,
    UNMANAGED,
    LoadedCase,
    property_fields,
)
from puller.authoring.cases.matchers import (
    IsSecret,
    Something,
    compares_hidden,
    fits,
    has_tag,
    shown,
    with_hidden,
)
from puller.authoring.cases.results import Failure
from puller.authoring.resolution import Resolution, ResolvedContent, ResolvedResource
from puller.resources.registry import find_type

_MOST_LINES: Final = 60
"""Maximum lines of a diff in a message."""


class _Mismatch(Exception):
    """A difference from the expectation."""

    def __init__(self, message: str, expected: str = "", found: str = "", diff: str = "") -> None:
        super().__init__(message)
        self.expected, self.found, self.diff = expected, found, diff


def judge(loaded: LoadedCase, resolution: Resolution) -> Iterator[Failure]:
    """Yield all differences from the case, in its order, then unexpected failures."""
    judging = _Judging(loaded, resolution)
    for reference, expected in loaded.case.expect.items():
        yield from judging.expectation(reference, expected)
    yield from judging.failures()


def judge_refusal(loaded: LoadedCase, problems: Iterable[Problem]) -> Iterator[Failure]:
    """Yield all differences from the case for a bundle whose manifest is refused with ``problems``."""
    texts = _texts(loaded)
    if texts and loaded.case.expect:
        message = "the manifest is rejected, so its resources cannot be compared"
        yield Failure(where=loaded.places.where(("expect",)), message=message)
    yield from _compare(
        loaded, [(str(problem), f"the manifest is rejected: {problem}", "") for problem in problems]
    )


def _texts(loaded: LoadedCase) -> list[str]:
    fails = loaded.case.fails
    return [fails] if isinstance(fails, str) else fails


def _compare(loaded: LoadedCase, found: list[tuple[str, str, str]]) -> Iterator[Failure]:
    """Yield unexpected failures, and expected texts without a failure. ``found``: text, message, declaration."""
    texts = _texts(loaded)
    where = loaded.places.where(("fails",))
    for text in texts:
        if not any(text in one for one, _, _ in found):
            failed = found[0][0] if found else "nothing fails"
            message = f"fails: expected {shown(text)}, found {shown(failed)}"
            yield Failure(where=where, message=message, expected=text, found=failed)
    for one, said, declared in found:
        if not any(text in one for text in texts):
            yield Failure(where=where, message=said, found=one, declared=declared)


class _Judging:
    """One case with the resolved bundle."""

    def __init__(self, loaded: LoadedCase, resolution: Resolution) -> None:
        self.loaded = loaded
        self.resources = resolution.resources
        self.by_name = {name: one for one in resolution.resources for name in one.names or (one.reference,)}

    def failures(self) -> Iterator[Failure]:
        """Yield unexpected failures of resources. A failure that a later resolution may repair does not count."""
        texts = _texts(self.loaded)
        found = [
            (one.failure, f"{one.reference} fails: {one.failure}", one.where)
            for one in self.resources
            if one.failure and not one.unmanaged
            if not one.is_late or any(text in one.failure for text in texts)
        ]
        yield from _compare(self.loaded, found)

    def expectation(self, reference: str, expected: Any) -> Iterator[Failure]:
        """Yield all differences from the expectation of one resource."""
        found = self.by_name.get(reference)
        if not isinstance(expected, dict):
            yield from self._presence(reference, expected, found)
        elif found is None:
            names = [name for name in self.by_name if name.partition("#")[0] == reference.partition("#")[0]]
            what = f"is not declared on this machine{_nearest(reference, names)}"
            yield self._failure((reference,), f"{reference}: {what}")
        elif found.unmanaged:
            what = f"is not managed on this machine: {found.unmanaged}"
            yield self._failure((reference,), f"{reference}: {what}", found)
        elif found.failure and found.is_late:
            what = f"is unknown before it is applied: {found.failure}"
            yield self._failure((reference,), f"{reference}: {what}", found)
        elif found.failure and _texts(self.loaded):
            what = f"fails, so it cannot be compared: {found.failure}"
            yield self._failure((reference,), f"{reference}: {what}", found)
        elif not found.failure:  # a failed resource is reported once, by failures()
            yield from self._properties(reference, expected, found)

    def _presence(self, reference: str, expected: str, found: ResolvedResource | None) -> Iterator[Failure]:
        if expected == ABSENT and found is not None and not found.unmanaged:
            is_absent = found.properties.get("ensure") == ABSENT
            hint = " with ensure: absent. To expect it, write {ensure: absent}" if is_absent else ""
            message = f"{reference}: expected {ABSENT}, found a declaration{hint}"
            yield self._failure((reference,), message, found)
        elif expected == UNMANAGED and found is None:
            message = f"{reference}: expected {UNMANAGED}, but it is not declared on this machine"
            yield self._failure((reference,), f"{message}{_nearest(reference, self.by_name)}")
        elif expected == UNMANAGED and found is not None and not found.unmanaged:
            message = f"{reference}: expected {UNMANAGED}, but it is managed on this machine"
            yield self._failure((reference,), message, found)

    def _properties(
        self, reference: str, expected: Mapping[str, Any], found: ResolvedResource
    ) -> Iterator[Failure]:
        for name, value in expected.items():
            try:
                if name == CONTENT:
                    _check_content(value, found)
                else:
                    _check_property(name, value, found)
            except _Mismatch as mismatch:
                path = (reference, name)
                yield self._failure(path, f"{reference} {name}: {mismatch}", found, mismatch)
            except HieraError as error:  # an expression that takes too long
                yield self._failure((reference, name), f"{reference} {name}: {error}", found)

    def _failure(
        self,
        path: tuple[str, ...],
        message: str,
        found: ResolvedResource | None = None,
        mismatch: _Mismatch | None = None,
    ) -> Failure:
        return Failure(
            where=self.loaded.places.where(("expect", *path)),
            message=message,
            expected=mismatch.expected if mismatch else "",
            found=mismatch.found if mismatch else "",
            diff=mismatch.diff if mismatch else "",
            declared=found.where if found else "",
        )


def _nearest(reference: str, names: Iterable[str]) -> str:
    said = did_you_mean(reference, names)
    return said if said.startswith(" (did") else ""


def _check_property(name: str, expected: Any, found: ResolvedResource) -> None:
    value = _value(name, found)
    if compares_hidden(expected, value):
        raise _hidden()
    if not fits(expected, value):
        raise _unequal(expected, value)


def _hidden(path: str = "") -> _Mismatch:
    what = "is hidden and cannot be compared. Use !secret to expect a hidden value"
    return _Mismatch(f"{path}{what}")


def _value(name: str, found: ResolvedResource) -> Any:
    """Return the value of a property, or the default of its type."""
    if name in found.properties:
        paths = [path[1:] for path in found.hidden if path[0] == name]
        return with_hidden(found.properties[name], paths) if paths else found.properties[name]
    kind = find_type(found.reference.partition("#")[0])
    field = property_fields(kind).get(name) if kind else None
    if field is None or (field.required and field.default is msgspec.NODEFAULT):
        return None
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return msgspec.to_builtins(default, enc_hook=str)


def _unequal(expected: Any, found: Any) -> _Mismatch:
    said = "nothing" if found is None else shown(found)
    return _Mismatch(f"expected {shown(expected)}, found {said}", shown(expected), said)


def _check_content(expected: Any, found: ResolvedResource) -> None:
    if not found.contents and CONTENT in found.properties:  # a property of its type, such as that of a block
        _check_property(CONTENT, expected, found)
    elif isinstance(expected, Mapping):
        for path, value in expected.items():
            _check_text(value, _content_at(str(path), found), f"{path}: ")
    elif len(found.contents) == 1:
        _check_text(expected, next(iter(found.contents.values())), "")
    elif found.contents:
        raise _Mismatch(f"creates {len(found.contents)} files, expected a mapping of their paths")
    elif not fits(expected, None):
        raise _Mismatch("contains no file of the bundle")


def _content_at(path: str, found: ResolvedResource) -> ResolvedContent | None:
    """Return the content at a path, which may be relative to the name of the resource."""
    return found.contents.get(join(found.reference.partition("#")[2], path))


def _check_text(expected: Any, content: ResolvedContent | None, path: str) -> None:
    if content is None:
        if not fits(expected, None):
            raise _Mismatch(
                f"{path}expected {shown(expected)}, but the file is missing",
                shown(expected),
                "the file is missing",
            )
    elif content.is_secret:
        if not isinstance(expected, IsSecret | Something):
            raise _hidden(path)
    elif content.text is None:
        if not isinstance(expected, Something):
            what = f"{path}{content.size} bytes cannot be compared, because they are not text or too long"
            raise _Mismatch(what, shown(expected), f"{content.size} bytes")
    elif has_tag(expected, IsSecret):
        raise _Mismatch(f"{path}expected !secret, but it does not depend on a secret")
    elif not fits(expected, content.text):
        raise _different(expected, content.text, path)


def _different(expected: Any, text: str, path: str) -> _Mismatch:
    if not isinstance(expected, str):
        return _Mismatch(
            f"{path}expected {shown(expected)}, found {shown(text)}", shown(expected), shown(text)
        )
    lines = difflib.unified_diff(
        expected.splitlines(), text.splitlines(), "expected", "found", lineterm="", n=2
    )
    diff = bounded_diff(list(lines)) or "the line endings differ"
    return _Mismatch(f"{path}differs from the expected text", shown(expected), shown(text), diff)


def bounded_diff(lines: list[str]) -> str:
    """Return the first lines of a diff as one text, with the number of omitted lines."""
    kept = lines[:_MOST_LINES]
    more = [f"… and {len(lines) - len(kept)} further lines"] if len(lines) > len(kept) else []
    return "\n".join([*kept, *more])


# Snapshots: all resources of one case as YAML.

FORMAT: Final = 1
_SIZE_LIMIT: Final = 64 * 1024 * 1024  # bytes
_HEAD: Final = """\
# Written by `puller test --update`. `puller test` compares it with the resources of the bundle. Do not edit it.
format: {format}
"""


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as a block, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def snapshot_path(directory: Path, case: str) -> Path:
    """Return the path of the snapshot of a case of the bundle in ``directory``."""
    return directory / TESTS / SNAPSHOTS / f"{case}.yaml"


def read_snapshot(path: Path) -> str:
    """Return the text of a snapshot, with normalised line ends. Raises ``OSError`` and ``ValueError``."""
    data = read_limited(path, _SIZE_LIMIT)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def stale_snapshots(directory: Path, cases: Iterable[str]) -> list[Path]:
    """Return the snapshots of a bundle that belong to other cases than ``cases``."""
    expected = {snapshot_path(directory, case) for case in cases}
    return sorted(set((directory / TESTS / SNAPSHOTS).rglob("*.yaml")) - expected)


def snapshot_of(resolution: Resolution, directory: Path) -> str:
    """Return all resources of the bundle in ``directory`` as text, without the path of the directory."""
    resources: dict[str, Any] = {}
    for one in sorted(resolution.resources, key=lambda one: (one.reference, one.where)):
        resources[_free_name(mask_urls(one.reference), resources)] = _resource(one)
    cleaned = _without({"resources": resources}, f"{directory}/")
    text = yaml.dump(cleaned, Dumper=_Dumper, allow_unicode=True, width=110, default_flow_style=False)
    return _HEAD.format(format=FORMAT) + text


def compare(before: str, now: str, name: str) -> str:
    """Return a unified diff of two snapshots. Empty if they are equal."""
    if before == now:
        return ""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), name, "now", lineterm="", n=3)
    return bounded_diff(list(lines)) or "the line endings differ"


def is_of_this_format(text: str) -> bool:
    """Return whether a snapshot has the format of this version."""
    return f"\nformat: {FORMAT}\n" in text[: len(_HEAD) + 20]


def _free_name(reference: str, taken: dict[str, Any]) -> str:
    # A child manifest may be applied several times, with different data.
    names = (reference, *(f"{reference} ({number})" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _resource(one: ResolvedResource) -> dict[str, Any]:
    if one.unmanaged:
        return {"unmanaged": one.unmanaged}
    if one.failure:
        return {"fails": one.failure}
    shown: dict[str, Any] = dict(sorted(one.properties.items()))
    if one.contents:
        shown["contents"] = {path: _content(content) for path, content in sorted(one.contents.items())}
    return shown


def _content(content: ResolvedContent) -> Any:
    if content.is_secret:
        return HIDDEN
    if content.text is not None:
        return content.text
    return {"bytes": content.size, "digest": content.fingerprint.hex()}


def _without(value: Any, path: str) -> Any:
    """Return a plain value whose texts do not name the directory of the bundle."""
    if isinstance(value, dict):
        return {_without(key, path): _without(item, path) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without(item, path) for item in value]
    return value.replace(path, "") if isinstance(value, str) else value
