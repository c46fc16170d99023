"""Goss files: matchers and kinds as documented by goss, checked on this machine, and errors for unsupported ones."""

import hashlib
import os
import pwd
import socket
import textwrap
from pathlib import Path
from typing import Any

import pytest

from foundation.times import Duration
from puller.checks.gossfile_parser import Lines, matches, problems, read
from puller.checks.kinds import HealthCheck
from puller.engine.conditions import check_health
from puller.reporting.report import Health, HealthResult
from puller.system.local import LocalSystem
from tests.support.rows import each_row
from tests.support.stories import Host, Publisher

TEXT = Lines("alpha one\nbeta two\n!gamma\n")

# Examples from goss's documentation of matchers, with our own values.
MATCHING: list[tuple[Any, Any, bool]] = [
    ("foo", "foo", True),
    ("foo", "fo", False),
    (True, True, True),
    (True, 1, False),
    (1, True, False),
    ("42", 42, True),
    ("42", 42.0, True),
    (42, "42", True),
    ("no number", 42, False),
    (42, {"and": ["42", {"have-prefix": "4"}, {"have-suffix": "2"}, {"match-regexp": r"\d{2}"}]}, True),
    (42, {"contain-substring": "3"}, False),
    ("42", {"and": [{"gt": 40}, {"ge": 42}, {"lt": 45}, {"le": 42}]}, True),
    ("42", {"gt": 42}, False),
    ("none", {"lt": 42}, False),
    (["a", "b", "c"], ["a", "b"], True),
    (["a", "b", "c"], ["a", "b", "b"], False),
    (["a", "b", "b"], ["b", "b"], True),
    (["a", "b"], {"equal": ["a", "b"]}, True),
    (["b", "a"], {"equal": ["a", "b"]}, False),
    (["b", "a", "moo"], {"consist-of": ["a", {"have-prefix": "m"}, "b"]}, True),
    (["b", "a", "moo"], {"consist-of": ["a", "b"]}, False),
    (["bar", "foo"], {"contain-element": {"have-prefix": "f"}}, True),
    (["bar"], {"contain-element": {"have-prefix": "f"}}, False),
    (["ab", "a"], {"contain-elements": [{"have-prefix": "a"}, "ab"]}, True),
    ([2], {"contain-element": 2}, True),
    ([], [], True),
    ("x\ny", {"contain-element": "y"}, True),
    ("foo", {"not": "foo"}, False),
    ("foo", {"or": ["bar", {"have-prefix": "f"}]}, True),
    ("foo", {"or": ["bar", "moo"]}, False),
    ({"foo": "bar"}, {"and": [{"have-key": "foo"}, {"not": {"have-key": "moo"}}]}, True),
    ("abc", {"have-len": 3}, True),
    ([1, 2], {"have-len": 3}, False),
    (["1.0.1", "1.9.9"], {"semver-constraint": ">1.0.0 <2.0.0 !=1.5.0"}, True),
    (["1.0.1", "1.5.0", "1.9.9"], {"semver-constraint": ">1.0.0 <2.0.0 !=1.5.0"}, False),
    (["1.0.1", "1.5.0"], {"not": {"semver-constraint": "!=1.5.0"}}, True),
    ("1.0.1", {"semver-constraint": ">5.0.0 || < 1.5.0"}, True),
    ("1.0.0-rc.2", {"semver-constraint": "<1.0.0 >1.0.0-rc.1"}, True),
    ("1.0.0-rc.10", {"semver-constraint": ">1.0.0-rc.9"}, True),
    ("1.0", {"semver-constraint": ">0.1.0"}, False),
    ([], {"semver-constraint": ">0.1.0"}, False),
    (TEXT, ["alpha", "two"], True),
    (TEXT, ["!delta", "/^beta/", "!/^two/"], True),
    (TEXT, ["!alpha"], False),
    (TEXT, ["\\!gamma"], True),
    (TEXT, ["/^one/"], False),
    (TEXT, [], True),
    (TEXT, {"and": [{"contain-element": "beta two"}, {"not": {"contain-element": "beta"}}]}, True),
    (TEXT, {"contain-element": {"match-regexp": "^alpha"}}, True),
    (TEXT, {"contain-substring": "one\nbeta"}, True),
    (TEXT, {"have-len": 3}, False),
]


@each_row(("found", "wanted", "expected"), MATCHING)
def test_matchers_agree_with_goss(found: Any, wanted: Any, expected: bool) -> None:
    assert list(problems(wanted, (), lines=isinstance(found, Lines))) == []
    assert matches(found, wanted) is expected


def asked(tmp_path: Path, text: str, timeout: float = 20.0) -> HealthResult:
    path = tmp_path / "goss.yaml"
    path.write_text(textwrap.dedent(text))
    return check_health(HealthCheck(goss=str(path), timeout=Duration(timeout)), LocalSystem())


def of(tmp_path: Path, kind: str, name: str, attributes: str) -> HealthResult:
    return asked(tmp_path, f"{kind}:\n  '{name}': {{{attributes}}}\n")


def assert_told(result: HealthResult, sentence: str) -> None:
    assert result.status is Health.CRITICAL, result
    assert sentence in result.output


def test_files(tmp_path: Path) -> None:
    path, link = tmp_path / "conf", tmp_path / "link"
    path.write_text("listen 80;\n# old\n")
    path.chmod(0o640)
    link.symlink_to("conf")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    owner = pwd.getpwuid(os.getuid()).pw_name
    good = f"exists: true, mode: '0640', size: 17, owner: {owner}, filetype: file, sha256: {digest}"
    assert of(tmp_path, "file", str(path), f"{good}, contents: [listen, '!/^user/']").status is Health.OK
    assert of(tmp_path, "file", "x", f"path: {path}, exists: true").status is Health.OK
    linked = "exists: true, filetype: symlink, linked-to: conf"
    assert of(tmp_path, "file", str(link), linked).status is Health.OK
    assert_told(
        of(tmp_path, "file", str(path), "exists: true, mode: '0600'"), "mode is '0640', expected '0600'"
    )
    assert_told(of(tmp_path, "file", str(path), "exists: true, size: {gt: 100}"), "size is 17")
    assert_told(of(tmp_path, "file", str(path), "exists: true, contents: [user]"), "contents is a text of 17")
    assert_told(of(tmp_path, "file", str(path), "exists: false"), "exists is True, expected False")
    assert_told(of(tmp_path, "file", str(path), "exists: true, linked-to: a"), "linked-to is missing")
    gone = str(tmp_path / "gone")
    assert of(tmp_path, "file", gone, "exists: false, contents: []").status is Health.OK
    assert_told(of(tmp_path, "file", gone, "exists: true, mode: '0640'"), "mode is missing, expected '0640'")


@pytest.mark.everything
def test_commands(tmp_path: Path) -> None:
    name = "echo ready; echo careful >&2; exit 3"
    good = "exit-status: 3, stdout: [ready], stderr: [careful, '!error']"
    assert of(tmp_path, "command", name, good).status is Health.OK
    assert of(tmp_path, "command", "any", "exec: 'true', exit-status: 0, stdout: []").status is Health.OK
    assert_told(of(tmp_path, "command", name, "exit-status: 0"), "exit-status is 3, expected 0")
    assert_told(of(tmp_path, "command", "no-such-program-here", "exit-status: 0"), "exit-status is 127")
    slow = of(tmp_path, "command", "sleep 60", "exit-status: 0, timeout: 300")
    assert slow.status is Health.UNKNOWN


def test_addresses_ports_and_names(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert of(tmp_path, "addr", f"tcp://127.0.0.1:{port}", "reachable: true").status is Health.OK
        listening = "listening: true, ip: [127.0.0.1]"
        assert of(tmp_path, "port", f"tcp:{port}", listening).status is Health.OK
        assert_told(
            of(tmp_path, "port", f"tcp:{port}", "listening: true, ip: [0.0.0.0]"), "ip is ['127.0.0.1']"
        )
        assert_told(of(tmp_path, "port", f"tcp:{port}", "listening: false"), "listening is True")
    assert_told(of(tmp_path, "addr", f"tcp://127.0.0.1:{port}", "reachable: true"), "reachable is False")
    assert_told(of(tmp_path, "port", f"tcp:{port}", "listening: true"), "listening is False, expected True")
    assert (
        of(tmp_path, "dns", "localhost", "resolvable: true, addrs: [127.0.0.1]").status is not Health.UNKNOWN
    )
    assert_told(of(tmp_path, "dns", "localhost", "resolvable: true, addrs: [192.0.2.1]"), "addrs is ")


def test_users_groups_processes_parameters_mounts_and_interfaces(tmp_path: Path) -> None:
    root = "exists: true, uid: 0, gid: 0, home: /root, groups: [root]"
    assert of(tmp_path, "user", "root", root).status is Health.OK
    assert_told(of(tmp_path, "user", "root", "exists: true, shell: /none"), "shell is ")
    assert of(tmp_path, "user", "nobody-of-that-name", "exists: false").status is Health.OK
    assert of(tmp_path, "group", "root", "exists: true, gid: 0").status is Health.OK
    assert_told(of(tmp_path, "group", "root", "exists: true, gid: 1"), "gid is 0, expected 1")
    assert of(tmp_path, "process", "no-such-process", "running: false").status is Health.OK
    assert_told(of(tmp_path, "process", "no-such-process", "running: true"), "running is False")
    assert of(tmp_path, "kernel-param", "kernel.ostype", "value: Linux").status is Health.OK
    assert of(tmp_path, "kernel-param", "kernel.pid_max", "value: {gt: 100}").status is Health.OK
    assert of(tmp_path, "kernel-param", "kernel.no_such", "value: a").status is Health.UNKNOWN
    proc = "exists: true, filesystem: proc, opts: [rw]"
    assert of(tmp_path, "mount", "/proc", proc).status is Health.OK
    assert_told(of(tmp_path, "mount", "/proc", "exists: true, filesystem: xfs"), "filesystem is 'proc'")
    assert of(tmp_path, "mount", "/no/such/mount", "exists: false").status is Health.OK
    assert of(tmp_path, "interface", "lo", "exists: true, mtu: {ge: 1500}").status is Health.OK
    assert of(tmp_path, "interface", "no-such0", "exists: false").status is Health.OK


@pytest.mark.skipif(not Path("/var/lib/dpkg/status").exists(), reason="no dpkg here")
def test_packages(tmp_path: Path) -> None:
    assert of(tmp_path, "package", "dpkg", "installed: true").status is Health.OK
    assert of(tmp_path, "package", "dpkg", "installed: true, versions: {have-len: 1}").status is Health.OK
    assert_told(of(tmp_path, "package", "dpkg", "installed: true, versions: ['0.1']"), "versions is ")
    assert of(tmp_path, "package", "no-such-package", "installed: false").status is Health.OK
    assert_told(of(tmp_path, "package", "no-such-package", "installed: true"), "installed is False")


def test_an_answer_of_a_web_server(tmp_path: Path, web: Any) -> None:
    (web.root / "page").write_text("all is ready\n")
    good = "status: 200, body: [ready, '!error'], headers: ['Content-Length: 13']"
    assert of(tmp_path, "http", f"{web.url}/page", good).status is Health.OK
    assert_told(of(tmp_path, "http", f"{web.url}/page", "status: 204"), "status is 200, expected 204")
    assert_told(of(tmp_path, "http", f"{web.url}/page", "status: 200, body: [error]"), "body is a text of 13")
    assert of(tmp_path, "http", "http://127.0.0.1:1/", "status: 200").status is Health.UNKNOWN


UNSUPPORTED = {
    "fil: {/a: {exists: true}}": "fil: is not a supported kind",
    "gossfile: {a.yaml: {}}": "gossfile: is not a supported kind",
    "file: {/a: {exist: true}}": "file: /a: exist: is not a supported attribute",
    "file: {/a: {mode: '0644'}}": "file: /a: exists is missing",
    "file: {/a: {exists: true, mode: 0644}}": "YAML reads as octal",
    "file: {/a: {exists: true, contents: text}}": "expected a list of patterns",
    "file: {/a: {exists: true, contents: ['/(/']}}": "is not a valid regular expression",
    r"file: {/a: {exists: true, contents: ['/\pL/']}}": "only Go's regular expressions have",
    "file: {/a: {exists: true, size: {more: 3}}}": "is not a supported matcher: 'more'",
    "file: {/a: {exists: true, size: {gt: 3, lt: 5}}}": "has 2 matchers, expected one",
    "matching: {a: {content: 1, matches: {gjson: {a: 1}}}}": "is not a supported matcher: 'gjson'",
    "matching: {a: {content: 1.0.0, matches: {semver-constraint: 1.x}}}": "wildcards are not supported",
    "addr: {'udp://a:53': {reachable: true}}": "expected tcp://HOST:PORT",
    "dns: {'MX:example.org': {resolvable: true}}": "cannot query a DNS server for one record type",
    "dns: {a: {resolvable: true, server: 8.8.8.8}}": "server: is not a supported attribute",
    "http: {'http://a/': {status: 200, allow-insecure: true}}": "allow-insecure: is not a supported attribute",
    "http: {'http://a/': {status: 200, method: PUT}}": "expected GET or HEAD or OPTIONS",
    "service: {a: {}}": "checks no attribute, expected one of",
    "service: {a: {running: true, runlevels: ['3']}}": "runlevels: is not a supported attribute",
    "file: {/a: {exists: true, skip: true}}": "skips all of its tests",
    "file: {'{{ .Vars.path }}': {exists: true}}": "line 1 has a template",
    "{}": "must be a mapping of kinds to tests",
    "": "must be a mapping of kinds to tests",
    "[": "goss.yaml",
    "file: {/a: {exists: true}}\nfile: {/b: {exists: true}}": "goss.yaml",
}


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_unsupported_checks_are_named_and_never_pass(execute: Any, tmp_path: Path, text: str) -> None:
    result = asked(tmp_path, text)
    assert result.status is Health.UNKNOWN
    assert UNSUPPORTED[text] in result.output
    (tmp_path / "manifest.yaml").write_text(
        "resources:\n  - exec:\n      - 'true': {health_checks: [{goss: goss.yaml}]}\n"
    )
    status, output = execute("lint", str(tmp_path))
    assert status == 1, output
    assert UNSUPPORTED[text] in output
    assert "goss.yaml" in output
    assert "[goss-file]" in output


def test_skipped_checks_are_reported_and_not_run(tmp_path: Path) -> None:
    text = "file: {/: {exists: true}, /none: {exists: true, skip: true, title: later, meta: {a: 1}}}"
    result = asked(tmp_path, text)
    assert (result.status, result.output) == (Health.OK, "1 tests passed, 1 skipped")


def test_impossible_check_hides_no_failure(tmp_path: Path) -> None:
    text = "kernel-param: {kernel.no_such: {value: a}}\nfile: {/none: {exists: true}}"
    result = asked(tmp_path, text)
    assert_told(
        result, "exists is False, expected True; kernel-param kernel.no_such: unknown kernel parameter"
    )


def test_every_kind_is_read() -> None:
    from puller.checks.goss import Machine
    from puller.checks.gossfile_parser import ATTRIBUTES

    for kind in ATTRIBUTES:
        assert hasattr(Machine, f"_{kind.replace('-', '_')}"), kind
    tests, wrong = read("matching: {a: {content: 1, matches: 1}}", "a")
    assert (len(tests), wrong) == (1, [])


MANIFEST = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/page":
          content: "VERSION\\n"
          health_checks: [{goss: files/goss.yaml}]
"""


def test_a_goss_file_of_a_bundle_decides_about_it(host: Host, publisher: Publisher) -> None:
    text = f"file: {{{host.machine}/page: {{exists: true, contents: ['/^[a-z]+$/']}}}}\n"
    files = {"files/goss.yaml": text.encode()}
    publisher.publish("1.0.0", MANIFEST.replace("VERSION", "fine"), files=files)
    assert host.run().status == 0
    assert host.puller("check").status == 0
    publisher.publish("1.1.0", MANIFEST.replace("VERSION", "WRONG"), files=files)
    outcome = host.run()
    assert outcome.status == 7
    assert "is given up: " in outcome.output
    assert (host.machine / "page").read_text() == "fine\n"
    assert host.puller("check").status == 0
