"""Functions that expressions and templates may call beside their own: files of the bundle, and text as a template.

A path is looked up below the directory of the manifest and never leads out of it, whatever links it goes through.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hiera.errors import ExpressionError
from hiera.expressions.expressions import Scope, resolve
from hiera.values.secrets import Secret

_LIMIT = 16 * 1024 * 1024  # bytes of a file that becomes text of an expression


def bundle_functions(directory: Path, scope: Scope) -> Mapping[str, Callable[..., Any]]:
    """``read_file`` (also ``readFile`` and ``file``) and ``template``, for a manifest in ``directory``."""

    def read_file(path: str) -> str:
        return read_text(directory, path)

    def template(path_or_text: str) -> Any:
        """A template file of the bundle, by the engine of its ending; other text has its expressions resolved."""
        if "\n" in path_or_text or "{{" in path_or_text:
            return resolve(path_or_text, scope)
        from puller.templates.engine import choose_engine
        from puller.templates.rendering import render_file

        inner = scope.with_names({"read_file": read_file, "readFile": read_file, "file": read_file})
        rendered = render_file(
            find_inside(directory, path_or_text), choose_engine(path_or_text), inner, directory
        )
        return Secret(rendered.text) if rendered.is_secret else rendered.text

    return {"read_file": read_file, "readFile": read_file, "file": read_file, "template": template}


def read_text(directory: Path, path: object) -> str:
    """The text of a file below ``directory``; raises ``ExpressionError``."""
    from bundles.filesystem.atomic import read_limited

    if not isinstance(path, str):
        raise ExpressionError("", f"a path is text, not {path!r}")
    try:
        return read_limited(find_inside(directory, path), _LIMIT).decode("utf-8")
    except OSError as error:
        raise ExpressionError("", f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ExpressionError("", f"{path} is not usable: {error}") from error


def find_inside(directory: Path, path: str) -> str:
    """The real path of a file below ``directory``; raises ``ExpressionError`` when it is elsewhere."""
    root = os.path.realpath(directory)
    found = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath((root, found)) != root:
        raise ExpressionError("", f"{path} is outside of the manifest's directory")
    return found
