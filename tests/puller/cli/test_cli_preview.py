"""``puller preview``: what a new bundle changes on which machines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Execute, Publisher

MANIFEST = """\
data: {port: 80, password: hunter-canary} # @sensitive
resources:
  - file:
      - defaults: {owner: nobody-here, group: staff, mode: "0644"}
      - /etc/app.conf: {template: templates/app.conf.j2}
      - /etc/old: {content: old}
      - /etc/who: {content: "{{ facts.role }}"}
  - service:
      - app: {ensure: running, subscribe: ["file#/etc/app.conf"]}
"""
CANARY = "hunter-canary"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    directory = tmp_path / "web"
    (directory / "templates").mkdir(parents=True)
    (directory / "manifest.yaml").write_text(MANIFEST)
    (directory / "templates/app.conf.j2").write_text("one\nport = {{ data.port }}\nname = {{ facts.name }}\n")
    return directory


@pytest.fixture
def new(old: Path, tmp_path: Path) -> Path:
    return shutil.copytree(old, tmp_path / "new")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    directory = tmp_path / "fleet"
    directory.mkdir()
    for number in range(1, 5):
        facts = {"name": f"web0{number}", "role": "web", "machine": "/srv", "os": {"family": "Debian"}}
        (directory / f"web0{number}.json").write_text(json.dumps(facts))
    return directory


def test_a_copy_changes_nothing(execute: Execute, old: Path, new: Path, fleet: Path) -> None:
    status, output = execute("preview", str(new), "--from", str(old), "--facts", str(fleet))
    assert (status, output) == (0, "4 of 4 machines (web01, web02, web03 and 1 more): nothing changes\n")


def test_machines_with_equal_changes_are_told_together(
    execute: Execute, old: Path, new: Path, fleet: Path
) -> None:
    (new / "templates/app.conf.j2").write_text("two\nport = {{ data.port }}\nname = {{ facts.name }}\n")
    (fleet / "web04.json").write_text('{"name": "web04", "os": {"family": "Debian"}}')
    (fleet / "web05.json").write_text('{"name": "web05", "role": "db"}')
    manifest = (new / "manifest.yaml").read_text()
    (new / "manifest.yaml").write_text(
        manifest.replace("facts.role", "facts.role if facts.role != 'db' else facts.x")
    )
    status, output = execute("preview", str(new), "--from", str(old), "--facts", str(fleet))
    assert status == 4
    assert "4 of 5 machines (web01, web02, web03 and 1 more):\n  file#/etc/app.conf changed\n" in output
    assert "    -one\n" in output.replace("      ", "    ")
    assert "service#app restarts, because of file#/etc/app.conf" in output
    assert "1 of 5 machines (web05):\n" in output
    assert "file#/etc/who fails: " in output
    assert "1 of 5 machines (web04): file#/etc/who fails as before: " in output


def test_two_files_may_follow_one_option(execute: Execute, old: Path, new: Path, fleet: Path) -> None:
    files = sorted(map(str, fleet.iterdir()))
    status, output = execute("preview", str(new), "--from", str(old), "--facts", *files)
    assert status == 0
    assert "4 of 4 machines" in output


def test_a_bundle_that_is_refused_fails_with_its_words(
    execute: Execute, old: Path, new: Path, fleet: Path
) -> None:
    (new / "manifest.yaml").write_text("resources:\n  - flie: [/x]\n")
    status, output = execute("preview", str(new), "--from", str(old), "--facts", str(fleet))
    assert status == 4
    assert "the bundle fails: " in output
    assert "flie" in output
    again, output = execute("preview", str(new), "--from", str(new), "--facts", str(fleet))
    assert again == 4, "nothing could be compared"
    assert "fails as before" in output


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_secrets_are_shown_in_no_form(execute: Execute, old: Path, new: Path, fleet: Path, form: str) -> None:
    secret = (
        "resources:\n  - file: [{/etc/p: {owner: a, group: b, mode: '0600', content: '{{ data.pw }}'}}]\n"
    )
    (old / "manifest.yaml").write_text(f"data:\n  pw: {CANARY}1 # @sensitive\n{secret}")
    (new / "manifest.yaml").write_text(f"data:\n  pw: {CANARY}2 # @sensitive\n{secret}")
    words = ("preview", str(new), "--from", str(old), "--facts", str(fleet), "--format", form)
    status, output = execute(*words)
    assert status == 2
    assert "file#/etc/p" in output
    assert CANARY not in output
    (new / "manifest.yaml").write_text(f"data:\n  pw: {CANARY}2\n{secret}")
    status, output = execute(*words)
    assert status == 2
    assert CANARY not in output, "what was secret a release ago is shown"


def test_json_names_all_machines_and_changes(execute: Execute, old: Path, new: Path, fleet: Path) -> None:
    manifest = (new / "manifest.yaml").read_text().replace("      - /etc/old: {content: old}\n", "")
    (new / "manifest.yaml").write_text(manifest.replace("0644", "0600"))
    status, output = execute(
        "preview", str(new), "--from", str(old), "--facts", str(fleet), "--format", "json"
    )
    assert status == 2
    found = json.loads(output)
    (group,) = found["groups"]
    assert group["machines"] == ["web01", "web02", "web03", "web04"]
    changes = {change["reference"]: change for change in group["changes"]}
    assert changes["file#/etc/old"]["kind"] == "removed"
    assert changes["file#/etc/old"]["why"] == "is left as it is"
    assert changes["file#/etc/who"]["properties"] == [{"name": "mode", "old": "0644", "new": "0600"}]
    assert changes["service#app"]["refresh"] == "restarts"


def test_markdown_cannot_be_broken_out_of(
    execute: Execute, old: Path, new: Path, fleet: Path, tmp_path: Path
) -> None:
    (new / "templates/app.conf.j2").write_text("````\n# out\n")
    to = tmp_path / "comment.md"
    words = ("--from", str(old), "--facts", str(fleet), "--format", "markdown", "-o", str(to))
    status, output = execute("preview", str(new), *words)
    assert (status, output) == (2, "")
    assert "`````diff\n" in to.read_text()


def test_two_releases_of_a_site_are_compared(execute: Execute, publisher: Publisher, fleet: Path) -> None:
    publisher.publish("1.4.0")
    publisher.publish("1.5.0")
    site = str(publisher.site.directory)
    words = ("preview", site, "--from", "web=1.4.0", "--to", "web=1.5.0", "--facts", str(fleet))
    status, output = execute(*words)
    assert status == 2, output
    assert "4 of 4 machines" in output
    assert "1.5.0" in output
    status, output = execute("preview", site, "--from", "web=1.4.0", "--to", "web=9", "--facts", str(fleet))
    assert status == 64
    assert "has never published web 9" in output


def test_a_damaged_release_is_no_side_of_a_preview(
    execute: Execute, publisher: Publisher, fleet: Path
) -> None:
    publisher.publish("1.4.0")
    (archive,) = publisher.site.public.glob("targets/web/*.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    site = str(publisher.site.directory)
    status, output = execute(
        "preview", site, "--from", "web=1.4.0", "--to", "web=1.4.0", "--facts", str(fleet)
    )
    assert status == 10, output


def test_a_directory_is_compared_with_what_its_channel_gives(
    execute: Execute, publisher: Publisher, old: Path, fleet: Path
) -> None:
    publisher.publish("1.4.0", MANIFEST, files={"templates/app.conf.j2": b"one\n"})
    words = ("--site", str(publisher.site.directory), "--facts", str(fleet))
    status, output = execute("preview", str(old), *words)
    assert status == 2, output
    assert "file#/etc/app.conf changed" in output
    status, output = execute("preview", str(old), *words, "--name", "db")
    assert "channel 'stable' has no bundle 'db'" in output


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no facts, wanted files such as web01.json"),
        ({"a.json": "{"}, "a.json"),
        ({"a.json": "[]"}, "wanted a mapping"),
        (
            {"a.json": '{"networking": {"fqdn": "x"}}', "b.json": '{"networking": {"fqdn": "x"}}'},
            "is the machine x, which",
        ),
    ],
)
def test_facts_that_cannot_be_read_are_named(
    execute: Execute, old: Path, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    (tmp_path / "facts").mkdir()
    for name, text in files.items():
        (tmp_path / "facts" / name).write_text(text)
    status, output = execute("preview", str(old), "--from", str(old), "--facts", str(tmp_path / "facts"))
    assert status == 64
    assert message in output


def test_a_file_may_hold_several_machines(execute: Execute, old: Path, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("a: {name: a, role: x, os: {}}\nb: {name: b, role: x, os: {}}\n")
    status, output = execute("preview", str(old), "--from", str(old), "--facts", str(tmp_path / "all.yaml"))
    assert (status, output) == (0, "2 of 2 machines (a, b): nothing changes\n")


def test_programs_that_are_not_run_are_told(execute: Execute, old: Path, fleet: Path) -> None:
    (old / "facts.d").mkdir()
    program = old / "facts.d/rack.sh"
    program.write_text("#!/bin/sh\necho 1\n")
    program.chmod(0o755)
    status, output = execute("preview", str(old), "--from", str(old), "--facts", str(fleet))
    assert status == 0
    assert "note: " in output
    assert "facts.d/rack.sh: not run for other machines" in output


def test_without_an_old_bundle_nothing_can_be_compared(execute: Execute, old: Path, fleet: Path) -> None:
    status, output = execute("preview", str(old), "--facts", str(fleet))
    assert status == 64
    assert "wanted --from OLD or --site DIR" in output


def test_a_file_that_cannot_be_written_is_named(
    execute: Execute, old: Path, fleet: Path, tmp_path: Path
) -> None:
    to = str(tmp_path / "none/comment.md")
    status, output = execute("preview", str(old), "--from", str(old), "--facts", str(fleet), "-o", to)
    assert status == 64
    assert f"{to}: cannot be written: " in output


def test_data_is_given_to_both_sides_and_its_secrets_are_not_shown(
    execute: Execute, old: Path, new: Path, fleet: Path, tmp_path: Path
) -> None:
    (tmp_path / "values.yaml").write_text("data:\n  port: 8081\n")
    manifest = (new / "manifest.yaml").read_text()
    (new / "manifest.yaml").write_text(manifest.replace("port: 80", "port: 81"))
    words = ("preview", str(new), "--from", str(old), "--facts", str(fleet))
    assert execute(*words)[0] == 2
    assert execute(*words, "--data", str(tmp_path / "values.yaml"))[0] == 0
    assert execute(*words, "--set", "port=8081")[0] == 0


def test_a_bundle_is_read_with_those_before_it(
    execute: Execute, old: Path, fleet: Path, tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "manifest.yaml").write_text(
        'resources:\n  - service: [{shop: {ensure: running, subscribe: ["file#/etc/app.conf"]}}]\n'
    )
    words = ("preview", str(shop), "--from", str(shop), "--facts", str(fleet))
    assert execute(*words)[0] == 4
    assert execute(*words, "--with", str(old))[0] == 0


def test_a_machine_has_the_legacy_names_of_its_facts(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("old", "{{ facts.fqdn }}"), ("new", "{{ facts.fqdn }} of {{ facts.osfamily }}")):
        (tmp_path / name).mkdir()
        file = f"/motd: {{content: '{text}', owner: root, group: root, mode: '0644'}}"
        (tmp_path / name / "manifest.yaml").write_text(f"resources:\n  - file: [{{{file}}}]\n")
    facts = {"networking": {"fqdn": "web01.example.com"}, "os": {"family": "Debian"}}
    (tmp_path / "web01.json").write_text(json.dumps(facts))
    status, output = execute("preview", "new", "--from", "old", "--facts", "web01.json")
    assert (status, "+web01.example.com of Debian" in output) == (2, True), output
