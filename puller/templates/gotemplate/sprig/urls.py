"""URLs, parsed and built as Go's ``net/url`` does, and paths with slashes.

``osBase`` and similar functions have the same results as the functions for slashes, as in Go on Linux.
"""

from __future__ import annotations

import posixpath
import re
import string
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address
from typing import Any, Final, NamedTuple

from puller.templates.govalue.types import from_bytes, kind_name, to_bytes
from puller.templates.template_errors import FunctionError

_UNRESERVED: Final = string.ascii_letters + string.digits + "-_.~"
_IN_HOST: Final = _UNRESERVED + "!$&'()*+,;=:[]<>\""
_IN_USER: Final = _UNRESERVED + "$&+,;="
_IN_PATH: Final = _UNRESERVED + "$&+,/:;=@"
_IN_FRAGMENT: Final = _UNRESERVED + "$&+,/:;=?@!()*"
_USER_INFO: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_ESCAPE: Final = re.compile(r"%([0-9a-fA-F]{2})?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_KEYS: Final = ("scheme", "userinfo", "host", "path", "query", "opaque", "fragment")


class _Url(NamedTuple):
    """Parts without their marks. ``userinfo`` is ``None`` or escaped text."""

    scheme: str = ""
    userinfo: str | None = None
    host: str = ""
    path: str = ""
    query: str = ""
    opaque: str = ""
    fragment: str = ""


# Parsing -------------------------------------------------------------------------------------------------------------


def _parse(text: str) -> _Url:
    """Return the parts of a URL. Raises FunctionError with the reason."""
    remainder, _, fragment = text.partition("#")
    url = _Url(path="*") if remainder == "*" else _parse_without_fragment(remainder)
    return url._replace(fragment=_unescape(fragment))


def _parse_without_fragment(text: str) -> _Url:
    if _CONTROL.search(text):
        raise FunctionError("invalid control character in URL")
    scheme, remainder = _split_scheme(text)
    remainder, _, query = remainder.partition("?")
    if not remainder.startswith("/"):
        if scheme:
            return _Url(scheme, opaque=remainder, query=query)
        if ":" in remainder.partition("/")[0]:
            raise FunctionError("first path segment in URL cannot contain colon")
    userinfo, host = None, ""
    if remainder.startswith("//") and (scheme or not remainder.startswith("///")):
        authority, slash, path = remainder[2:].partition("/")
        userinfo, host = _parse_authority(authority)
        remainder = slash + path
    return _Url(scheme, userinfo, host, _unescape(remainder), query)


def _split_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.match(text)
    if match:
        return match[1].lower(), text[match.end() :]
    if text.startswith(":"):
        raise FunctionError("missing protocol scheme")
    return "", text


def _parse_authority(authority: str) -> tuple[str | None, str]:
    userinfo, at, host = authority.rpartition("@")
    if not at:
        return None, _parse_host(host)
    if not _USER_INFO.fullmatch(userinfo):
        raise FunctionError("invalid userinfo")
    name, colon, password = userinfo.partition(":")
    return _escape(_unescape(name), _IN_USER) + colon + _escape(_unescape(password), _IN_USER), _parse_host(
        host
    )


def _parse_host(host: str) -> str:
    if host.startswith("["):
        return _parse_literal(host)
    _, colon, port = host.rpartition(":")
    if colon and not _PORT.fullmatch(colon + port):
        raise FunctionError(f'invalid port "{colon}{port}" after host')
    if host.count(":") > 1:
        raise FunctionError(f'too many colons in host "{host}"')
    return _unescape_host(host)


def _parse_literal(host: str) -> str:
    """Read ``[fe80::1%25en0]:80``: an IPv6 address with an optional zone and port."""
    literal, bracket, port = host[1:].rpartition("]")
    if not bracket:
        raise FunctionError("missing ']' in host")
    if not _PORT.fullmatch(port):
        raise FunctionError(f'invalid port "{port}" after host')
    address, mark, zone = literal.partition("%25")
    if not _is_ipv6(address):
        raise FunctionError(f'invalid address "{address}" in host')
    return f"[{address}{'%' if mark else ''}{_unescape(zone)}]{port}"


def _is_ipv6(address: str) -> bool:
    try:
        return bool(IPv6Address(address))
    except AddressValueError:
        return False


def _unescape_host(host: str) -> str:
    """Return a host name with escapes decoded. Only non-ASCII characters may be escaped."""
    for escape in _ESCAPE.finditer(host):
        if escape[1] and int(escape[1], 16) < 0x80 and escape[1] != "25":
            raise FunctionError(f'invalid URL escape "{escape[0]}"')
    for character in host:
        if character.isascii() and character not in _IN_HOST and character != "%":
            raise FunctionError(f'invalid character "{character}" in host name')
    return _unescape(host)


def _unescape(text: str) -> str:
    if "%" not in text:
        return text
    pieces = []
    end = 0
    for escape in _ESCAPE.finditer(text):
        if escape[1] is None:
            raise FunctionError(f'invalid URL escape "{text[escape.start() : escape.start() + 3]}"')
        pieces += [to_bytes(text[end : escape.start()]), bytes([int(escape[1], 16)])]
        end = escape.end()
    return from_bytes(b"".join([*pieces, to_bytes(text[end:])]))


# Writing -------------------------------------------------------------------------------------------------------------


def _escape(text: str, retained: str) -> str:
    return "".join(chr(byte) if chr(byte) in retained else f"%{byte:02X}" for byte in to_bytes(text))


def _write(url: _Url) -> str:
    text = f"{url.scheme}:" if url.scheme else ""
    text += url.opaque or _write_hierarchy(url, is_first=not text)
    text += f"?{url.query}" if url.query else ""
    return text + (f"#{_escape(url.fragment, _IN_FRAGMENT)}" if url.fragment else "")


def _write_hierarchy(url: _Url, *, is_first: bool) -> str:
    authority = ""
    if url.host or url.userinfo is not None or (url.scheme and url.path):
        user = "" if url.userinfo is None else f"{url.userinfo}@"
        authority = f"//{user}{_escape(url.host, _IN_HOST)}"
    path = "*" if url.path == "*" else _escape(url.path, _IN_PATH)
    if path and not path.startswith("/") and url.host:
        path = "/" + path
    elif is_first and not authority and ":" in path.partition("/")[0]:
        path = "./" + path  # otherwise it would be read as a scheme
    return authority + path


# Functions -----------------------------------------------------------------------------------------------------------


def _url_parse(text: str) -> dict[str, Any]:
    """``urlParse``: the parts of a URL by name. Raises FunctionError."""
    try:
        url = _parse(text)
    except FunctionError as error:
        raise FunctionError(f'unable to parse url: "{text}": {error}') from None
    pieces = dict(zip(_KEYS, url, strict=True))
    return {**pieces, "userinfo": url.userinfo or "", "hostname": _host_name(url.host)}


def _host_name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or not _PORT.fullmatch(colon + port):
        name = host
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def _url_join(pieces: dict[str, Any]) -> str:
    """``urlJoin``: the URL with these parts. Raises FunctionError."""
    for key in _KEYS:
        if key in pieces and not isinstance(pieces[key], str):
            raise FunctionError(f"{key} is of type {kind_name(pieces[key])}, expected string")
    url = _Url(**{key: pieces[key] for key in _KEYS if key in pieces})
    if not url.userinfo:
        return _write(url._replace(userinfo=None))
    try:
        return _write(url._replace(userinfo=_parse(f"proto://{url.userinfo}@host").userinfo))
    except FunctionError as error:
        raise FunctionError(f'unable to parse userinfo "{url.userinfo}": {error}') from None


_URLS: Final[dict[str, Callable[..., Any]]] = {"urlJoin": _url_join, "urlParse": _url_parse}


def _clean(path: str) -> str:
    """``clean``: the shortest equivalent path."""
    cleaned = posixpath.normpath(path)
    return (
        cleaned[1:] if cleaned.startswith("//") else cleaned
    )  # POSIX keeps two leading slashes, Go does not


def _base(path: str) -> str:
    """``base``: the last part of the path, or ``.`` for an empty path."""
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _dir(path: str) -> str:
    """``dir``: the path without its last part, cleaned."""
    head, slash, _ = path.rpartition("/")
    return _clean(head + slash)


def _ext(path: str) -> str:
    """``ext``: the ending from the last dot of the last part, or empty text."""
    _, dot, extension = path.rpartition("/")[2].rpartition(".")
    return dot + extension if dot else ""


def _is_abs(path: str) -> bool:
    """``isAbs``: whether the path starts at the root."""
    return path.startswith("/")


_PATHS: Final[dict[str, Callable[..., Any]]] = {
    "base": _base,
    "clean": _clean,
    "dir": _dir,
    "ext": _ext,
    "isAbs": _is_abs,
    "osBase": _base,
    "osClean": _clean,
    "osDir": _dir,
    "osExt": _ext,
    "osIsAbs": _is_abs,
}

FUNCTIONS: Final = {**_URLS, **_PATHS}
