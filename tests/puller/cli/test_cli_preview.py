"""``puller preview``: the changes of a new bundle, and the affected machines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.channels import RolloutRequest

if TYPE_CHECKING:
    from tests.support.stories import Execute, Publisher, Web

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
TREE = "{ensure: directory, source: tree, recurse: true, owner: nobody-here, group: staff"


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
    assert (status, output) == (0, "4 of 4 machines (web01, web02, web03 and 1 more): no changes\n")


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


@pytest.mark.everything
def test_diffs_have_colour_where_it_is_wanted(
    execute: Execute, old: Path, new: Path, fleet: Path, tmp_path: Path
) -> None:
    (new / "templates/app.conf.j2").write_text("two\nport = {{ data.port }}\nname = {{ facts.name }}\n")
    command = ("preview", str(new), "--from", str(old), "--facts", str(fleet))
    output = execute(*command, "--color", "always")[1]
    assert "      \x1b[31m-one\x1b[0m\n      \x1b[32m+two\x1b[0m\n" in output
    assert (
        output.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[36m", "").replace("\x1b[0m", "")
        == execute(*command)[1]
    )
    for options in (("--format", "json"), ("--format", "markdown"), ("-o", str(tmp_path / "it"))):
        assert "\x1b" not in execute(*command, "--color", "always", *options)[1]
    assert "\x1b" not in (tmp_path / "it").read_text()


def test_option_accepts_two_files(execute: Execute, old: Path, new: Path, fleet: Path) -> None:
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
    assert "no changes" not in output, "nobody knows"
    words = ("preview", str(new), "--from", str(old), "--facts", str(fleet), "--format", "json")
    (change,) = json.loads(execute(*words)[1])["groups"][0]["changes"]
    (problem,) = change["problems"]
    assert problem["code"] == "unknown-type"
    assert problem["location"]["line"] == 2


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
    result = json.loads(output)
    (group,) = result["groups"]
    assert group["machines"] == ["web01", "web02", "web03", "web04"]
    changes = {change["reference"]: change for change in group["changes"]}
    assert changes["file#/etc/old"]["kind"] == "removed"
    assert changes["file#/etc/old"]["why"] == "it stays unchanged"
    assert changes["file#/etc/who"]["differences"] == [
        {"property": "mode", "current": "0644", "desired": "0600", "kind": "changed"}
    ]
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


def test_directory_is_compared_with_its_channel(
    execute: Execute, publisher: Publisher, old: Path, fleet: Path
) -> None:
    publisher.publish("1.4.0", MANIFEST, files={"templates/app.conf.j2": b"one\n"})
    words = ("--site", str(publisher.site.directory), "--facts", str(fleet))
    status, output = execute("preview", str(old), *words)
    assert status == 2, output
    assert "file#/etc/app.conf changed" in output
    status, output = execute("preview", str(old), *words, "--name", "db")
    assert "channel 'stable' has no bundle 'db'" in output
    status, output = execute("preview", str(old / "manifest.yaml"), *words)
    assert (status, "compared with web 1.4.0" in output) == (2, True), output


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "contains no facts, expected files such as web01.json"),
        ({"a.json": "{"}, "a.json"),
        ({"a.json": "[]"}, "expected a mapping"),
        ({"a.yaml": "web01: {os: {}}\ndb01: none\n"}, "db01: is 'none', expected the facts of a machine"),
        (
            {"a.json": '{"networking": {"fqdn": "x"}}', "b.json": '{"networking": {"fqdn": "x"}}'},
            "describes the machine x, as",
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
    assert (status, output) == (0, "2 of 2 machines (a, b): no changes\n")


def test_unknown_machine_is_taken_from_the_file(execute: Execute, old: Path, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("a: {name: a, role: x, os: {}}\nb: {}\n")
    status, output = execute("preview", str(old), "--from", str(old), "--facts", str(tmp_path / "all.yaml"))
    assert status == 0
    assert "2 of 2 machines (a, b): no changes\n" in output
    assert "1 of 2 machines (b): file#/etc/who fails as before: " in output


def test_how_a_bundle_is_applied_is_told(execute: Execute, old: Path, new: Path, fleet: Path) -> None:
    settings = (
        f"pre_message: 'now {{{{ data.pw }}}}'\nfail_on_error: true\ndata:\n  pw: {CANARY} # @sensitive\n"
    )
    (old / "manifest.yaml").write_text("resources: []\n")
    (new / "manifest.yaml").write_text(f"{settings}resources: []\n")
    status, output = execute("preview", str(new), "--from", str(old), "--facts", str(fleet))
    assert status == 2
    assert "  the bundle changed\n    fail_on_error: true\n    pre_message: Sensitive " in output
    assert CANARY not in output


def test_resources_skipped_for_a_failure_are_shown(
    execute: Execute, old: Path, new: Path, fleet: Path
) -> None:
    manifest = MANIFEST.replace('subscribe: ["file', 'require: ["file#/etc/who"], subscribe: ["file')
    (old / "manifest.yaml").write_text(manifest)
    (new / "manifest.yaml").write_text(manifest.replace("facts.role", "facts.rolle"))
    status, output = execute("preview", str(new), "--from", str(old), "--facts", str(fleet))
    assert status == 4
    assert "service#app is skipped, because of file#/etc/who" in output


@pytest.mark.parametrize(
    ("resource", "is_told"),
    [
        ("scaffold: [{/srv: {source: tree}}]", True),
        ("scaffold: [{/srv: {source: tree, mode: '0644'}}]", False),
        (f"file: [{{/srv: {TREE}, mode: 'u=rwX,go=rX'}}}}]", True),
        (f"file: [{{/srv: {TREE}, mode: '0644'}}}}]", False),
    ],
)
def test_new_executable_bit_of_a_tree_file_is_shown(
    execute: Execute, tmp_path: Path, fleet: Path, resource: str, is_told: bool
) -> None:
    for side in ("old", "new"):
        (tmp_path / side / "tree").mkdir(parents=True)
        (tmp_path / side / "manifest.yaml").write_text(f"resources:\n  - {resource}\n")
        (tmp_path / side / "tree/run").write_text("#!/bin/sh\n")
    (tmp_path / "new/tree/run").chmod(0o755)
    words = ("preview", str(tmp_path / "new"), "--from", str(tmp_path / "old"), "--facts", str(fleet))
    status, output = execute(*words)
    assert (status, "/srv/run executable false → true" in output) == (2 * is_told, is_told), output


def test_data_failure_names_its_machine(execute: Execute, tmp_path: Path) -> None:
    for side, value in (("old", "1"), ("new", "%{facts.os.family.name}")):
        (tmp_path / side / "data").mkdir(parents=True)
        (tmp_path / side / "manifest.yaml").write_text(MANIFEST.replace("{{ facts.role }}", "{{ data.a }}"))
        (tmp_path / side / "hiera.yaml").write_text("version: 5\nhierarchy: [{name: a, path: c.yaml}]\n")
        (tmp_path / side / "data/c.yaml").write_text(f"a: '{value}'\n")
        (tmp_path / side / "templates").mkdir()
        (tmp_path / side / "templates/app.conf.j2").write_text("x\n")
    (tmp_path / "all.yaml").write_text("a: {os: {family: Debian}}\nb: {os: {family: {name: Debian}}}\n")
    words = ("--from", str(tmp_path / "old"), "--facts", str(tmp_path / "all.yaml"))
    status, output = execute("preview", str(tmp_path / "new"), *words)
    assert status == 4
    assert "1 of 2 machines (a):\n  the bundle fails: " in output
    assert "1 of 2 machines (b):\n  file#/etc/who changed" in output


@pytest.mark.everything
def test_an_interrupt_ends_a_preview_and_leaves_nothing(
    publisher: Publisher, fleet: Path, tmp_path: Path
) -> None:
    """Interrupt it while it reads an unfinished file of facts, after it has unpacked the releases."""
    publisher.publish("1.4.0")
    os.mkfifo(fleet / "web09.json")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = (str(publisher.site.directory), "--from", "web=1.4.0", "--to", "web=1.4.0", "--facts", str(fleet))
    command = [sys.executable, "-m", "puller", "preview", *words]
    process = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process, (fleet / "web09.json").open("w"):
        assert list(scratch.iterdir())
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, b""), errors
    assert list(scratch.iterdir()) == []


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
    assert "the current release is unknown" in output
    assert "expected --site DIR|URL or --from OLD" in output


@pytest.mark.parametrize("here", ["work", "elsewhere"])
def test_default_site_is_here_or_beside_the_bundle(
    execute: Execute,
    publisher: Publisher,
    old: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: str,
) -> None:
    """Runs the page's command without changes."""
    publisher.publish("1.4.0", MANIFEST, files={"templates/app.conf.j2": b"one\n"})
    (tmp_path / "elsewhere").mkdir()
    work = tmp_path / "work"
    shutil.copytree(publisher.site.directory, work / "site")
    shutil.copytree(old, work / "web")
    (tmp_path / "fleet.json").write_text('{"name": "web01", "role": "web"}')
    monkeypatch.chdir(tmp_path / here)
    web = "web" if here == "work" else str(work / "web")
    status, output = execute("preview", web, "--facts", str(tmp_path / "fleet.json"))
    assert status == 2, output
    assert "file#/etc/app.conf changed" in output
    site = "site" if here == "work" else f"{work}/site"
    assert f"note: compared with web 1.4.0, which channel stable of {site} gives\n" in output


def test_a_site_may_be_a_server_with_its_root(
    execute: Execute, publisher: Publisher, web: Web, old: Path, fleet: Path
) -> None:
    publisher.publish("1.4.0", MANIFEST, files={"templates/app.conf.j2": b"one\n"})
    words = ("preview", str(old), "--site", web.url, "--facts", str(fleet))
    status, output = execute(*words)
    assert (status, "expected --root FILE, the root.json of the site" in output) == (64, True), output
    root = ("--root", str(publisher.site.anchor))
    status, output = execute(*words, *root)
    assert (status, "file#/etc/app.conf changed" in output) == (2, True), output
    publisher.publish("1.5.0", MANIFEST, files={"templates/app.conf.j2": b"two\n"})
    releases = ("--from", "web=1.4.0", "--to", "web=1.5.0", "--facts", str(fleet))
    status, output = execute("preview", web.url, *root, *releases)
    assert (status, "+two" in output) == (2, True), output


def test_a_password_of_a_server_is_shown_nowhere(
    execute: Execute, publisher: Publisher, web: Web, old: Path, fleet: Path
) -> None:
    publisher.publish("1.4.0", MANIFEST, files={"templates/app.conf.j2": b"one\n"})
    url = web.url.replace("://", f"://user:{CANARY}@")
    root = ("--root", str(publisher.site.anchor))
    words = ("--facts", str(fleet))
    status, output = execute("preview", str(old), "--site", url, *root, *words)
    assert (status, "compared with web 1.4.0" in output, CANARY in output) == (2, True, False), output
    for more in ((), (*root, "--name", "db")):
        status, output = execute("preview", str(old), "--site", url, *words, *more)
        assert (status, CANARY in output) == (64, False), output
    status, output = execute("preview", url, *root, "--from", "web=1.4.0", "--to", "web=9", *words)
    assert (status, CANARY in output) == (13, False), output


def test_a_server_that_is_away_is_told(
    execute: Execute, publisher: Publisher, web: Web, old: Path, fleet: Path
) -> None:
    publisher.publish("1.4.0")
    root = ("--root", str(publisher.site.anchor))
    for file in publisher.served.rglob("timestamp.json"):
        file.unlink()
    status, output = execute("preview", str(old), "--site", web.url, *root, "--facts", str(fleet))
    assert (status, "timestamp.json" in output) == (14, True), output


def test_answers_of_a_server_are_verified_like_on_a_host(
    execute: Execute, publisher: Publisher, web: Web, old: Path, fleet: Path, tmp_path: Path
) -> None:
    publisher.publish("1.4.0")
    (archive,) = publisher.served.glob("targets/web/*.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    words = ("preview", str(old), "--site", web.url, "--facts", str(fleet))
    assert execute(*words, "--root", str(publisher.site.anchor))[0] == 10
    (tmp_path / "root.json").write_text("{}")
    status, output = execute(*words, "--root", str(tmp_path / "root.json"))
    assert (status, "root.json" in output) == (64, True), output


def test_a_rollout_that_is_going_on_is_told(
    execute: Execute, publisher: Publisher, old: Path, fleet: Path
) -> None:
    publisher.publish("1.4.0")
    publisher.publish("1.5.0", request=RolloutRequest(percent=10))
    _, output = execute("preview", str(old), "--site", str(publisher.site.directory), "--facts", str(fleet))
    assert "compared with web 1.5.0" in output
    assert "Hosts outside of its rollout have 1.4.0" in output


def test_a_file_that_cannot_be_written_is_named(
    execute: Execute, old: Path, fleet: Path, tmp_path: Path
) -> None:
    to = str(tmp_path / "none/comment.md")
    status, output = execute("preview", str(old), "--from", str(old), "--facts", str(fleet), "-o", to)
    assert status == 64
    assert f"{to}: cannot be written: " in output


def test_given_data_reach_both_sides_and_secrets_are_masked(
    execute: Execute, old: Path, new: Path, fleet: Path, tmp_path: Path
) -> None:
    (tmp_path / "values.yaml").write_text("data:\n  port: 8081\n")
    manifest = (new / "manifest.yaml").read_text()
    (new / "manifest.yaml").write_text(manifest.replace("port: 80", "port: 81"))
    words = ("preview", str(new), "--from", str(old), "--facts", str(fleet))
    assert execute(*words)[0] == 2
    assert execute(*words, "--data", str(tmp_path / "values.yaml"))[0] == 0
    assert execute(*words, "--set", "port=8081")[0] == 0


@pytest.mark.parametrize("text", ["", "  \n", "\n\n"])
def test_an_empty_data_document_is_refused_as_by_a_run(
    execute: Execute, old: Path, new: Path, fleet: Path, tmp_path: Path, text: str
) -> None:
    data = tmp_path / "site.yaml"
    data.write_text(text)
    options = ("--from", str(old), "--facts", str(fleet), "--data", str(data))
    status, output = execute("preview", str(new), *options)
    assert status == 78
    assert f"{data}: is empty, and hosts reject an empty document" in output


@pytest.mark.parametrize("text", ["{}", "null", "# nothing\n", "data: {}\n"])
def test_a_data_document_without_data_is_named(
    execute: Execute, old: Path, new: Path, fleet: Path, tmp_path: Path, text: str
) -> None:
    data = tmp_path / "site.yaml"
    data.write_text(text)
    options = ("--from", str(old), "--facts", str(fleet), "--data", str(data))
    status, output = execute("preview", str(new), *options)
    assert status == 0
    assert f"{data} has no data, so hosts reject the document" in output


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


def test_tests_of_a_goss_file_that_change_are_told(execute: Execute, tmp_path: Path) -> None:
    for name, content in (("old", "true"), ("new", "false")):
        files = tmp_path / name / "files"
        files.mkdir(parents=True)
        (files / "goss.yaml").write_text(f"file: {{/etc/motd: {{exists: {content}}}}}\n")
        (files.parent / "manifest.yaml").write_text(
            "resources: [{exec: [{look: {command: id, health_checks: [{goss: files/goss.yaml}]}},"
            " {after: {command: id, subscribe: [exec#look]}}]}]\n"
        )
    (tmp_path / "a.json").write_text('{"os": {"name": "Debian"}}')
    sources = (str(tmp_path / "new"), "--from", str(tmp_path / "old"))
    status, output = execute("preview", *sources, "--facts", str(tmp_path / "a.json"))
    assert status == 2
    assert "health_checks: files/goss.yaml sha256 " in output
    assert "exec#after" not in output, "another question is no change of the machine"
    shutil.copytree(tmp_path / "old", tmp_path / "new", dirs_exist_ok=True)
    assert execute("preview", *sources, "--facts", str(tmp_path / "a.json"))[0] == 0
