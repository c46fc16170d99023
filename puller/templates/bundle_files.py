"""Files of a bundle as text, and template functions with paths of such files as arguments."""

from collections.abc import Callable
from typing import Any

from bundles.filesystem.atomic import read_limited
from foundation.problems import ProblemCode
from hiera.errors import ExpressionError
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles

_LIMIT = 16 * 1024 * 1024  # bytes of a file as text in an expression


def read_text(files: BundleFiles, path: object) -> str:
    """Return the text of a file of the bundle. Raises ``HieraError``."""
    if not isinstance(path, str):
        raise ExpressionError("", f"a path is text, not {path!r}")
    try:
        return read_limited(files.find(path), _LIMIT).decode("utf-8")
    except OSError as error:
        detail = f"{path} cannot be read: {error.strerror}"
        raise ExpressionError("", detail, code=ProblemCode.MISSING_FILE, name=str(path)) from error
    except ValueError as error:
        raise ExpressionError("", f"{path} is not usable: {error}") from error


class BundleFunction:
    """A function of paths, which are relative to the calling file."""

    __slots__ = ("_function", "_make")

    def __init__(self, make: Callable[[BundleFiles], Callable[..., Any]], files: BundleFiles) -> None:
        self._make = make
        self._function = make(files)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def at(self, files: BundleFiles) -> "BundleFunction":
        """Return this function for another place."""
        return BundleFunction(self._make, files)


def seen_from(files: BundleFiles, scope: Scope) -> Scope:
    """Return the scope of a manifest for a template at another place, such as a library."""
    functions = {
        name: item.at(files) for name, item in scope.functions.items() if isinstance(item, BundleFunction)
    }
    return scope.with_names(functions)
