"""``puller test``: its output for people, programs and CI services."""

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

Execute = Callable[..., tuple[int, str]]

MANIFEST = """\
data:
  workers: 2
  # @sensitive
  secret: s3cr3t-value
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/app.conf: {content: "workers = {{ data.workers }}\\n"}
      - /etc/token: {content: "{{ data.secret }}"}
"""
GOOD = 'os: debian-12\nexpect:\n  file#/etc/app.conf: {mode: "0644"}\n'
BAD = 'os: debian-12\nexpect:\n  file#/etc/app.conf: {mode: "0600"}\n'


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("web/manifest.yaml", MANIFEST)


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def without_time(output: str) -> list[str]:
    return [line.partition(", in ")[0] for line in output.splitlines()]


def test_case_line_lists_expected_and_actual_values(execute: Execute) -> None:
    write("web/tests/web01.yaml", GOOD)
    write("web/tests/db/one.yaml", BAD)
    status, output = execute("test", "web")
    assert status == 1
    assert without_time(output) == [
        "FAIL  web: db/one",
        '      web/tests/db/one.yaml:3: file#/etc/app.conf mode: expected "0600", found "0644"'
        " (declared in web/manifest.yaml:8)",
        "ok    web: web01",
        "2 cases: 1 passed, 1 failed",
    ]
    assert without_time(execute("test", "web", "--only", "web*")[1])[-1] == "1 case: 1 passed, 0 failed"
    assert execute("test", "web", "--only", "web*")[0] == 0


def test_paths_are_relative_to_the_bundle(execute: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    write("web/tests/web01.yaml", BAD)
    monkeypatch.chdir("web")
    output = execute("test", ".")[1]
    assert "tests/web01.yaml:3: file#/etc/app.conf mode" in output
    assert "(declared in manifest.yaml:8)" in output
    assert str(Path.cwd()) not in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["web"], "web: contains no cases, expected files such as web/tests/web01.yaml"),
        (["shop", "web"], "web: contains no cases, expected files such as web/tests/web01.yaml"),
        (["shop", "--only", "wbe*"], "no case has a name like wbe*"),
    ],
)
def test_nothing_that_was_run_is_no_success(execute: Execute, arguments: list[str], said: str) -> None:
    write("shop/manifest.yaml", MANIFEST)
    write("shop/tests/web01.yaml", GOOD)
    status, output = execute("test", *arguments)
    assert status == 1
    assert f"puller: {said}\n" in output


@pytest.mark.parametrize("name", ["web02.yml", "web02.YAML", "more/web02.Yml"])
def test_a_file_that_would_be_passed_over_is_an_error(execute: Execute, name: str) -> None:
    write("web/tests/web01.yaml", GOOD)
    write(f"web/tests/{name}", BAD)
    status, output = execute("test", "web")
    assert status == 78
    assert f"{name}: is not a case, expected a name that ends in .yaml" in output


def test_a_pipe_in_the_place_of_a_case_is_an_error(execute: Execute) -> None:
    write("web/tests/web01.yaml", GOOD)
    os.mkfifo("web/tests/web02.yaml")
    assert "web02.yaml: is not a case, expected a regular file" in execute("test", "web")[1]


def test_an_update_without_snapshots_says_how_to_have_some(execute: Execute) -> None:
    write("web/tests/web01.yaml", GOOD)
    status, output = execute("test", "web", "--update")
    assert (status, "no snapshot is written, because no case has `snapshot: true`" in output) == (0, True)


def test_directory_without_a_bundle_is_reported(execute: Execute) -> None:
    assert execute("test", "nowhere") == (
        64,
        "puller: nowhere: does not exist\n",
    )
    assert execute("test")[0] == 64
    assert execute("test", "web", "-j", "0")[0] == 64


def test_a_bundle_file_is_tested_as_its_directory_is(execute: Execute) -> None:
    write("web/tests/web01.yaml", BAD)
    assert execute("bundle", "build", "web", "--version", "1.0.0")[0] == 0
    status, output = execute("test", "web-1.0.0.tar.gz")
    assert status == 1
    assert 'web-1.0.0.tar.gz/tests/web01.yaml:3: file#/etc/app.conf mode: expected "0600"' in output
    status, output = execute("test", "web-1.0.0.tar.gz", "--update")
    assert (status, "snapshots require a directory" in output) == (64, True)


def test_results_as_json(execute: Execute) -> None:
    write("web/tests/web01.yaml", BAD)
    write("web/tests/web02.yaml", GOOD)
    status, output = execute("test", "web", "--format", "json")
    document = json.loads(output)
    assert (status, document["format"], document["passed"], document["failed"]) == (1, 1, 1, 1)
    (failure,) = document["cases"][0]["failures"]
    assert failure["where"] == "web/tests/web01.yaml:3"
    assert (failure["expected"], failure["found"]) == ('"0600"', '"0644"')
    assert document["cases"][1]["failures"] == []


def test_junit_goes_to_a_file_beside_text_output(execute: Execute) -> None:
    write("web/manifest.yaml", MANIFEST.replace("workers =", "\\x01 <workers> ="))
    write("web/tests/web01.yaml", "os: debian-12\nexpect: {file#/etc/app.conf: {content: x}}\n")
    write("web/tests/web02.yaml", GOOD)
    write("shop/manifest.yaml", MANIFEST)
    write("shop/tests/one.yaml", GOOD)
    status, output = execute("test", "web", "shop", "--format", "junit", "-o", "results.xml")
    assert status == 1
    assert without_time(output)[-1] == "3 cases: 2 passed, 1 failed"
    root = ET.parse("results.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("3", "1")
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [("web", "2"), ("shop", "1")]
    failed = root.find("testsuite/testcase[@name='web01']/failure")
    assert failed is not None
    assert "content: differs from the expected text" in str(failed.get("message"))
    assert "+\\x01 <workers> = 2" in str(failed.text)
    passed = root.find("testsuite/testcase[@name='web02']")
    assert passed is not None
    assert len(passed) == 0


def test_results_that_cannot_be_written_are_an_error(execute: Execute) -> None:
    write("web/tests/web01.yaml", GOOD)
    status, output = execute("test", "web", "--format", "json", "-o", "nowhere/results.json")
    assert status == 78
    assert "nowhere/results.json" in output


def test_a_snapshot_pins_everything_until_it_is_written_anew(execute: Execute) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    status, output = execute("test", "web")
    assert status == 1
    assert "tests/snapshots/web01.yaml: the snapshot is missing; `puller test --update` writes it" in output
    status, output = execute("test", "web", "--update")
    assert (status, "web/tests/snapshots/web01.yaml: written" in output) == (0, True)
    assert execute("test", "web")[0] == 0
    assert "written" not in execute("test", "web", "--update")[1]
    written = Path("web/tests/snapshots/web01.yaml").read_text()
    assert "workers = 2\n" in written
    assert "format: 1\n" in written
    assert "s3cr3t" not in written
    assert str(Path.cwd()) not in written
    assert written.index("file#/etc/app.conf") < written.index("file#/etc/token")
    write("web/manifest.yaml", MANIFEST.replace("workers: 2", "workers: 3"))
    status, output = execute("test", "web")
    assert status == 1
    assert "        -        workers = 2\n        +        workers = 3\n" in output
    assert execute("test", "web", "--update")[0] == 0
    assert execute("test", "web")[0] == 0


def test_a_secret_that_changes_leaves_no_trace_in_a_snapshot(execute: Execute) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    execute("test", "web", "--update")
    before = Path("web/tests/snapshots/web01.yaml").read_text()
    write("web/manifest.yaml", MANIFEST.replace("s3cr3t-value", "another-longer-value"))
    execute("test", "web", "--update")
    assert Path("web/tests/snapshots/web01.yaml").read_text() == before


def test_a_snapshot_is_the_same_wherever_the_bundle_lies(
    execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = "      - /etc/x: {template: templates/nope.j2}\n      - /etc/y: {content: '{{ facts.nope }}'}\n"
    write("web/manifest.yaml", MANIFEST + failing)
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\nfails: [nope.j2, unknown key]\n")
    assert execute("test", "web", "--update")[0] == 0
    Path("elsewhere/deep").mkdir(parents=True)
    Path("web").rename("elsewhere/deep/other")
    assert execute("test", "elsewhere/deep/other")[0] == 0
    monkeypatch.chdir("elsewhere/deep/other")
    assert execute("test", ".")[0] == 0


def test_a_snapshot_of_a_case_that_is_gone_is_told_and_removed(execute: Execute) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    write("web/tests/web02.yaml", "os: debian-12\nsnapshot: true\n")
    execute("test", "web", "--update")
    Path("web/tests/web02.yaml").unlink()
    status, output = execute("test", "web")
    assert (status, "web/tests/snapshots/web02.yaml: does not belong to any case" in output) == (0, True)
    execute("test", "web", "--update", "--only", "nothing")
    assert Path("web/tests/snapshots/web02.yaml").exists()
    assert "web/tests/snapshots/web02.yaml: removed" in execute("test", "web", "--update")[1]
    assert sorted(os.listdir("web/tests/snapshots")) == ["web01.yaml"]


@pytest.mark.parametrize("in_the_way", ["fifo", "endless", "directory", "not text"])
def test_a_snapshot_that_is_no_file_of_text_fails_its_case(execute: Execute, in_the_way: str) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    path = Path("web/tests/snapshots/web01.yaml")
    path.parent.mkdir()
    match in_the_way:
        case "fifo":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case _:
            path.write_bytes(b"\xff\xfe")
    status, output = execute("test", "web")
    assert status == 1
    assert "snapshots/web01.yaml: " in output
    assert "1 case: 0 passed, 1 failed" in output
    status, output = execute("test", "web", "--update")
    if in_the_way == "not text":
        assert (status, path.is_file()) == (0, True)
    else:
        assert (status, "snapshots/web01.yaml: cannot be written: " in output) == (78, True)


def test_snapshot_with_other_line_ends_is_equal(execute: Execute) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    execute("test", "web", "--update")
    path = Path("web/tests/snapshots/web01.yaml")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert execute("test", "web")[0] == 0


@pytest.mark.parametrize("form", ["text", "json", "junit"])
def test_passwords_in_urls_are_masked_in_snapshots(execute: Execute, form: str) -> None:
    name = "curl https://bob:p4ssw0rd@example.com/?signature=s1gn -o /tmp/y"
    write("web/manifest.yaml", f'resources: [{{exec: [{{"{name}": {{creates: /tmp/y}}}}]}}]\n')
    write("web/tests/web01.yaml", f"os: debian-12\nsnapshot: true\nexpect:\n  exec#{name}: {{creates: /z}}\n")
    status, output = execute("test", "web", "--format", form)
    assert status == 1
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    assert execute("test", "web", "--update")[0] == 0
    snapshot = Path("web/tests/snapshots/web01.yaml").read_text()
    assert "example.com" in output
    assert "example.com" in snapshot
    assert not [secret for secret in ("p4ssw0rd", "s1gn") if secret in output + snapshot]
    assert execute("test", "web")[0] == 0


def test_snapshot_of_an_unreadable_case_is_kept(execute: Execute) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    execute("test", "web", "--update")
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\nexpct: {}\n")
    assert execute("test", "web", "--update")[0] == 1
    assert Path("web/tests/snapshots/web01.yaml").exists()


def test_a_snapshot_of_another_format_is_told(execute: Execute) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nsnapshot: true\n")
    execute("test", "web", "--update")
    path = Path("web/tests/snapshots/web01.yaml")
    path.write_text(path.read_text().replace("format: 1", "format: 2"))
    status, output = execute("test", "web")
    assert (status, "has the format of another version of Puller" in output) == (1, True)


def test_many_cases_are_spread_over_processes_and_told_in_order(tmp_path: Path) -> None:
    for number in range(30):
        write(f"web/tests/case{number:02}.yaml", BAD if number == 20 else GOOD)
    done = puller("test", "web", "-j", "3")
    lines = without_time(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [line[:4] for line in lines if "web: case" in line] == ["ok  "] * 20 + ["FAIL"] + ["ok  "] * 9
    assert lines[-1] == "30 cases: 29 passed, 1 failed"
    assert done.stderr == ""


@pytest.mark.everything
def test_interrupt_stops_all_processes_without_tracebacks() -> None:
    slow = "{% for a in range(3000) %}{% for b in range(3000) %}{% endfor %}{% endfor %}"
    write("web/templates/slow.j2", slow)
    write("web/manifest.yaml", MANIFEST + "      - /etc/slow: {template: templates/slow.j2}\n")
    write("web/tests/a.yaml", GOOD)
    for number in range(40):
        write(f"web/tests/case{number}.yaml", GOOD)
    with subprocess.Popen(
        [sys.executable, "-m", "puller", "test", "web", "-j", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while len(children_of(process.pid)) < 2:
            assert process.poll() is None
        children = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip() == "puller: stopped"
    assert not [child for child in children if Path("/proc", child).exists()]


def children_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []


def puller(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "puller", *arguments], capture_output=True, text=True, check=False
    )


def test_no_output_says_a_secret(execute: Execute) -> None:
    write("web/tests/web01.yaml", "os: debian-12\nexpect: {file#/etc/token: {content: s3cr3t-value}}\n")
    for arguments in ([], ["--format", "json"], ["--format", "junit"]):
        status, output = execute("test", "web", *arguments)
        assert status == 1
        assert "is hidden and cannot be compared" in output
        assert "s3cr3t" not in output


def test_new_bundle_has_tests_that_detect_changes(execute: Execute) -> None:
    execute("bundle", "new", "shop")
    status, output = execute("test", "shop")
    assert status == 0, output
    assert without_time(output)[-1] == "2 cases: 2 passed, 0 failed"
    template = Path("shop/templates/settings.conf.j2")
    template.write_text(template.read_text().replace("greeting", "greting"))
    assert execute("test", "shop")[0] == 1


# -- publishing -------------------------------------------------------------------------------


@pytest.fixture
def site(execute: Execute, new_site: Path) -> str:
    import shutil

    shutil.copytree(new_site, "site")
    return "site"


def published(execute: Execute) -> bool:
    return "web" in execute("site", "list", "site")[1]


def test_a_bundle_whose_tests_fail_is_not_published(execute: Execute, site: str) -> None:
    write("web/tests/web01.yaml", BAD)
    publish = ("site", "publish", site, "web", "--version", "1.0.0", "--test")
    status, output = execute(*publish)
    assert status == 13
    assert 'web/tests/web01.yaml:3: file#/etc/app.conf mode: expected "0600", found "0644"' in output
    assert output.endswith("puller: nothing is published: tests do not pass\n")
    assert execute(*publish, "--noop")[0] == 13
    assert not published(execute)
    write("web/tests/web01.yaml", GOOD)
    assert execute(*publish)[0] == 0
    assert published(execute)


def test_required_tests_block_a_bundle_without_tests(execute: Execute, site: str) -> None:
    status, output = execute("site", "publish", site, "web", "--version", "1.0.0", "--test")
    assert (status, "web: contains no cases" in output) == (13, True)
    assert not published(execute)


def test_a_site_can_require_tests_of_all_that_is_published(execute: Execute, site: str) -> None:
    settings = Path(site, "site.yaml")
    settings.write_text(settings.read_text() + "require: {tests: true}\n")
    write("web/tests/web01.yaml", BAD)
    publish = ("site", "publish", site, "web", "--version", "1.0.0")
    assert execute(*publish)[0] == 13
    execute("bundle", "build", "web", "--version", "1.0.0")
    assert execute("site", "publish", site, "web-1.0.0.tar.gz")[0] == 13
    assert not published(execute)
    write("web/tests/web01.yaml", GOOD)
    assert execute(*publish)[0] == 0


def test_without_being_asked_for_no_test_is_run(execute: Execute, site: str) -> None:
    write("web/tests/web01.yaml", BAD)
    assert execute("site", "publish", site, "web", "--version", "1.0.0")[0] == 0


def test_verdicts_and_diffs_have_colour_where_it_is_wanted(
    execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("web/tests/web01.yaml", GOOD)
    write(
        "web/tests/web02.yaml", 'os: debian-12\nexpect:\n  file#/etc/app.conf: {content: "workers = 9\\n"}\n'
    )
    output = execute("test", "web", "--color", "always")[1]
    assert "\x1b[32mok  \x1b[0m  web: web01\n" in output
    assert "\x1b[31mFAIL\x1b[0m  web: web02\n" in output
    assert "\x1b[31m-workers = 9\x1b[0m" in output
    assert "\x1b[32m+workers = 2\x1b[0m" in output
    plain = without_time(execute("test", "web")[1])
    assert without_time(re.sub("\x1b\\[[0-9;]*m", "", output)) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert without_time(execute("test", "web")[1]) == plain
    for form in ("json", "junit"):
        assert "\x1b" not in execute("test", "web", "--color", "always", "--format", form)[1]
    execute("test", "web", "--color", "always", "-o", "results.txt")
    assert "\x1b" not in Path("results.txt").read_text()
