"""No module reads the text of a problem: code, place and name of a problem are fields."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.rows import each_row

pytestmark = pytest.mark.sources

ROOT = Path(__file__).parents[1]
PACKAGES = ("bundles", "foundation", "hiera", "puller")
_NAMES = re.compile(r"(message|sentence|problem|failure|error|complaint)s?")
"""Names of values that are messages, or errors whose ``str`` is one."""
_METHODS = frozenset(
    {
        "count",
        "endswith",
        "find",
        "index",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rpartition",
    }
    | {"rsplit", "split", "splitlines", "startswith"}
)
_KEYS = ("text", "message", "example")
"""Keys of texts in the objects and rows that problems are kept in."""
_PATTERNS = frozenset({"findall", "finditer", "fullmatch", "match", "search", "split", "sub"})

_TYPES = frozenset(
    {"Problem", "Difference", "Finding", "Exception", "BaseException", "OSError", "ValueError"}
)
"""Types of parameters whose ``str`` is a message."""
_FIELDS = ("message", "what", "hint", "expected", "msg", "strerror", "problem", "reason")
"""Texts of errors, problems and findings."""
_FORMATTERS = ("text_of", "text_of_all", "text_without_place", "people", "sentence_of", "file_problem")
_SHAPES = ("strip", "rstrip", "lstrip", "lower", "casefold", "format", "join")
"""Methods that return the same text in another form."""

JUSTIFIED = {
    # Text of libraries and of the system, which exists in no other form. These modules convert it to values.
    "bundles/client/updater.py": "python-tuf gives key counts and digests in its messages only",
    "bundles/format/description.py": "msgspec gives the path of a value in its message only",
    "bundles/transport/settings.py": "a message of urllib, without the part that may be a password",
    "foundation/strict_json.py": "json gives no code for a byte order mark",
    "hiera/tree/psych.py": "a message of libyaml, in the words of Psych",
    "puller/resources/archives/archive_properties.py": "a message of urllib, without the part that may be a password",
    "puller/fleet/store/database.py": "sqlite3 in Python 3.11 gives no code for a locked database",
    "puller/resources/checkouts/repository.py": "entries of the reflog of git",
    "puller/state.py": "msgspec gives the path of a value in its message only",
    "puller/resources/edits/formats/toml_tree.py": "tomllib gives line and column in its message only",
    "puller/values/plain_values.py": "msgspec gives the expected type in its message only",
    "foundation/object_store.py": "one line of a message of boto3",
    # The layout of text for an output.
    "puller/cli/output.py": "each line of an error gets the name of the program",
    "puller/cli/host/status.py": "further lines of a problem are indented",
    "puller/reporting/monitoring.py": "a line of a Nagios plugin has no vertical bar",
    "puller/reporting/sinks.py": "lines of the journal have a level each",
    "puller/run/readiness.py": "one line of an error",
}


def test_no_module_reads_the_text_of_a_problem() -> None:
    places = [
        place for package in PACKAGES for path in (ROOT / package).rglob("*.py") for place in _readers(path)
    ]
    assert [place for place in places if place.partition(":")[0] not in JUSTIFIED] == []
    assert sorted({place.partition(":")[0] for place in places}) == sorted(JUSTIFIED)


def _readers(path: Path) -> Iterator[str]:
    name = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines = {getattr(node, "lineno", 0) for node in ast.walk(tree) if _is_reader(node)}
    for line in sorted(lines | set(_read_by_flow(tree))):
        yield f"{name}:{line}"


def _read_by_flow(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that read the text of an error, problem or difference, whatever the variables are called."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes, flow = list(ast.walk(function)), Flow()
            flow.follow(nodes)
            if flow.errors or flow.texts:
                yield from (getattr(node, "lineno", 0) for node in nodes if flow.is_read(node))


class Flow:
    """The variables of one function that hold an error or a problem, and those that hold the text of one."""

    def __init__(self) -> None:
        self.errors: set[str] = set()
        self.texts: set[str] = set()

    def follow(self, nodes: Sequence[ast.AST]) -> None:
        """Collect the variables until no assignment adds one."""
        before = -1
        while before < len(self.errors) + len(self.texts):
            before = len(self.errors) + len(self.texts)
            for node in nodes:
                self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.arg) and node.annotation is not None:
            if _TYPES & {item.id for item in ast.walk(node.annotation) if isinstance(item, ast.Name)}:
                self.errors.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.errors.add(node.name)
        elif isinstance(node, ast.Assign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if self.is_text(node.value):
                self.texts |= names
            elif self.is_error(node.value):
                self.errors |= names
        elif isinstance(node, ast.For | ast.comprehension) and self._are_errors(node.iter):
            self.errors |= {node.target.id} if isinstance(node.target, ast.Name) else set()

    def is_error(self, node: ast.AST) -> bool:
        """Whether an expression is an error, a problem or a difference."""
        if isinstance(node, ast.Subscript):
            return self._are_errors(node.value)
        return isinstance(node, ast.Name) and node.id in self.errors

    def _are_errors(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in ("problems_of", "described", "failures_of")
        return isinstance(node, ast.Attribute) and node.attr in ("problems", "differences")

    def is_text(self, node: ast.AST) -> bool:
        """Whether an expression is the text of an error, a problem or a difference."""
        if isinstance(node, ast.Name):
            return node.id in self.texts
        if isinstance(node, ast.Attribute):
            return node.attr in _FIELDS and self.is_error(node.value)
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Attribute) and node.value.attr in ("args", "errors")
        if isinstance(node, ast.JoinedStr):
            values = [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
            return any(self.is_error(value) or self.is_text(value) for value in values)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("str", "repr"):
                return any(map(self.is_error, node.args))
            return node.func.id in _FORMATTERS
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in _SHAPES and self.is_text(node.func.value)
        return False

    def is_read(self, node: ast.AST) -> bool:
        """Return whether an expression searches or splits such a text, or compares it with another text."""
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            is_searched = any(
                isinstance(other, ast.In | ast.NotIn | ast.Eq | ast.NotEq) for other in node.ops
            )
            others = [side for side in sides if not self.is_text(side)]
            is_empty = any(isinstance(other, ast.Constant) and not other.value for other in others)
            return is_searched and len(others) < len(sides) and not is_empty
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr in _METHODS and self.is_text(node.func.value):
            return True
        return node.func.attr in _PATTERNS and any(map(self.is_text, node.args))


SAMPLES = [
    "def f():\n    try: pass\n    except OSError as e:\n        if 'full' in str(e): pass",
    "def f():\n    try: pass\n    except OSError as e:\n        t = f'{e}'\n        t.split(':')",
    "def f():\n    try: pass\n    except ValueError as why:\n        re.search('a', why.args[0])",
    "def f(p: Problem):\n    p.message.startswith('a')",
    "def f(event):\n    for p in event.problems:\n        x = str(p).strip()\n        x.endswith('a')",
    "def f(e: Exception):\n    found = problems_of(e)[0]\n    found.hint == 'quote it'",
    "def f(d):\n    words = people(d)\n    'mode' in words",
]


@each_row("sample", SAMPLES)
def test_scan_finds_message_readers_under_any_name(sample: str) -> None:
    assert list(_read_by_flow(ast.parse(sample)))


def test_the_scan_accepts_decisions_by_fields() -> None:
    sample = "def f(p: Problem, e: OSError):\n    return p.code is X and e.errno == 2 and str(e) == ''"
    assert list(_read_by_flow(ast.parse(sample))) == []


def _is_reader(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        operators = any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
        is_text = isinstance(node.left, ast.Constant | ast.JoinedStr) or _is_error_text(node.comparators[0])
        return operators and is_text and _is_message(node.comparators[0])
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in _METHODS and _is_message(node.func.value):
        return True
    return node.func.attr in _PATTERNS and any(_is_message(argument) for argument in node.args)


def _is_message(node: ast.AST) -> bool:
    """Whether an expression is named like a message, or is the text of an error."""
    if isinstance(node, ast.Name):
        return _NAMES.fullmatch(node.id) is not None
    if isinstance(node, ast.Attribute):
        return node.attr in ("message", "sentence", "what") and isinstance(node.value, ast.Name)
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
        return key in _KEYS or (isinstance(node.value, ast.Attribute) and node.value.attr == "errors")
    return _is_error_text(node)


def _is_error_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "str"
        and bool(node.args)
        and isinstance(node.args[0], ast.Name)
        and _NAMES.fullmatch(node.args[0].id) is not None
    )
