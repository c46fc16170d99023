"""TinyCM's file definitions, which work unchanged, and the merge of two file declarations (``docs/resources/file.md``).

TinyCM's names (``ensure: contents``, ``type``, ``contents``, ``interpolate``, ``permission-mask``) become those of
``puller.resources.files.file_properties``. Two declarations of a file are merged by TinyCM's rule. The merged file has
one content.
"""

import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hiera.values import Secret
from puller.errors import ResourceError
from puller.resources.base import PropertyError
from puller.resources.claims import Rule, agree
from puller.resources.files.file_properties import CONTENT_SOURCES, FileProperties, content_sources
from puller.templates.rendering import Rendered, choose_engine

_KEYS = ("contents", "type", "permission-mask")
_ENSURE = {"contents": "present", "removed": "absent"}
_TYPES = ("constant", "http", "template")
_ATTRIBUTES = {"owner": "root", "group": "root", "mode": "0644"}


def from_tinycm(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the definition in Puller's names. A definition with TinyCM's names has its defaults for attributes.

    Raises ``PropertyError``.
    """
    result = {key: value for key, value in raw.items() if key not in _KEYS}
    if (ensure := raw.get("ensure")) in _ENSURE:
        result["ensure"] = _ENSURE[ensure]
    if "permission-mask" in raw:
        _put(result, "mode", raw["permission-mask"], "permission-mask")
    if raw.keys() & set(_KEYS) or ensure in _ENSURE:
        result = {**_ATTRIBUTES, **result}
    kind = raw.get("type", "constant")
    if kind not in _TYPES:
        raise PropertyError("type", f"is {kind!r}", expected=f"one of {', '.join(_TYPES)}")
    if "contents" in raw and result.get("ensure") != "absent":
        target = _target(kind, raw)
        _put(result, target, raw["contents"], "contents")
        if target == "template":
            result |= {
                "engine": result.get("engine", "jinja"),
                "interpolate": True,
            }  # the only engine of TinyCM
    if "after" in raw:
        after = raw["after"]
        result["after"] = [_reference(name) for name in (after if isinstance(after, list) else [after])]
    return result


def _reference(name: object) -> object:
    """Return ``file::/etc/motd`` as ``file#/etc/motd``. Return other names unchanged."""
    kind, colons, remainder = name.partition("::") if isinstance(name, str) else ("", "", "")
    return f"{kind}#{remainder}" if colons and "#" not in kind else name


def _target(kind: str, raw: Mapping[str, Any]) -> str:
    if kind == "constant":
        return "content"
    if kind == "http":
        return "source"
    # The example in TinyCM's documentation is rendered without interpolate. Only an explicit false copies the file.
    return "template" if raw.get("interpolate", True) else "source"


def _put(result: dict[str, Any], key: str, value: object, given_as: str) -> None:
    if key in result:
        raise PropertyError(given_as, f"cannot be given together with {key}")
    result[key] = value


def interpolate(text: str, constants: Mapping[str, Any]) -> "Rendered":
    """Replace ``{name}``, ``{list[0]}`` and ``{mapping[key]}`` like Python's format fields.

    Raises ``ResourceError``.
    """
    formatter = _ConstantsFormatter(constants)
    try:
        return Rendered(formatter.vformat(text, (), {}), formatter.used_secret)
    except ResourceError:
        raise
    except (KeyError, IndexError, ValueError, TypeError) as error:
        # Python's own messages may quote the value that they could not format.
        words = type(error).__name__ if formatter.used_secret else error
        raise ResourceError(f"content cannot be interpolated: {words}") from error


class _ConstantsFormatter(string.Formatter):
    """A formatter that reaches keys and list indexes, but never attributes of Python objects."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants = constants
        self.used_secret = False

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        del args, kwargs
        name, _, remainder = field_name.partition("[")
        value: Any = self._constants
        # TinyCM's documentation uses two forms: {dns[domain]} and {dns['domain']}.
        for key in [name, *(part.removesuffix("]").strip("'\"") for part in remainder.split("[") if part)]:
            value = _step(value, key, field_name)
            if isinstance(value, Secret):
                self.used_secret, value = True, value.reveal()
        if isinstance(value, list | dict):
            raise ResourceError(
                f"content: {{{field_name}}} is a {type(value).__name__}", expected="a plain value"
            )
        return value, name


def _step(value: Any, key: str, field: str) -> Any:
    if isinstance(value, Mapping) and key in value:
        return value[key]
    if isinstance(value, list) and (key.isascii() and key.isdecimal()) and int(key) < len(value):
        return value[int(key)]
    raise ResourceError(f"content: {{{field}}}: unknown name {key!r}")


_HOW = ("engine", "encoding", "interpolate", "data")
"""Properties that describe how content is made. They have no effect without content."""
_NOTHING = FileProperties(name="")


def agree_on_file(first: FileProperties, second: FileProperties) -> FileProperties:
    """Return the properties that agree with both declarations. Raises ``Contradiction``.

    If both declare content, it must be the same, made the same way. Otherwise the single content applies.
    """
    rules: dict[str, Rule] = {
        "ensure": lambda left_side, other: _ensure(first, second),
        "create": lambda left_side, other: True,  # one declaration is enough to create the file
    }
    if first.template is not None and first.template == second.template:
        rules["engine"] = _engine(first.template)
    return agree(first, second, exact=_exact(first, second), rules=rules)


def _exact(first: FileProperties, second: FileProperties) -> Collection[str]:
    silent = [properties for properties in (first, second) if not _has_content(properties)]
    if not silent:
        return (*CONTENT_SOURCES, *_HOW)
    if len(silent) == 2:
        return ()
    return [name for name in _HOW if getattr(silent[0], name) != getattr(_NOTHING, name)]


def _ensure(first: FileProperties, second: FileProperties) -> str:
    """Return ``exists`` if one declaration has ``exists`` and the other has no content. Raises ``ValueError``."""
    there = [properties for properties in (first, second) if properties.ensure == "present"]
    if {first.ensure, second.ensure} != {"present", "exists"} or _has_content(there[0]):
        raise ValueError(f"{first.ensure} is not {second.ensure}")
    return "exists"


def _engine(template: str) -> Rule:
    def rule(first: str | None, other: str | None) -> str | None:
        if choose_engine(template, first) != choose_engine(template, other):
            raise ValueError(f"{first} is not {other}")
        return first or other

    return rule


def _has_content(properties: FileProperties) -> bool:
    return bool(content_sources(properties))
