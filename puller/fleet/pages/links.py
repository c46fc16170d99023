"""Where each page is: names of files that are safe whatever a host, a version or a resource is called."""

import hashlib
import re

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._+-]{0,80}")


def file_name(text: str) -> str:
    """A name without slashes for any text: itself when it is plain, else what is plain of it and a digest."""
    if _PLAIN.fullmatch(text) and not text.endswith((".html", ".")):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]
    return f"{plain}~{digest}" if plain else digest


def host_page(name: str) -> str:
    """The page of a host, from the top of the pages."""
    return f"hosts/{file_name(name)}.html"


def release_page(bundle: str, version: str) -> str:
    """The page of a version of a bundle."""
    return f"releases/{file_name(f'{bundle}@{version}')}.html"


def failure_page(key: str) -> str:
    """The page of the same error on some hosts."""
    return f"failures/{file_name(key)}.html"


def resource_page(reference: str) -> str:
    """The page of a resource."""
    return f"resources/{file_name(reference)}.html"
