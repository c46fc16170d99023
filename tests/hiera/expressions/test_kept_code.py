"""Code of templates by what it follows from: nothing that would compile to something else is ever found."""

import os
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import BaseLoader, TemplateSyntaxError

from hiera.expressions import kept_code
from hiera.expressions.jinja import for_templates
from hiera.expressions.kept_code import kept_in, maker_digest
from hiera.limits import meter

NOW = sys.maxsize


class Memory:
    """A store that keeps everything, and counts what was found."""

    def __init__(self) -> None:
        self.codes: dict[bytes, CodeType] = {}
        self.found = 0

    def find(self, digest: bytes) -> CodeType | None:
        self.found += digest in self.codes
        return self.codes.get(digest)

    def keep(self, digest: bytes, result: Any) -> None:
        self.codes[digest] = result


def rendered(store: Memory, text: str, **options: Any) -> str:
    """A text as another process renders it, which has the store and nothing in memory."""
    with kept_in(lambda maker: store):
        template = for_templates(BaseLoader(), **options).from_string(text)
        with meter:
            return template.render({"a": 1})


def outcome(store: Memory, text: str, options: dict[str, object]) -> str:
    """The rendered text, or what is said against it."""
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
def test_a_template_renders_with_kept_code_as_without(
    templates: list[tuple[str, dict[str, object]]],
) -> None:
    store = Memory()
    for text, options in [*templates, *templates]:
        assert outcome(store, text, options) == outcome(Memory(), text, options)


def test_a_template_is_compiled_once_for_all_processes() -> None:
    store = Memory()
    assert [rendered(store, "{{ a }}!") for _ in range(3)] == ["1!"] * 3
    assert (len(store.codes), store.found) == (1, 2)


def test_what_is_compiled_after_a_look_at_a_secret_is_not_kept() -> None:
    store = Memory()
    with meter:
        meter.secret = True
        assert rendered(store, "{{ a }} of a secret") == "1 of a secret"
    assert store.codes == {}
    assert rendered(store, "{{ a }} of a template after it") == "1 of a template after it"
    assert len(store.codes) == 1


def test_a_store_is_not_opened_without_templates() -> None:
    def refuse(maker: bytes) -> Memory:
        raise AssertionError("opened")

    with kept_in(refuse):
        pass


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that code follows from."""
    module = ModuleType("maker_of_code")
    module.__file__ = str(tmp_path / "__init__.py")
    for name in ("__init__.py", "compiler.py"):
        (tmp_path / name).write_text("version = 1\n")
    monkeypatch.setitem(sys.modules, "maker_of_code", module)
    monkeypatch.setattr(kept_code, "_MAKERS", ("maker_of_code",))
    return tmp_path


def test_another_compiler_of_the_same_version_is_another_maker(package: Path) -> None:
    before = maker_digest(NOW)
    assert before == maker_digest(NOW)
    found = (package / "compiler.py").stat()
    (package / "compiler.py").write_text("version = 2\n")  # as long, and as old, as distributions pack it
    os.utime(package / "compiler.py", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert maker_digest(NOW) != before


def test_bytecode_that_python_keeps_of_the_compiler_makes_no_difference(package: Path) -> None:
    before = maker_digest(NOW)
    (package / "__pycache__").mkdir()
    assert maker_digest(NOW) == before


def test_another_python_is_another_maker(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = maker_digest(NOW)
    monkeypatch.setattr(sys, "version", sys.version + "+security1")
    assert maker_digest(NOW) != before


def test_a_compiler_that_was_changed_while_the_process_ran_keeps_nothing(package: Path) -> None:
    changed = (package / "compiler.py").stat().st_ctime_ns
    assert maker_digest(changed + 1) is not None
    assert maker_digest(changed) is None
    (package / "compiler.py").unlink()
    (package / "__init__.py").unlink()
    package.rmdir()
    assert maker_digest(NOW) is None
