"""``convert_to``: conversion of a value to a Puppet type, like the function ``new``.

* A value that already has the type stays unchanged, unless there are arguments.
* The result is checked against the whole type: ``Integer[1, 3]`` rejects 5.
* A decrypted value stays a secret, and appears in no message.
"""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any

from hiera.errors import HieraError, LookupFailure
from hiera.tree import puppet_formats, puppet_types, ruby_values
from hiera.tree.puppet_types import Type, matches
from hiera.values import Decrypted, Secret, has_secret, revealed


def converted(key: str, value: Any, convert_to: Any) -> Any:
    """Return ``value``, converted as the option ``convert_to`` of ``key`` requires. Raises ``LookupFailure``."""
    desired, *arguments = convert_to if isinstance(convert_to, list) and convert_to else [convert_to]
    if not isinstance(desired, str):
        shown = ruby_values.inspect(desired)
        detail = f"The convert_to lookup_option for key '{key}' raised error: {shown} is not a type"
        raise LookupFailure(key, detail)
    try:
        kind = puppet_types.parse(desired)
    except HieraError as error:
        invalid = f"Invalid data type in lookup_options for key '{key}' could not parse '{desired}'"
        raise LookupFailure(key, f"{invalid}, error: '{error.what}") from None
    try:
        return _secretly(kind, value, arguments) if has_secret(value) else _new(kind, value, arguments)
    except HieraError as error:
        raise LookupFailure(
            key, f"The convert_to lookup_option for key '{key}' raised error: {error.what}"
        ) from None


def described(convert_to: Any) -> str:
    """Return the option in the form of the explanation: the bare type, and arguments as in a manifest."""
    desired, *arguments = convert_to if isinstance(convert_to, list) else [convert_to]
    return f"[{', '.join([str(puppet_types.parse(desired)), *map(puppet_formats.element, arguments)])}]"


def _secretly(kind: Type, value: Any, arguments: list[Any]) -> Any:
    if kind.name == "Sensitive" and not isinstance(value, Secret):
        return Secret(revealed(value, Decrypted))
    try:
        result = _new(kind, revealed(value, Decrypted), arguments)
    except HieraError:
        raise LookupFailure("", f"the secret value cannot be converted to {kind}") from None
    # A Decrypted can become part of other texts: for Puppet it is plain text or a number, not a Sensitive.
    return result if isinstance(result, Secret) else Decrypted(result)


def _new(kind: Type, value: Any, arguments: list[Any]) -> Any:
    # With arguments, even a value of the right type is converted: to another format, or to its absolute value.
    if not arguments and matches(kind, value):
        return value
    make, most = _maker(kind)
    if len(arguments) > most:
        raise LookupFailure("", f"{kind}.new() takes {most} arguments beside the value, not {len(arguments)}")
    try:
        result = make(value, *arguments)
    except (OverflowError, ValueError):
        raise LookupFailure("", f"the number is too large for {kind}") from None
    if kind.name not in _PRINTED:
        puppet_types.verify(f"Converted value from {kind}.new()", kind, result)
    return result


def _maker(kind: Type) -> tuple[Callable[..., Any], int]:
    """Return the function that makes values of ``kind``, and its maximum number of additional arguments."""
    if kind.name in _WRAPPERS and kind.arguments and isinstance(kind.arguments[0], Type):
        return _maker(kind.arguments[0])
    if kind.name not in _MAKERS:
        raise LookupFailure("", f"Creation of new instance of type '{kind}' is not supported")
    return _MAKERS[kind.name]


_WRAPPERS = ("Optional", "NotUndef")


def _refused(function: str, value: Any, name: str) -> LookupFailure:
    if isinstance(value, str):
        return LookupFailure("", f"'{function}' The string '{value}' cannot be converted to {name}")
    kind = ruby_values.type_name(value)
    return LookupFailure("", f"'{function}' Value of type {kind} cannot be converted to {name}")


_SIGN = r"[+-]?\s*"
_INTEGER = re.compile(rf"{_SIGN}(?:\d{{1,3000}}|0[xX][0-9A-Fa-f]+|0[bB][01]+)", re.ASCII)
_NUMBER = re.compile(
    rf"{_SIGN}(?:(?:0|[1-9]\d{{0,3000}})(?:\.\d+)?(?:[eE]-?\d+)?|0[xX][0-9A-Fa-f]+|0[0-7]+|0[bB][01]+)",
    re.ASCII,
)


def _integer(value: Any, radix: Any = puppet_types.DEFAULT, absolute: bool = False) -> int:
    if isinstance(value, dict):
        return _integer(value.get("from"), value.get("radix", puppet_types.DEFAULT), bool(value.get("abs")))
    if radix not in (puppet_types.DEFAULT, "default", 2, 8, 10, 16):
        raise LookupFailure(
            "", f"Illegal radix: {ruby_values.to_s(radix)}, expected 2, 8, 10, 16, or default"
        )
    if isinstance(value, (int, float)):
        result = int(value)
    elif isinstance(value, str) and _INTEGER.fullmatch(value):
        result = _digits(value, radix if isinstance(radix, int) else None)
    else:
        raise _refused("new", value, "Integer")
    return abs(result) if absolute else result


def _digits(text: str, radix: int | None) -> int:
    """Return the number. Without a radix, a prefix selects it, and a leading zero means 8."""
    bare = re.sub(r"\s", "", text)
    digits = bare.lstrip("+-").lower()
    if radix is None:
        prefixes = {"0x": 16, "0b": 2}
        radix = prefixes.get(digits[:2], 8 if digits[0] == "0" else 10)
    try:
        return int(bare, radix)
    except ValueError:
        raise LookupFailure("", f'invalid value for Integer(): "{text}"') from None


def _float(value: Any, absolute: bool = False) -> float:
    if isinstance(value, dict):
        return _float(value.get("from"), bool(value.get("abs")))
    result = float(_numeric(value, name="Float", function="new_float"))
    return abs(result) if absolute else result


def _numeric(
    value: Any, absolute: bool = False, name: str = "Numeric", function: str = "new_numeric"
) -> int | float:
    if isinstance(value, dict):
        return _numeric(value.get("from"), bool(value.get("abs")))
    if isinstance(value, bool):
        result: int | float = int(value)
    elif isinstance(value, (int, float)):
        result = value
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        bare = re.sub(r"\s", "", value)
        decimal = re.search(r"[.eE]", bare) and not bare.lower().lstrip("+-").startswith("0x")
        is_decimal = decimal or (name == "Float" and not re.match(r"[+-]?0[xXbB]", bare))
        result = float(bare) if is_decimal else _digits(bare, None)
    else:
        raise _refused(function, value, name)
    return abs(result) if absolute else result


_TRUE, _FALSE = ("true", "yes", "y"), ("false", "no", "n")


def _boolean(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return value != 0
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    raise _refused("new_boolean", value, "Boolean")


def _string(value: Any, chosen: Any = None) -> str:
    if chosen is not None and chosen != "default" and not isinstance(chosen, str):
        raise LookupFailure(
            "", "'new_string' in data requires a single format, not a mapping of types to formats"
        )
    return puppet_formats.text(value, chosen)


def _array(value: Any, wrap: Any = False) -> list[Any]:
    if wrap is True:
        return value if isinstance(value, list) else [value]
    if isinstance(value, (list, str)):
        return list(value)
    if isinstance(value, dict):
        return [list(pair) for pair in value.items()]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_ITEMS:
        return list(range(value))  # Puppet iterates over a number
    raise _refused("new_array", value, "Array")


_MAX_ITEMS = 1_000_000


def _hash(value: Any, option: Any = None) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, (list, str, int)) or isinstance(value, bool):
        raise LookupFailure("", f"Value of type {ruby_values.type_name(value)} cannot be converted to Hash")
    items = _array(value)
    if items and all(isinstance(item, list) and len(item) == 2 for item in items):
        if option in ("tree", "hash_tree") and all(isinstance(path, list) for path, _ in items):
            return _tree(items, as_hashes=option == "hash_tree")
        return {ruby_values.key(name): item for name, item in items}
    if len(items) % 2:
        raise LookupFailure("", "odd number of arguments for Hash")
    return {ruby_values.key(name): item for name, item in zip(items[::2], items[1::2], strict=True)}


def _tree(items: list[Any], *, as_hashes: bool) -> dict[Any, Any]:
    """Return the tree of pairs of a path and a value, inserted in order."""
    root: dict[Any, Any] = {}
    for path, value in items:
        if as_hashes and isinstance(value, list):
            value = dict(enumerate(value))
        if not path:
            root |= dict(enumerate(value)) if isinstance(value, list) else _only_hash(value)
            continue
        at: Any = root
        for name in path[:-1]:
            at = _branch(at, name)
        if isinstance(at, list) and isinstance(path[-1], int) and 0 <= path[-1] < len(at):
            at[path[-1]] = value
        elif isinstance(at, dict):
            at[ruby_values.key(path[-1])] = value
        else:
            raise _misplaced(path[-1])
    return root


def _only_hash(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise LookupFailure("", "the root of a tree is a mapping or a list")
    return value


def _branch(at: Any, name: Any) -> Any:
    if isinstance(at, list) and isinstance(name, int) and 0 <= name < len(at):
        return at[name]
    if isinstance(at, dict):
        return at.setdefault(ruby_values.key(name), {})
    raise _misplaced(name)


def _misplaced(name: Any) -> LookupFailure:
    return LookupFailure("", f"a path of the tree has {ruby_values.inspect(name)} below a value without keys")


_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-.]+)?(\+[0-9A-Za-z-.]+)?", re.ASCII
)


def _version(value: Any, *remainder: Any) -> str:
    if isinstance(value, dict):
        remainder = tuple(value.get(name) for name in ("minor", "patch", "prerelease", "build"))
        value = value.get("major")
    if isinstance(value, int) and len(remainder) >= 2:
        tail = (*remainder[2:], None, None)
        value = (
            f"{value}.{remainder[0]}.{remainder[1]}"
            + (f"-{tail[0]}" if tail[0] else "")
            + (f"+{tail[1]}" if tail[1] else "")
        )
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise LookupFailure(
            "", f"'new_Version' The string '{ruby_values.to_s(value)}' cannot be converted to a SemVer"
        )
    return value


def _binary(value: Any, form: Any = "%B") -> str:
    """Return the binary value as base64."""
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte <= 255 for byte in value):
        data = bytes(value)
    elif isinstance(value, str) and form in ("%s", "%r"):
        data = value.encode()
    elif isinstance(value, str) and form in ("%B", "%b", "%u"):
        try:
            data = a2b_base64(value.replace("-", "+").replace("_", "/") if form == "%u" else value)
        except Base64Error:
            raise LookupFailure("", f"'new_Binary' not base64: '{value}'") from None
    else:
        raise _refused("new_Binary", value, "Binary")
    return b2a_base64(data, newline=False).decode()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise LookupFailure(
            "", f"Value of type {ruby_values.type_name(value)} cannot be converted: a text is wanted"
        )
    return value


def _regexp(value: Any, escape: bool = False) -> str:
    pattern = re.escape(_text(value)) if escape else _text(value)
    ruby_values.compiled(pattern)
    return f"(?-mix:{pattern})"


def _timestamp(value: Any, chosen: Any = None) -> str:
    if isinstance(value, dict):
        return puppet_formats.timestamp(value.get("string"), value.get("format"))
    return puppet_formats.timestamp(value, chosen)


_MAKERS: dict[str, tuple[Callable[..., Any], int]] = {
    "Integer": (_integer, 2),
    "Float": (_float, 1),
    "Numeric": (_numeric, 1),
    "Boolean": (_boolean, 0),
    "String": (_string, 1),
    "Array": (_array, 1),
    "Tuple": (_array, 1),
    "Hash": (_hash, 1),
    "Struct": (_hash, 1),
    "Sensitive": (lambda value: value if isinstance(value, Secret) else Secret(value), 0),
    "Timestamp": (_timestamp, 1),
    "Timespan": (puppet_formats.timespan, 6),
    "SemVer": (_version, 4),
    "SemVerRange": (_text, 0),
    "Binary": (_binary, 1),
    "URI": (_text, 0),
    "Regexp": (_regexp, 1),
}
# These types have no Python equivalent here. Their values are the texts that Puppet prints.
_PRINTED = frozenset(("Timestamp", "Timespan", "SemVer", "SemVerRange", "Binary", "URI", "Regexp"))
