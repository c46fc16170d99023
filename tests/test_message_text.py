"""No module reads the text of a problem: the kind, the place and the name of a problem are fields."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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

JUSTIFIED = {
    # Text of libraries and of the system, which has no other form. It becomes a value of ours there.
    "bundles/client/tuf_errors.py": "python-tuf gives key counts and digests in its messages only",
    "bundles/format/description.py": "msgspec gives the path of a value in its message only",
    "bundles/transport/location.py": "a message of urllib, without the part that may be a password",
    "hiera/tree/ruby/psych.py": "a message of libyaml, in the words of Psych",
    "puller/resources/archives/properties.py": "a message of urllib, without the part that may be a password",
    "puller/fleet/store/database.py": "sqlite3 in Python 3.11 gives no code for a locked database",
    "puller/resources/checkouts/repository.py": "entries of the reflog of git",
    "puller/state/stored_json.py": "msgspec gives the path of a value in its message only",
    "puller/resources/edits/formats/toml_tree.py": "tomllib gives line and column in its message only",
    "puller/values/convert.py": "msgspec gives the expected type in its message only",
    "foundation/object_store.py": "one line of a message of boto3",
    # The layout of text for an output.
    "puller/cli/__init__.py": "each line of an error gets the name of the program",
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
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if _is_reader(node):
            yield f"{name}:{getattr(node, 'lineno', 0)}"


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
