"""The choice of a template engine, by the ending of the file name or by an explicit name.

An engine is imported when it is first used, so a run without templates skips the imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from puller.templates.scope import Engine


ENGINES = ("go", "jet", "jinja")
_NAMED: Final = {
    ".j2": "jinja",
    ".jinja": "jinja",
    ".jinja2": "jinja",
    ".jet": "jet",
    ".tmpl": "go",
    ".gotmpl": "go",
}


def named_engine(path: str) -> str | None:
    """Return the engine for the ending of a template's name, or ``None``."""
    return next((engine for ending, engine in _NAMED.items() if path.endswith(ending)), None)


def choose_engine(path: str, given: str | None = None, otherwise: str = "jinja") -> str:
    """Return the engine for a template: ``given``, else the engine of its name, else ``otherwise``.

    Raises ValueError for an engine that contradicts the name. Its text continues a sentence about the path.
    """
    named = named_engine(path)
    if given is None:
        return named or otherwise
    if named not in (None, given):
        says = f"is {path!r}, a template of {named!r} by its name"
        raise ValueError(f"{says}, but engine is {given!r}: rename it, or leave out engine")
    return given


def load_engine(name: str, *, left_delimiter: str = "", right_delimiter: str = "") -> Engine:
    """Return the engine with this name. An empty delimiter means the engine's default.

    Raises ValueError for a name outside of ENGINES.
    """
    if name == "jet":
        from puller.templates.jet.jet_engine import JetEngine

        return JetEngine(left_delimiter, right_delimiter)
    if name == "go":
        from puller.templates.gotemplate.go_engine import GoEngine

        return GoEngine(left_delimiter, right_delimiter)
    if name == "jinja":
        from puller.templates.jinja import JinjaEngine  # jinja2 takes 36 % of an idle run

        return JinjaEngine(left_delimiter, right_delimiter)
    raise ValueError(f"engine is {name!r}, expected one of {', '.join(ENGINES)}")
