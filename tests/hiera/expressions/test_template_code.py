"""The cache of compiled templates never returns the code of another template or compiler."""

import os
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import BaseLoader, TemplateSyntaxError

from hiera.expressions import template_code
from hiera.expressions.jinja import for_templates
from hiera.expressions.template_code import compiler_identity, stored_in
from hiera.limits import meter

NOW = sys.maxsize


class Memory:
    """A store in memory that counts its hits."""

    def __init__(self) -> None:
        self.codes: dict[str, CodeType] = {}
        self.hits = 0

    def find(self, key: str) -> CodeType | None:
        self.hits += key in self.codes
        return self.codes.get(key)

    def add(self, key: str, code: CodeType) -> None:
        self.codes[key] = code


def rendered(store: Memory, text: str, **options: Any) -> str:
    """Render a text like a new process that has the store but no compiled templates in memory."""
    with stored_in(lambda compiler: store):
        template = for_templates(BaseLoader(), **options).from_string(text)
        with meter:
            return template.render({"a": 1})


def outcome(store: Memory, text: str, options: dict[str, object]) -> str:
    """Return the rendered text, or the syntax error."""
    try:
        return rendered(store, text, **options)
    except TemplateSyntaxError as error:
        return repr(error)


TEXTS = st.lists(
    st.sampled_from(
        ["{{ a }}", "<% if a %>", "{% if a %}", "{% endif %}", "<% endif %>", "\n", "# x", "[[ a ]]"]
    )
).map("".join)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "variable_start_string": st.sampled_from(["{{", "[["]),
        "block_start_string": st.sampled_from(["{%", "<%"]),
        "block_end_string": st.sampled_from(["%}", "%>"]),
        "variable_end_string": st.sampled_from(["}}", "]]"]),
        "line_comment_prefix": st.sampled_from(["#"]),
        "lstrip_blocks": st.booleans(),
        "newline_sequence": st.sampled_from(["\n", "\r\n"]),
    },
)


@given(st.lists(st.tuples(TEXTS, OPTIONS), min_size=2, max_size=6))
def test_templates_render_alike_with_and_without_a_store(
    templates: list[tuple[str, dict[str, object]]],
) -> None:
    store = Memory()
    for text, options in [*templates, *templates]:
        assert outcome(store, text, options) == outcome(Memory(), text, options)


def test_template_is_compiled_once_for_all_processes() -> None:
    store = Memory()
    assert [rendered(store, "{{ a }}!") for _ in range(3)] == ["1!"] * 3
    assert (len(store.codes), store.hits) == (1, 2)


def test_code_compiled_after_reading_a_secret_is_not_stored() -> None:
    store = Memory()
    with meter:
        meter.secret = True
        assert rendered(store, "{{ a }} of a secret") == "1 of a secret"
    assert store.codes == {}
    assert rendered(store, "{{ a }} of a template after it") == "1 of a template after it"
    assert len(store.codes) == 1


def test_store_is_not_opened_without_templates() -> None:
    def refuse(compiler: str) -> Memory:
        raise AssertionError("opened")

    with stored_in(refuse):
        pass


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the package of a fake compiler."""
    module = ModuleType("fake_compiler")
    module.__file__ = str(tmp_path / "__init__.py")
    for name in ("__init__.py", "compiler.py"):
        (tmp_path / name).write_text("version = 1\n")
    monkeypatch.setitem(sys.modules, "fake_compiler", module)
    monkeypatch.setattr(template_code, "_COMPILER_PACKAGES", ("fake_compiler",))
    return tmp_path


def test_patched_compiler_of_same_version_has_new_identity(package: Path) -> None:
    before = compiler_identity(NOW)
    assert before == compiler_identity(NOW)
    status = (package / "compiler.py").stat()
    (package / "compiler.py").write_text(
        "version = 2\n"
    )  # same size and time, as in packages of distributions
    os.utime(package / "compiler.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compiler_identity(NOW) != before


def test_bytecode_of_the_compiler_does_not_change_its_identity(package: Path) -> None:
    before = compiler_identity(NOW)
    (package / "__pycache__").mkdir()
    assert compiler_identity(NOW) == before


def test_another_python_has_another_identity(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiler_identity(NOW)
    monkeypatch.setattr(sys, "version", sys.version + "+security1")
    assert compiler_identity(NOW) != before


def test_compiler_changed_during_the_process_has_no_identity(package: Path) -> None:
    changed = (package / "compiler.py").stat().st_ctime_ns
    assert compiler_identity(changed + 1) is not None
    assert compiler_identity(changed) is None
    (package / "compiler.py").unlink()
    (package / "__init__.py").unlink()
    package.rmdir()
    assert compiler_identity(NOW) is None
