"""Docstrings of every module of the product follow three rules.

* **Raises.** If the body of a public function raises, the docstring of the function or of its class documents it:
  *raises ``KeyFileError``*. Callers then know the errors to catch without reading the body. Commands are exempt: their
  docstring is the help text, and their errors become exit statuses.
* **The noun.** A docstring begins with a description of the object, not with *What*, *The same*, *Those* or *It*, which
  refer the reader to another place.
* **Three languages, one model.** In `puller/templates` every public function, methods apart, has a docstring.

A name with a leading underscore is private, and so are all members of a private class.

    pytest tests/test_docstrings.py -k puller/cli       one folder
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.rows import each_row

pytestmark = pytest.mark.sources

ROOT = Path(__file__).parents[1]
PACKAGES = ("bundles", "foundation", "hiera", "puller")

Function = ast.FunctionDef | ast.AsyncFunctionDef

_SAYS_RAISES = re.compile(r"\b[Rr]aises?\b")
_WITHOUT_NOUN = re.compile(r"(What|The same|Those|It|That|These|Them)\b")
_ALL_DOCUMENTED = "puller/templates"


class Definition(NamedTuple):
    """A module, or a public class or function in it. ``owner`` is the docstring of the enclosing class."""

    name: str
    node: ast.Module | ast.ClassDef | Function
    owner: str = ""

    @property
    def docstring(self) -> str:
        """The docstring of the node, or an empty string."""
        return ast.get_docstring(self.node) or ""


def definitions(module: ast.Module) -> Iterator[Definition]:
    """Yield a module and all public definitions in it."""
    yield Definition("module", module)
    yield from _public(module.body)


def _public(body: Iterable[ast.stmt], owner: ast.ClassDef | None = None) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            name = f"{owner.name}.{node.name}" if owner else node.name
            yield Definition(name, node, (owner and ast.get_docstring(owner)) or "")
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, node)


def problems(definition: Definition, *, all_documented: bool = False) -> Iterator[str]:
    """Yield a message for each rule that a definition breaks."""
    node, docstring = definition.node, definition.docstring
    if match := _WITHOUT_NOUN.match(docstring):
        yield f"begins with {match[0]!r}, expected the noun"
    if not isinstance(node, Function):
        return
    output = _SAYS_RAISES.search(docstring + definition.owner)
    if not output and raises(node) and not is_command(node):
        yield "raises without saying so"
    if all_documented and not docstring and "." not in definition.name:
        yield "has no docstring"


def raises(function: Function) -> bool:
    """Return whether the function's own body raises. Nested functions and bare ``raise`` do not count."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return False


def is_command(function: Function) -> bool:
    """Return whether click runs the function: ``@click.command()``, ``@keys.command("add")``, ``@click.group()``."""
    calls = (decorator.func for decorator in function.decorator_list if isinstance(decorator, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in ("command", "group") for call in calls)


def folders() -> Iterator[str]:
    """Return each package, for the modules directly in it, and each folder below it."""
    for package in PACKAGES:
        yield package
        below = (path for path in sorted((ROOT / package).iterdir()) if path.is_dir())
        yield from (f"{package}/{path.name}" for path in below if path.name != "__pycache__")


def modules(folder: str) -> list[Path]:
    """Return the modules of a folder, including subfolders unless the folder is a whole package."""
    pattern = "*.py" if folder in PACKAGES else "**/*.py"
    return sorted((ROOT / folder).glob(pattern))


@each_row("folder", list(folders()))
def test_docstrings_name_the_subject_and_errors(folder: str) -> None:
    findings = [
        f"{path.relative_to(ROOT)}:{getattr(definition.node, 'lineno', 1)}: {definition.name} {problem}"
        for path in modules(folder)
        for definition in definitions(ast.parse(path.read_text(encoding="utf-8")))
        for problem in problems(definition, all_documented=folder == _ALL_DOCUMENTED)
    ]
    assert findings == []


RULES = '''
"""It is a module."""
def silent(): raise ValueError
def saying():
    """Raises ``ValueError``."""
    raise ValueError
def passing_on():
    """Passes errors on."""
    try: saying()
    except ValueError: raise
def around():
    """Holds a function that raises."""
    def inner(): raise ValueError
@group.command("add")
def command():
    """Add one."""
    raise ValueError
class Public:
    """Its methods raise ``ValueError``."""
    def method(self): raise ValueError
class Other:
    """What another says."""
    def method(self): raise ValueError
class _Private:
    def method(self): raise ValueError
'''


def test_rules_find_their_violations() -> None:
    findings = [
        f"{definition.name} {problem}"
        for definition in definitions(ast.parse(RULES))
        for problem in problems(definition)
    ]
    assert findings == [
        "module begins with 'It', expected the noun",
        "silent raises without saying so",
        "Other begins with 'What', expected the noun",
        "Other.method raises without saying so",
    ]


def test_modules_name_existing_pages() -> None:
    """Modules refer to pages of the project by their paths: ``docs/facts.md``."""
    sources = {path: path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    missing = {
        f"{path.relative_to(ROOT)}: {page}"
        for path, text in sources.items()
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b|\b[\w-]+\.md\b(?=`* section)", text)
        if not (ROOT / page).exists()
    }
    assert not missing
