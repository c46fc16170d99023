"""Functions that expressions and templates may call beside their own: files of the bundle, and text as a template.

Every run makes these functions, so what only a call needs is imported by the call.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hiera.expressions.expressions import Scope, resolve
from hiera.values.secrets import Secret
from puller.bundle_paths import BundleFiles
from puller.templates.bundle_files import BundleFunction, read_text


def bundle_functions(files: BundleFiles, scope: Scope) -> Mapping[str, Callable[..., Any]]:
    """``read_file`` (also ``readFile`` and ``file``) and ``template``, for a manifest that sees ``files``."""

    def reader(files: BundleFiles) -> Callable[[str], str]:
        def read_file(path: str) -> str:
            return read_text(files, path)

        return read_file

    def renderer(files: BundleFiles) -> Callable[[str], Any]:
        def template(path_or_text: str) -> Any:
            """A template file of the bundle, by the engine of its ending; other text has its expressions resolved."""
            if "\n" in path_or_text or "{{" in path_or_text:
                return resolve(path_or_text, scope)
            from puller.templates.engine import choose_engine
            from puller.templates.rendering import render_file

            read = BundleFunction(reader, files)
            inner = scope.with_names({"read_file": read, "readFile": read, "file": read})
            rendered = render_file(files.find(path_or_text), choose_engine(path_or_text), inner, files)
            return Secret(rendered.text) if rendered.is_secret else rendered.text

        return template

    read_file = BundleFunction(reader, files)
    return {
        "read_file": read_file,
        "readFile": read_file,
        "file": read_file,
        "template": BundleFunction(renderer, files),
    }


def over_data(scope: Scope, data: Mapping[Any, Any], files: BundleFiles) -> Scope:
    """``scope`` with other data, for a resource that hands its templates some; also for what they call."""
    scope = scope.with_data(data)
    return scope.with_names(bundle_functions(files, scope))
