"""Facts of a bundle on the command line: from an author's directory, a bundle file, and an enforcing host."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.stories import Execute, Host, Outcome, Publisher

MANIFEST = """
resources:
  - exec:
      - say: {command: "/bin/echo {{ facts.openssh.version }}"}
"""
OPENSSH = "#!/bin/sh\necho version=9.2\n"
BROKEN = "#!/bin/sh\necho no sshd is here >&2\nexit 4\n"


def write(directory: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    return directory


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "web", {"manifest.yaml": MANIFEST, "facts.d/openssh.sh": OPENSSH})


def say(execute: Execute, *words: str) -> Outcome:
    return Outcome(*execute(*words))


def test_an_author_sees_the_facts_of_a_directory(author: Path, execute: Execute) -> None:
    assert say(execute, "facts", "--bundle", "./web", "openssh") == (0, "version: '9.2'\n")
    assert say(execute, "facts", "--bundle", str(author), "openssh.version") == (0, "9.2\n")
    assert say(execute, "facts", "--bundle", "./web", "openssh.version", "--fact", "openssh.version=8") == (
        0,
        "8\n",
    )
    everything = json.loads(say(execute, "facts", "--bundle", "./web", "--format", "json").output)
    assert (everything["openssh"], everything["kernel"]) == ({"version": "9.2"}, "Linux")
    status, sentence = say(execute, "facts", "openssh")
    # If this machine has an SSH server, the message suggests its fact.
    assert (status, sentence.startswith("puller: no fact 'openssh'")) == (1, True)


def test_a_fact_that_fails_is_said_and_the_others_are_shown(author: Path, execute: Execute) -> None:
    write(author, {"facts.d/broken.sh": BROKEN})
    sentence = "puller: facts.d/broken.sh: exit code 4: no sshd is here\n"
    assert say(execute, "facts", "--bundle", "./web", "broken") == (1, sentence)
    status, output = say(execute, "facts", "--bundle", "./web")
    assert status == 0
    assert "openssh:\n  version: '9.2'\n" in output
    assert sentence in output


def test_files_that_can_be_no_facts_are_refused_by_every_command(author: Path, execute: Execute) -> None:
    write(author, {"facts.d/openssh.yaml": "{}\n", "data.j2": "x\n", "hiera.yaml": "version: 5\n"})
    sentence = (
        "facts.d/openssh.yaml: defines the fact openssh, as facts.d/openssh.sh does, so rename one of them"
    )
    for words in (
        ("facts", "--bundle", "./web"),
        ("lint", "web"),
        ("render", "web"),
        ("render", "web/data.j2"),
        ("apply", "web", "--noop"),
        ("explain", "exec#say", "web"),
        ("hiera", "lookup", "x", "web"),
    ):
        status, output = say(execute, *words)
        assert status == (1 if words[0] == "lint" else 13), (words, output)
        assert sentence in output.replace("error: ", ""), (words, output)


def test_every_command_of_an_author_sees_them(author: Path, execute: Execute) -> None:
    write(
        author,
        {
            "x.j2": "{{ facts.openssh.version }}\n",
            "hiera.yaml": "version: 5\nhierarchy: [{name: a, path: 'v%{facts.openssh.version}.yaml'}]\n",
            "data/v9.2.yaml": "level: nine\n",
        },
    )
    assert "command: /bin/echo 9.2" in say(execute, "render", "web").output
    assert say(execute, "render", "web/x.j2") == (0, "9.2\n")
    assert say(execute, "hiera", "lookup", "level", "web") == (0, "nine\n")
    assert "web: 1 resource, 0 errors, 1 warning\n" in say(execute, "lint", "web").output  # x.j2 is unused
    assert "9.2" in say(execute, "explain", "exec#say", "web").output
    assert say(execute, "apply", "web").status == 0


def test_described_host_must_state_executable_facts(author: Path, execute: Execute) -> None:
    status, output = say(execute, "lint", "web", "--no-system-facts", "-v")
    assert status == 0
    assert (
        "unchecked: exec#say: command: {{ facts.openssh.version }}: facts.d/openssh.sh: is not run"
        " without the facts of this machine, so pass its value with --fact or --facts [depends-on-facts]\n"
    ) in output
    provided = say(execute, "lint", "web", "--no-system-facts", "--fact", "openssh.version=9")
    assert provided == (0, "web: 1 resource, 0 errors, 0 warnings\n")


def test_bundle_file_keeps_executable_bits(author: Path, execute: Execute) -> None:
    assert say(execute, "bundle", "build", "web", "--version", "1.0.0").status == 0
    (archive,) = author.parent.glob("*.tar.gz")
    assert say(execute, "facts", "--bundle", f"./{archive.name}", "openssh.version") == (0, "9.2\n")
    assert say(execute, "apply", archive.name).status == 0


def test_host_runs_and_shows_signed_facts(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    # The packed file is executable, like its source.
    write(tmp_path / "publisher" / "sources" / "web-1.0.0", {"facts.d/openssh.sh": OPENSSH})
    publisher.publish("1.0.0", MANIFEST, files={})
    assert host.run().status == 0
    assert host.states() == {"exec#say": "changed"}
    assert host.puller("facts", "--bundle", "web", "openssh.version") == (0, "9.2\n")
    assert "9.2" in host.puller("explain", "exec#say").output

    write(tmp_path / "publisher" / "sources" / "web-1.1.0", {"facts.d/openssh.sh": BROKEN})
    publisher.publish("1.1.0", MANIFEST, files={})
    noop = host.run("--noop")
    assert "facts.d/openssh.sh: exit code 4: no sshd is here" in noop.output
    assert host.run().status != 0
    assert host.states() == {"exec#say": "failed"}
    assert host.puller("facts", "--bundle", "web", "openssh") == (
        1,
        "puller: facts.d/openssh.sh: exit code 4: no sshd is here\n",
    )


def test_only_enforced_bundles_are_shown_by_name(host: Host) -> None:
    assert host.puller("facts", "--bundle", "web") == (13, "puller: web: nothing is enforced\n")
    assert host.puller("facts", "--bundle", "wev") == (
        64,
        "puller: wev: the configuration names no such bundle (did you mean 'web'?)\n",
    )
