"""The environment that the renderer provides. A template never reaches the process or the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Never

from puller.templates.gotemplate.rendering_state import Rendering
from puller.templates.gotemplate.sprig.text import text_of
from puller.templates.template_errors import FunctionError

_VARIABLE: Final = re.compile(
    r"\$(?:\{(?P<braced>[^}]*)\}|(?P<lonely_brace>\{)|(?P<special>[*#$@!?0-9-])|(?P<name>[a-zA-Z_]\w*))",
    re.ASCII,
)


def _env(rendering: Rendering, name: str) -> str:
    """``env``: the value of a name in environ, or empty text."""
    return text_of(rendering.environ.get(name, ""))


def _expand_env(rendering: Rendering, text: str) -> str:
    """Replace ``$NAME`` and ``${NAME}``. An unset name is empty."""

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["special"] or match["name"]
        return _env(rendering, name) if name else ""  # "${}", and "${" without an end, are removed

    expanded = _VARIABLE.sub(value, text)
    rendering.allow(len(expanded))
    return expanded


def _get_host_by_name(name: str) -> Never:
    """``getHostByName``: rejected. Raises FunctionError."""
    raise FunctionError(
        f"{name} is not looked up: a template gives the same text everywhere, and uses no network"
    )


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "env": _env,
    "expandenv": _expand_env,
    "getHostByName": _get_host_by_name,
}
