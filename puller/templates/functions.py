"""Functions that expressions and templates may call beside their own: files of the bundle, and text as a template.

Every run makes these functions, so what only a call needs is imported by the call.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hiera.expressions.expressions import Scope, resolve
from hiera.values.secrets import Secret


def bundle_functions(directory: Path, scope: Scope) -> Mapping[str, Callable[..., Any]]:
    """``read_file`` (also ``readFile`` and ``file``) and ``template``, for a manifest in ``directory``."""

    def read_file(path: str) -> str:
        from puller.templates.bundle_files import read_text

        return read_text(directory, path)

    def template(path_or_text: str) -> Any:
        """A template file of the bundle, by the engine of its ending; other text has its expressions resolved."""
        if "\n" in path_or_text or "{{" in path_or_text:
            return resolve(path_or_text, scope)
        from puller.templates.bundle_files import find_inside
        from puller.templates.engine import choose_engine
        from puller.templates.rendering import render_file

        inner = scope.with_names({"read_file": read_file, "readFile": read_file, "file": read_file})
        rendered = render_file(
            find_inside(directory, path_or_text), choose_engine(path_or_text), inner, directory
        )
        return Secret(rendered.text) if rendered.is_secret else rendered.text

    return {"read_file": read_file, "readFile": read_file, "file": read_file, "template": template}
