"""Runs use the cache of compiled templates, and never execute code that other users may have written."""

from __future__ import annotations

import marshal
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.run import template_cache
from puller.run.template_cache import _CHECKSUM_BYTES, TemplateCache, _digest
from puller.templates.jinja import JinjaEngine

if TYPE_CHECKING:
    from types import CodeType

    from tests.support.stories import Execute, Host, Publisher

COMPILER = "a compiler"


def code(value: object) -> CodeType:
    return compile(f"value = {value!r}", "<test>", "exec")


def keep(path: Path, compiler: str = COMPILER, /, **values: object) -> None:
    """Run with these templates, and store the new code."""
    cache = TemplateCache(path, compiler)
    for key, value in values.items():
        if cache.find(key) is None:
            cache.add(key, code(value))
    cache.save()


def found(path: Path, *keys: str, compiler: str = COMPILER) -> dict[str, object]:
    """Return the results of the cached code in the next run."""
    cache = TemplateCache(path, compiler)
    values: dict[str, object] = {}
    for key in keys:
        stored = cache.find(key)
        if stored is not None:
            names: dict[str, object] = {}
            exec(stored, names)
            values[key] = names["value"]
    return values


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "template-cache" / "templates"


def test_next_run_finds_stored_code(path: Path) -> None:
    assert found(path, "a") == {}
    keep(path, a=1, b="two")
    assert found(path, "a", "b", "c") == {"a": 1, "b": "two"}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_run_without_new_code_does_not_write_the_file(path: Path) -> None:
    keep(path, a=1)
    before = path.stat()
    keep(path, a=1)
    assert path.stat() == before


def test_code_of_another_compiler_is_ignored(path: Path) -> None:
    keep(path, a=1)
    assert found(path, "a", compiler="other") == {}
    keep(path, "other", b=2)
    assert found(path, "a", "b", compiler="other") == {"b": 2}


def test_unused_code_stays_while_the_file_has_room(path: Path) -> None:
    keep(path, old=1)
    keep(path, new=2)
    assert found(path, "old", "new") == {"old": 1, "new": 2}


def test_file_never_exceeds_its_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_cache, "MAX_BYTES", 4096)
    for number in range(50):
        keep(path, used=1, **{f"n{number}": "x" * 1000})
    assert path.stat().st_size < 6000
    assert found(path, "used", "n49", "n0") == {"used": 1, "n49": "x" * 1000}


def test_code_beyond_the_limit_does_not_rewrite_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_cache, "MAX_BYTES", 4096)
    many = {f"n{number}": "x" * 1000 for number in range(10)}
    keep(path, **many)
    before = path.stat()
    keep(path, **many)
    assert path.stat() == before


def put(path: Path, make: Callable[[], object]) -> None:
    """Replace a file by another object."""
    path.unlink()
    make()


def link(path: Path) -> None:
    """Replace a path by a link to it."""
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


WRONG: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, 200),
    "garbage": lambda path: path.write_bytes(os.urandom(5000)),
    "written by others": lambda path: path.chmod(0o620),
    "read by others": lambda path: path.chmod(0o604),
    "in a directory of others": lambda path: path.parent.chmod(0o770),
    "behind a link": link,
    "in a directory behind a link": lambda path: link(path.parent),
    "a directory": lambda path: put(path, path.mkdir),
    "a FIFO": lambda path: put(path, lambda: os.mkfifo(path, 0o600)),
    "gone": lambda path: put(path, path.parent.rmdir),
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG)
def test_damaged_and_foreign_files_are_never_executed(path: Path, spoil: Callable[[Path], object]) -> None:
    keep(path, a=1)
    spoil(path)
    assert found(path, "a") == {}


@pytest.mark.root
@pytest.mark.parametrize("place", ["file", "directory"])
def test_code_of_another_owner_is_never_executed(path: Path, place: str) -> None:
    keep(path, a=1)
    os.chown(path if place == "file" else path.parent, 65534, 65534)
    assert found(path, "a") == {}


def test_cache_is_not_written_into_a_shared_directory(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    keep(path, a=1)
    assert os.listdir(path.parent) == []


def test_damaged_file_is_written_again(path: Path) -> None:
    keep(path, a=1, b=2)
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40
    path.write_bytes(data)
    assert found(path, "a", "b") == {}
    keep(path, a=1, b=2)
    assert found(path, "a", "b") == {"a": 1, "b": 2}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bits_give_stored_code_or_no_code(path: Path, data: st.DataObject) -> None:
    path.unlink(missing_ok=True)
    keep(path, a=1, b="two")
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    assert found(path, "a", "b").items() <= {"a": 1, "b": "two"}.items()


MANIFEST = """
resources:
  - file:
      - defaults: {{owner: "{owner}", group: "{group}", mode: "0644"}}
      - "{here}/out": {{template: a.j2}}
"""


def manifest(here: object) -> str:
    """Return a manifest with one file of the current user."""
    return MANIFEST.format(here=here, owner=os.geteuid(), group=os.getegid())


class Bundle:
    """A bundle with a template that includes another template."""

    def __init__(self, here: Path, execute: Execute) -> None:
        self.here, self.execute = here, execute
        self.cache = here / "state/template-cache/templates"
        here.mkdir()
        (here / "manifest.yaml").write_text(manifest(here))
        (here / "a.j2").write_text("{% include 'b.j2' %} {{ facts.kernel | length > 0 }}")
        (here / "b.j2").write_text("{{ 1 + 1 }}")

    def apply(self, *options: str) -> str:
        """Apply the bundle, and return the content of its file."""
        status, output = self.execute(
            "apply", str(self.here), "--state-directory", str(self.here / "state"), *options
        )
        assert status == 0, output
        return (self.here / "out").read_text() if (self.here / "out").exists() else ""


@pytest.fixture
def bundle(tmp_path: Path, execute: Execute) -> Bundle:
    return Bundle(tmp_path / "bundle", execute)


def refuse_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a template is compiled, and allow expressions."""
    generate = jinja2.Environment._generate

    def refuse(
        self: jinja2.Environment, source: jinja2.nodes.Template, name: str | None, *remainder: object
    ) -> str:
        assert name is None, f"{name} is compiled"
        return generate(self, source, name, *remainder)  # type: ignore[arg-type]

    monkeypatch.setattr(jinja2.Environment, "_generate", refuse)


def test_second_apply_compiles_no_template(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bundle.apply() == "2 True"
    refuse_templates(monkeypatch)
    (bundle.here / "out").unlink()
    assert bundle.apply() == "2 True"


def test_second_run_compiles_no_template(
    host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = manifest("{{ facts.machine }}")
    files = {"a.j2": b"{{ 1 + 1 }}{{ facts.kernel }}"}
    publisher.publish("1.0.0", text, files=files)
    host.machine.mkdir(exist_ok=True)
    assert host.run().status == 0
    refuse_templates(monkeypatch)
    (host.machine / "out").unlink()
    assert host.run().status == 0
    publisher.publish("1.1.0", text + "\n# another version", files=files)
    assert host.run().status == 0
    assert (host.machine / "out").read_text().startswith("2")


def test_changed_template_is_compiled_again(bundle: Bundle) -> None:
    bundle.apply()
    (bundle.here / "b.j2").write_text("{{ 2 + 2 }}")
    assert bundle.apply() == "4 True"
    (bundle.here / "a.j2").write_text("other")
    assert bundle.apply() == "other"


def test_dry_run_reads_the_cache_and_never_writes_it(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.apply("--noop")
    assert not bundle.cache.parent.exists()
    bundle.apply()
    before = bundle.cache.stat()
    (bundle.here / "b.j2").write_text("{{ 2 + 2 }}")
    bundle.apply("--noop")
    assert bundle.cache.stat() == before
    (bundle.here / "b.j2").write_text("{{ 1 + 1 }}")
    refuse_templates(monkeypatch)
    bundle.apply("--noop")


def test_unwritable_cache_is_not_a_problem(bundle: Bundle) -> None:
    (bundle.here / "state").mkdir()
    (bundle.here / "state/template-cache").write_text("in the way")
    assert bundle.apply() == "2 True"
    assert (bundle.here / "state/template-cache").read_text() == "in the way"


def test_code_that_others_may_have_written_is_not_executed(bundle: Bundle) -> None:
    bundle.apply()
    bundle.cache.write_bytes(_poisoned(bundle, "{{ 'evil' }}2"))
    (bundle.here / "out").unlink()
    assert bundle.apply() == "evil2 True"  # this user may write the cache
    for path, mode in [(bundle.cache, 0o666), (bundle.cache.parent, 0o777)]:
        mode_before = path.stat().st_mode
        path.chmod(mode)
        (bundle.here / "out").unlink()
        assert bundle.apply() == "2 True"
        path.chmod(mode_before)


def _poisoned(bundle: Bundle, text: str) -> bytes:
    """Return a cache file in which the included template has the code of another text."""
    compiler, stored = marshal.loads(bundle.cache.read_bytes()[_CHECKSUM_BYTES:])
    code = marshal.dumps(JinjaEngine().sandbox.compile(text, "b.j2"))
    poisoned = {
        digest: code if "b.j2" in marshal.loads(data).co_consts else data for digest, data in stored.items()
    }
    data = marshal.dumps((compiler, poisoned))
    return _digest(data) + data
