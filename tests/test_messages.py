"""The table of all texts that a user can see: each kind of construction, codes, and completeness."""

import ast

import pytest

from foundation.problems import ProblemCode
from tests.messages import Text, texts, texts_of

SOURCE = '''
_CODE = ProblemCode.MISSING_FILE

@group.command("add")
@click.option("--force", help="Replace an existing file.")
def add():
    """Add a file."""
    raise UsageError("the file exists", hint="choose another name")

class FileProperties:
    """No text for users."""
    mode: str
    """Permissions in octal digits."""

def problem(path, size):
    if size:
        return Problem(code=ProblemCode.INVALID_VALUE, message=f"{path}: has {size} bytes", name="no-sentence")
    problems.add((), "is missing in the bundle", code=_CODE)
    message = f"{path} is too large"
    problems.note(Problem(code=ProblemCode.OVERSIZED_FILE, message=message))
    return f"{path} is empty"
'''


def test_each_kind_of_text_is_found_with_its_code() -> None:
    results = [text[2:] for text in texts_of(ast.parse(SOURCE), "a.py", {"UsageError": "invalid-command"})]
    assert sorted(results) == [
        ("field", "", "mode", "Permissions in octal digits."),
        ("help", "", "add", "Add a file."),
        ("help", "", "help", "Replace an existing file."),
        ("problem", "invalid-command", "", "the file exists"),
        ("problem", "invalid-command", "hint", "choose another name"),
        ("problem", "invalid-value", "message", "{path}: has {size} bytes"),
        ("problem", "missing-file", "", "is missing in the bundle"),
        ("problem", "oversized-file", "message", "{path} is too large"),
        ("text", "", "", "{path} is empty"),
    ]


@pytest.mark.everything  # reads all modules
def test_codes_of_the_table_are_codes_of_problems() -> None:
    codes = {text.code for text in texts()} - {""}
    assert codes <= {str(code) for code in ProblemCode}
    # Every other code gets its message from another module or library at run time.
    assert len(codes) > len(ProblemCode) // 2


@pytest.mark.everything
def test_the_table_covers_every_package_and_kind() -> None:
    table = texts()
    assert {text.path.partition("/")[0] for text in table} == {"bundles", "foundation", "hiera", "puller"}
    assert {text.kind for text in table} == {"problem", "help", "field", "text"}
    assert Text.__annotations__.keys() == {"path", "line", "kind", "code", "field", "text"}
