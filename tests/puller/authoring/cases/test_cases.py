"""Cases of a bundle: comparisons, errors, and situations in which a case must not pass."""

from collections.abc import Callable
from pathlib import Path

import pytest

from puller.authoring.cases.results import Result
from puller.authoring.cases.running import BundleWithCases, Settings, run_case, suite_of

MANIFEST = """\
data:
  workers: 2
  debug: false
  # @sensitive
  secret: s3cr3t-value
resources:
  - file:
      - /etc/app: {ensure: directory, owner: root, group: root, mode: "0755"}
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/app/app.conf: {alias: configuration, template: templates/app.conf.j2}
      - /etc/app/text: {content: "one\\ntwo\\n"}
      - /etc/app/binary: {source: files/binary}
      - /etc/app/old: {ensure: absent}
      - /etc/app/theirs: {source: https://example.com/x}
      - /etc/app/token: {content: "{{ data.secret }}", mode: "0600"}
      - /etc/app/debug: {content: x, control: {if: data.debug}}
      - for: name in data.sites | default([])
        "/etc/app/{{ name }}": {content: "{{ name }}"}
  - scaffold:
      - /srv/app: {source: templates/app, engine: jinja}
      - /srv/hidden: {source: templates/hidden, engine: jinja}
  - exec:
      - make: {command: make all, timeout: 2m, refreshonly: true, subscribe: [file#configuration]}
  - archive:
      - /srv/a.tar.gz:
          url: "https://u:s3cr3t-value@example.com/a.tar.gz"
          owner: root
          group: root
          headers: {X-Key: s3cr3t-value, A: b}
  - block:
      - part: {path: /etc/hosts, content: "a b"}
      - mask: {path: /etc/hosts, content: (sensitive)}
  - service:
      - app: {ensure: running, enable: true}
"""
Judge = Callable[..., list[str]]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    directory = tmp_path / "app"
    for name, text in {
        "manifest.yaml": MANIFEST,
        "templates/app.conf.j2": "name = {{ facts.networking.fqdn }}\nworkers = {{ data.workers }}\n",
        "templates/app/one": "{{ data.workers }}\n",
        "templates/app/sub/two": "two\n",
        "templates/hidden/one": "{{ data.secret }}\n",
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    (directory / "files").mkdir()
    (directory / "files/binary").write_bytes(b"\0\1\2")
    (directory / "tests").mkdir()
    return directory


def run(bundle: Path, text: str, settings: Settings | None = None) -> Result:
    """Return the result of a case with this text."""
    (bundle / "tests/web01.yaml").write_text(text)
    tested = BundleWithCases(bundle / "manifest.yaml", "app")
    (file,) = suite_of(tested).cases
    return run_case(tested, file, settings or Settings("/nonexistent/private.pem"))


@pytest.fixture
def judge(bundle: Path) -> Judge:
    """Return ``judge(expectation)``: the messages for unmet expectations, on one Debian machine."""

    def judged(expect: str, more: str = "") -> list[str]:
        return [str(one) for one in run(bundle, f"os: debian-12\n{more}expect:\n  {expect}\n").failures]

    return judged


@pytest.mark.parametrize(
    "expect",
    [
        'file#/etc/app: {ensure: directory, mode: "0755"}',
        'file#/etc/app: {mode: "755"}',
        "file#/etc/app: {}",
        "file#/etc/app: {force: false, content: !absent }",
        "file#/etc/app: {alias: !absent , owner: !any }",
        'file#configuration: {content: "name = host.example.com\\nworkers = 2\\n"}',
        "file#/etc/app/app.conf: {content: !contains workers = 2}",
        "file#configuration: {content: !contains [workers, name]}",
        "file#configuration: {content: !lacks [debug, trace]}",
        "file#configuration: {content: !matches '^workers = [0-9]+$'}",
        "file#configuration: {content: !not workers = 2}",
        "file#configuration: {content: !all [!contains workers, !lacks debug, !matches name]}",
        "file#/etc/app/binary: {content: !any }",
        "file#/etc/app/old: {ensure: absent}",
        "file#/etc/app/theirs: {source: https://example.com/x}",
        "file#/etc/app/token: {content: !secret }",
        "file#/etc/app/token: {content: !any , mode: '0600'}",
        "file#/etc/app/debug: unmanaged",
        "file#/etc/app/debug: absent",
        "service#debug: absent",
        "service#debug: !absent",
        'scaffold#/srv/app: {content: {one: "2\\n", /srv/app/sub/two: "two\\n", three: !absent }}',
        "scaffold#/srv/hidden: {content: {one: !secret }}",
        "exec#make: {timeout: 120, refreshonly: true, subscribe: [file#configuration]}",
        "exec#make: {timeout: 120s, command: !matches ^make}",
        "exec#make: {subscribe: !has file#configuration}",
        "exec#make: {timeout: !not 1m}",
        "block#part: {content: a b}",
        "block#mask: {content: (sensitive)}",
        "archive#/srv/a.tar.gz: {headers: {X-Key: !secret , A: !any }, url: !contains example.com}",
        "service#app: {enable: true, ensure: !not stopped}",
    ],
)
def test_what_the_bundle_comes_to_is_expected(judge: Judge, expect: str) -> None:
    assert judge(expect) == []


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ('file#/etc/app: {mode: "0644"}', '/etc/app mode: expected "0644", found "0755"'),
        ("file#/etc/app: {ensure: present}", 'ensure: expected "present", found "directory"'),
        ("file#/etc/app: {force: true}", "force: expected true, found false"),
        ("file#/etc/app: {owner: !absent }", 'owner: expected !absent, found "root"'),
        ("file#/etc/app: {owner: !not root}", 'owner: expected !not "root", found "root"'),
        ("file#/etc/app: {alias: !any }", "alias: expected !any, found nothing"),
        ("file#/etc/app: {alias: !not x}", 'alias: expected !not "x", found nothing'),
        ("file#/etc/app: {content: x}", "content: contains no file of the bundle"),
        ("file#/etc/app/theirs: {content: x}", "content: contains no file of the bundle"),
        (
            "file#/etc/app/binary: {content: x}",
            "3 bytes cannot be compared, because they are not text or too long",
        ),
        ("file#/etc/app/binary: {content: !lacks x}", "3 bytes cannot be compared"),
        ("file#/etc/app/text: {content: one}", "content: differs from the expected text"),
        (
            "file#/etc/app/text: {content: !contains three}",
            'expected !contains "three", found "one\\ntwo\\n"',
        ),
        ("file#/etc/app/text: {content: !contains [one, three]}", "expected !contains"),
        ("file#/etc/app/text: {content: !lacks two}", 'expected !lacks "two"'),
        ("file#/etc/app/text: {content: !matches three}", 'expected !matches "three"'),
        ("file#/etc/app/text: {content: !secret }", "expected !secret, but it does not depend on a secret"),
        ("file#/etc/app/token: {content: s3cr3t-value}", "content: is hidden and cannot be compared"),
        ("file#/etc/app/token: {content: !not x}", "content: is hidden and cannot be compared"),
        ("file#/etc/app/token: {content: (sensitive)}", "content: is hidden and cannot be compared"),
        ("file#/etc/app/token: {content: !lacks x}", "content: is hidden and cannot be compared"),
        (
            "file#/etc/app/debug: {content: x}",
            "is not managed on this machine: control: if data.debug is false",
        ),
        ("file#/etc/app/text: absent", "expected absent, found a declaration"),
        ("file#/etc/app/old: absent", "To expect it, write {ensure: absent}"),
        ("file#/etc/app/text: unmanaged", "expected unmanaged, but it is managed"),
        ("file#/etc/app/tex: unmanaged", "not declared on this machine (did you mean 'file#/etc/app/text'?)"),
        ("file#/etc/app/tex: {}", "is not declared on this machine (did you mean 'file#/etc/app/text'?)"),
        ("service#apps: {}", "is not declared on this machine (did you mean 'service#app'?)"),
        ("scaffold#/srv/app: {content: {one: '3'}}", "one: differs from the expected text"),
        ("scaffold#/srv/app: {content: {three: '3'}}", 'three: expected "3", but the file is missing'),
        ("block#mask: {content: !secret }", 'content: expected !secret, found "(sensitive)"'),
        ("scaffold#/srv/hidden: {content: {one: x}}", "content: one: is hidden and cannot be compared"),
        ("scaffold#/srv/app: {content: x}", "2 files, expected a mapping of their paths"),
        ("exec#make: {subscribe: !has file#x}", 'expected !has "file#x"'),
        ("exec#make: {subscribe: []}", 'subscribe: expected [], found ["file#configuration"]'),
        ("exec#make: {timeout: !not 120s}", "timeout: expected !not"),
        (
            "archive#/srv/a.tar.gz: {headers: {X-Key: other, A: b}}",
            "headers: is hidden and cannot be compared",
        ),
        ("archive#/srv/a.tar.gz: {headers: !not {A: b}}", "headers: is hidden and cannot be compared"),
        ("archive#/srv/a.tar.gz: {headers: {}}", "headers: is hidden and cannot be compared"),
        ("archive#/srv/a.tar.gz: {url: 'https://u:s3cr3t-value@example.com/b'}", "url: "),
        ("service#app: {enable: false}", "enable: expected false, found true"),
    ],
)
def test_what_it_does_not_come_to_is_told_with_both_values(judge: Judge, expect: str, said: str) -> None:
    (failure,) = judge(expect)
    assert said in failure
    assert failure.startswith("app/tests/web01.yaml:3: ")
    assert "s3cr3t" not in failure


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exect: {}", ["1: unknown key 'exect' (did you mean 'expect'?)"]),
        (
            "os: debian-21",
            ["1: os is the unknown system 'debian-21' (did you mean 'debian-12' or 'debian-13'?)"],
        ),
        ("\nos: 12", ["2: os is 12, expected text; quote it"]),
        ("expect: {fil#x: {}}", ["1: fil#x: unknown type (did you mean 'file'?)"]),
        ("expect: {file: {}}", ["1: expect: is 'file', expected a reference such as 'file#/etc/motd'"]),
        ("expect: {file#x: {mod: 1}}", ["1: file#x: mod is not a property of file (did you mean 'mode'?)"]),
        ("expect: {file#x: {mode: 0644}}", ["1: file#x: mode is a number, expected text; quote it"]),
        ("expect: {file#x: {mode: '0888'}}", ["1: file#x: mode is '0888'"]),
        ("expect: {file#x: {mode: !not 9}}", ["1: file#x: mode: !not 9 contains an invalid value"]),
        (
            "expect: {file#x: here}",
            ["1: file#x: is not a valid expectation, expected properties, or the word absent"],
        ),
        (
            "expect: {file#x: }",
            ["1: file#x: is not a valid expectation, expected properties, or the word absent"],
        ),
        (
            "expect: {file#x: {owner: !contians a}}",
            ["1:26: unknown tag. Quote text that begins with !. Known tags: !contains"],
        ),
        ("expect: {file#x: {owner: !contains ''}}", ["1:26: !contains requires text, or a list of text"]),
        ("expect: {file#x: {owner: !matches '['}}", ["1:26: !matches is not a valid regular expression: "]),
        ("expect: {file#x: {owner: !any x}}", ["1:26: !any accepts no value"]),
        ("facts: {a: !any }", ["1: facts contains a tag, which is valid in expect only"]),
        ("data: {a: {b: [!contains x]}}", ["1: data contains a tag, which is valid in expect only"]),
        ("environ: {A: 1}", ["1: environ"]),
        ("fails: ''", ["1: fails is empty, expected part of the error message"]),
        ("fails: []", ["1: fails is empty, expected part of the error message"]),
        ("- os: debian-12", ["1: is not a case, expected a mapping with keys such as os and expect"]),
        ("", ["1: is not a case, expected a mapping with keys such as os and expect"]),
        ("a: [", ["2:1: did not find expected node content"]),
        ("os: debian-12\n---\nos: debian-12", ["2:1: a second document starts at line 2"]),
        ("os: x\nexect: {}\nexpect: {fil#x: {}}", ["1: os", "2: unknown key", "3: fil#x: unknown type"]),
    ],
)
def test_a_case_that_is_written_wrong_fails_with_all_that_is_wrong(
    bundle: Path, text: str, said: list[str]
) -> None:
    failures = run(bundle, text).failures
    assert len(failures) == len(said), failures
    for failure, wanted in zip(failures, said, strict=True):
        assert str(failure).startswith(f"app/tests/web01.yaml:{wanted}"), failure


def test_a_case_that_expects_nothing_still_fails_with_a_resource(bundle: Path) -> None:
    assert run(bundle, "os: debian-12\n").passed
    (failure,) = run(bundle, "facts: {}\n").failures
    assert "file#/etc/app/app.conf fails: templates/app.conf.j2:1:" in str(failure)
    assert failure.declared.startswith("app/manifest.yaml:")


@pytest.mark.parametrize("expression", ["facts.nope", "data.prt", "read_file('files/nope')"])
def test_an_expression_that_gives_nothing_fails_a_case(bundle: Path, expression: str) -> None:
    (bundle / "manifest.yaml").write_text(
        f'resources: [{{group: [{{x: {{ensure: "{{{{ {expression} }}}}"}}}}]}}]'
    )
    (failure,) = run(bundle, "os: debian-12").failures
    assert "group#x fails: ensure: " in str(failure)


def test_the_message_that_must_come_is_looked_for_in_the_manifest_and_in_resources(bundle: Path) -> None:
    assert run(bundle, "fails: unknown key 'networking'\n").passed
    (failure,) = run(bundle, "os: debian-12\nfails: no address\n").failures
    assert str(failure) == 'app/tests/web01.yaml:2: fails: expected "no address", found "nothing fails"'
    (bundle / "manifest.yaml").write_text("resources: [{file: [{/x: {modee: 1, ensure: absent}}]}]")
    assert run(bundle, "fails: modee is not a property of file\n").passed
    (refused,) = run(bundle, "os: debian-12\n").failures
    assert "the manifest is rejected: manifest.yaml:1: resources[0] file#/x: modee" in str(refused)
    otherwise = run(bundle, "fails: no address\n").failures
    assert len(otherwise) == 2
    assert 'fails: expected "no address", found "manifest.yaml:1' in str(otherwise[0])


def test_what_fails_beside_what_is_expected_to_fail_is_a_failure(bundle: Path) -> None:
    (bundle / "manifest.yaml").write_text(
        "resources: [{file: [{/a: {modee: 1, ensure: absent}}, {/b: {moded: 1, ensure: absent}}]}]"
    )
    (other,) = run(bundle, "fails: modee\n").failures
    assert "moded" in str(other)
    assert run(bundle, "fails: [modee, moded]\n").passed
    assert not run(bundle, "fails: [modee, moded]\nexpect: {file#/a: {}}").passed


def test_nothing_is_expected_of_a_resource_that_fails(bundle: Path) -> None:
    failures = run(bundle, "expect: {file#configuration: {mode: '0644'}}\nfails: networking\n").failures
    assert ["fails, so it cannot be compared" in str(one) for one in failures] == [True]


def test_data_and_facts_of_the_case_count_and_the_environment_of_the_author_does_not(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_TEST_VARIABLE", "the author's")
    (bundle / "manifest.yaml").write_text(
        "data: {a: {b: 1, c: 2}}\n"
        "hierarchy:\n  merge: deep\n  order:\n    - '{{ environ.APP_TEST_VARIABLE | default(\"none\") }}'\n"
        "overrides: {mine: {a: {c: 3}}, 'the author''s': {a: {c: 4}}}\n"
        "resources: [{group: [{x: {gid: '{{ (data.a.b ~ data.a.c ~ facts.os.release.major) | int }}'}}]}]"
    )
    for more, wanted in {
        "": "1212",
        "data: {a: {b: 5}}\n": "5212",
        "facts: {os: {release: {major: '13'}}}\n": "1213",
        "environ: {APP_TEST_VARIABLE: mine}\n": "1312",
    }.items():
        result = run(bundle, f"os: debian-12\n{more}expect: {{group#x: {{gid: {wanted}}}}}")
        assert [str(one) for one in result.failures] == [], more


def test_bundles_that_come_before_are_read_with_it(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/manifest.yaml").write_text("resources: [{package: [nginx: ]}]")
    (bundle / "manifest.yaml").write_text(
        "resources: [{service: [{nginx: {ensure: running, require: [package#nginx]}}]}]"
    )
    (refused,) = run(bundle, "os: debian-12").failures
    assert "package#nginx, which is not declared" in str(refused)
    assert run(bundle, "os: debian-12\nwith: [../base]").passed
    (missing,) = run(bundle, "with: [../bas]\nfails: there is no").failures
    assert "cannot be run: " in str(missing)
    assert "../bas: does not exist" in str(missing)


@pytest.mark.everything
def test_a_regular_expression_without_an_end_is_a_failure_and_no_wait(bundle: Path) -> None:
    (bundle / "manifest.yaml").write_text(
        f"resources: [{{file: [{{/x: {{content: {'a' * 60}, owner: root, group: root, mode: '0644'}}}}]}}]"
    )
    (failure,) = run(bundle, "expect: {file#/x: {content: !matches '(a+)+$x'}}").failures
    assert "(a+)+$x" in str(failure)


def test_a_failure_does_not_quote_secrets(bundle: Path) -> None:
    (bundle / "templates/app.conf.j2").write_text("{{ {}[data.secret] }}")
    (failure,) = run(bundle, "os: debian-12").failures
    assert "fails" in str(failure)
    assert "s3cr3t" not in str(failure)
