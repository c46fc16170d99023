"""The code of templates on a host: the next run compiles nothing, and whatever happens to it changes no result."""

from __future__ import annotations

import os
from types import CodeType
from typing import TYPE_CHECKING

import jinja2
import pytest

from puller.templates.jinja import JinjaEngine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Execute, Host, Publisher

MANIFEST = """
resources:
  - file:
      - defaults: {{owner: "{owner}", group: "{group}", mode: "0644"}}
      - "{here}/out": {{template: a.j2}}
"""


def manifest(here: object) -> str:
    """A manifest with one file, of whoever runs this."""
    return MANIFEST.format(here=here, owner=os.geteuid(), group=os.getegid())


class Bundle:
    """A directory that is applied, with a template that includes another."""

    def __init__(self, here: Path, execute: Execute) -> None:
        self.here, self.execute = here, execute
        self.kept = here / "state/kept/templates"
        here.mkdir()
        (here / "manifest.yaml").write_text(manifest(here))
        (here / "a.j2").write_text("{% include 'b.j2' %} {{ facts.kernel | length > 0 }}")
        (here / "b.j2").write_text("{{ 1 + 1 }}")

    def apply(self, *options: str) -> str:
        """Apply it, and give what it has made."""
        status, output = self.execute(
            "apply", str(self.here), "--state-directory", str(self.here / "state"), *options
        )
        assert status == 0, output
        return (self.here / "out").read_text() if (self.here / "out").exists() else ""


@pytest.fixture
def bundle(tmp_path: Path, execute: Execute) -> Bundle:
    return Bundle(tmp_path / "bundle", execute)


def refuse_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be compiled from now on but expressions."""
    generate = jinja2.Environment._generate

    def refuse(
        self: jinja2.Environment, source: jinja2.nodes.Template, name: str | None, *rest: object
    ) -> str:
        assert name is None, f"{name} is compiled"
        return generate(self, source, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(jinja2.Environment, "_generate", refuse)


def test_the_next_apply_compiles_no_template(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bundle.apply() == "2 True"
    refuse_templates(monkeypatch)
    (bundle.here / "out").unlink()
    assert bundle.apply() == "2 True"


def test_the_next_run_compiles_no_template(
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


def test_a_template_that_has_changed_is_what_counts(bundle: Bundle) -> None:
    bundle.apply()
    (bundle.here / "b.j2").write_text("{{ 2 + 2 }}")
    assert bundle.apply() == "4 True"
    (bundle.here / "a.j2").write_text("other")
    assert bundle.apply() == "other"


def test_a_dry_run_reads_what_is_kept_and_writes_nothing(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.apply("--noop")
    assert not bundle.kept.parent.exists()
    bundle.apply()
    before = bundle.kept.stat()
    (bundle.here / "b.j2").write_text("{{ 2 + 2 }}")
    bundle.apply("--noop")
    assert bundle.kept.stat() == before
    (bundle.here / "b.j2").write_text("{{ 1 + 1 }}")
    refuse_templates(monkeypatch)
    bundle.apply("--noop")


def test_a_state_directory_that_takes_no_code_is_no_problem(bundle: Bundle) -> None:
    (bundle.here / "state").mkdir()
    (bundle.here / "state/kept").write_text("in the way")
    assert bundle.apply() == "2 True"
    assert (bundle.here / "state/kept").read_text() == "in the way"


def test_code_that_others_could_have_written_is_not_run(bundle: Bundle) -> None:
    bundle.apply()
    bundle.kept.write_bytes(_poisoned(bundle, "{{ 'evil' }}2"))
    (bundle.here / "out").unlink()
    assert bundle.apply() == "evil2 True"  # whoever can write as this user can do this, and everything else
    for path, mode in [(bundle.kept, 0o666), (bundle.kept.parent, 0o777)]:
        kept = path.stat().st_mode
        path.chmod(mode)
        (bundle.here / "out").unlink()
        assert bundle.apply() == "2 True"
        path.chmod(kept)


def _poisoned(bundle: Bundle, text: str) -> bytes:
    """The file of codes, with the code of another text in the place of the one that is included."""
    from hiera.expressions.kept_code import maker_digest
    from puller.state.kept_file import KeptFile

    maker = maker_digest()
    assert maker is not None
    path = bundle.here / "poisoned" / "templates"
    first, second = KeptFile(bundle.kept, maker), KeptFile(path, maker)
    engine = JinjaEngine()
    for digest in first._entries:
        code = first.find(digest)
        assert isinstance(code, CodeType)
        is_included = "b.j2" in code.co_consts
        second.keep(digest, engine.sandbox.compile(text, "b.j2") if is_included else code)
    second.save()
    first.close()
    second.close()
    return path.read_bytes()
