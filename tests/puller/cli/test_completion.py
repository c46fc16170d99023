"""Completion of command lines: by the protocol of click, and in real shells."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulators.fleet import deliver, now, sent
from tests.support.stories import Execute, Host, Publisher, run_here

COMMAND = str(Path(sys.executable).with_name("puller"))

BASH = """
eval "$(puller completion bash)"
read -ra COMP_WORDS <<< "$LINE"
[[ $LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_puller_completion puller
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = """
puller completion fish | source
complete --do-complete "$LINE"
"""
ZSH = r"""
from pathlib import Path
import os, pty, select, sys, time

line, functions = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.environ |= {"TERM": "dumb", "PS1": "ready> ", "ZDOTDIR": functions}
    os.execvp("zsh", ["zsh", "-f", "-i"])

def read(until: bytes) -> str:
    seen, end = b"", time.monotonic() + 60
    while until not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 65536)
    assert until in seen, seen
    return seen.decode(errors="replace")

# What is waited for is never in what is typed, which the terminal shows, too.
read(b"ready> ")
os.write(terminal, f"fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=0\n".encode())
os.write(terminal, b"said() { zle -M the''-end; }; zle -N said; bindkey '^O' said; PS1='set''-up> '\n")
read(b"set-up> ")
os.write(terminal, line.encode() + b"\t\x0f")  # the second key is read when the first has done all
print(read(b"the-end"))
os.close(terminal)
"""

Offer = Callable[[str], set[str]]


@pytest.fixture
def config(publisher: Publisher, host: Host, execute: Execute) -> str:
    """Option with the configuration of a host that has had a run."""
    publisher.publish("1.0.0")
    assert execute("run", "--config", str(host.configuration))[0] == 0
    return f"--config {host.configuration}"


def run_shell(command: list[str], line: str) -> str:
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LINE": line, "LANG": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


def offered_by_bash(line: str, work: Path) -> set[str]:
    return {*run_shell(["bash", "-c", BASH], line).split()}


def offered_by_fish(line: str, work: Path) -> set[str]:
    text = run_shell(["fish", "--no-config", "-c", FISH], line)
    return {found.partition("\t")[0] for found in text.splitlines()}


def offered_by_zsh(line: str, work: Path) -> set[str]:
    """Return the completions of the installed function in a zsh at a terminal."""
    functions = work / "functions"
    functions.mkdir(exist_ok=True)
    (functions / "_puller").write_text(run_shell([COMMAND, "completion", "zsh"], line))
    text = run_shell(["python3", "-c", ZSH, line, str(functions)], line)
    return {*text.replace("\x07", " ").split()}


def offered(line: str) -> set[str]:
    """Return the command's answer to a shell."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_PULLER_COMPLETE": "zsh_complete", **words}.items():
            patch.setenv(name, value)
        done = run_here()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.strip("\n").splitlines()
    return {value if kind == "plain" else kind for kind, value in zip(lines[::3], lines[1::3], strict=True)}


def test_bundles_versions_and_resources_of_the_host_are_offered(
    config: str, host: Host, execute: Execute
) -> None:
    assert offered(f"puller pin {config} ") == {"web"}
    assert offered(f"puller pin {config} web ") == {"1.0.0"}
    assert offered(f"puller pin {config} web 2") == set()
    assert offered(f"puller rollback {config} w") == {"web"}
    assert offered(f"puller check {config} ") == {"web"}
    assert offered(f"puller facts {config} --bundle ") == {"web"}
    assert offered(f"puller facts {config} --bundle ./w") == {"file"}
    assert offered(f"puller quarantine clear {config} ") == set()
    assert execute("rollback", "web", "--config", str(host.configuration))[0] != 0
    references = offered(f"puller explain {config} file#")
    assert references
    assert all(reference.startswith("file#") for reference in references)
    assert offered(f"puller run {config} --only file#") == references
    assert "file#" not in offered("puller ensure file /x --only file#"), "it has no --config"


def test_quarantined_versions_are_completed_for_clear(
    config: str, publisher: Publisher, host: Host, execute: Execute
) -> None:
    publisher.publish("1.1.0")
    assert execute("run", "--config", str(host.configuration))[0] == 0
    assert execute("rollback", "web", "--config", str(host.configuration))[0] == 0
    assert offered(f"puller quarantine clear {config} ") == {"web"}
    assert offered(f"puller quarantine clear {config} web ") == {"1.1.0"}
    assert offered(f"puller forget {config} ") == {"web"}


def test_bundles_of_a_site_are_offered(publisher: Publisher, config: str) -> None:
    assert offered(f"puller site halt {publisher.site.directory} ") == {"web"}
    assert offered(f"puller site history {publisher.site.directory} x") == set()


def test_versions_and_channels_of_a_site_are_offered(publisher: Publisher, config: str) -> None:
    site = publisher.site.directory
    assert offered(f"puller site back {site} web --version ") == {"1.0.0"}
    assert offered(f"puller site promote {site} web --from ") == {"stable"}
    assert offered(f"puller site halt {site} web --channel s") == {"stable"}
    assert offered("puller site back web --version ") == set()


def test_versions_of_the_default_site_are_offered(
    publisher: Publisher, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLER_SITE", str(publisher.site.directory))
    assert offered("puller site halt ") == {"web"}
    assert offered("puller site back web --version ") == {"1.0.0"}
    assert offered("puller site promote web --from ") == {"stable"}


def test_machines_of_a_bundle_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("web").mkdir()
    Path("web/manifest.yaml").write_text("resources: []\n")
    assert offered("puller render web --machine ") == set()
    Path("puller.yaml").write_text("machines: {debian: {bundles: [web]}, rocky: {bundles: [web]}}\n")
    assert offered("puller render web --machine d") == {"debian"}
    Path("puller.yaml").write_text("machines: [")
    assert offered("puller render web --machine ") == set()


def test_facts_and_systems_are_offered() -> None:
    assert {"os.release", "os.release.major"} <= offered("puller facts os.rel")
    assert offered("puller facts --of debian-1") == {"debian-12", "debian-13"}
    assert offered("puller lint --fact os.fam") == {"os.family="}
    assert offered("puller lint --os rocky") == {"rocky-9"}
    assert offered("puller fleet status --where os.fam") == {"os.family="}


def test_hosts_of_a_store_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute
) -> None:
    monkeypatch.chdir(tmp_path)
    assert offered("puller fleet forget ") == set()
    Path("reports").mkdir()
    deliver(Path("reports"), [sent(host, now()) for host in ("web1.example.com", "db1.example.com")])
    assert execute("fleet", "import", "reports")[0] == 0
    assert offered("puller fleet forget w") == {"web1.example.com"}
    assert offered("puller fleet forget --store none.db ") == set()


@pytest.mark.everything
def test_bash_quotes_values_with_spaces(publisher: Publisher, host: Host, tmp_path: Path) -> None:
    publisher.publish("1.0.0", "resources: [{exec: [{'true a b': {}}]}]\n", files={})
    assert host.run().status == 0
    line = f"puller explain --config {host.configuration}"
    assert run_shell(["bash", "-c", BASH], f"{line} exec") == "exec#true\\ a\\ b\n"
    # Within quotes, bash inserts the value unchanged.
    assert run_shell(["bash", "-c", BASH], f"{line} 'exec") == "exec#true a b\n"


def test_commands_options_types_and_files_are_offered() -> None:
    assert offered("puller quar") == {"quarantine"}
    assert offered("puller run --no") == {"--noop", "--no-diff", "--no-reboot"}
    assert offered("puller state kernel") == {"kernel_module"}
    assert offered("puller apply we") == {"file"}
    paths = ("run --config", "lint web --with", "fleet status --store", "fleet page -o", "preview web --from")
    assert {line: offered(f"puller {line} ") for line in paths} == {line: {"file"} for line in paths}
    assert offered("puller completion ") == {"bash", "zsh", "fish"}


@pytest.mark.parametrize("text", [None, "", "bundles: [", "site: 7"])
@pytest.mark.representatives(1)
def test_completion_is_silent_when_records_are_unreadable(tmp_path: Path, text: str | None) -> None:
    configuration = tmp_path / "config.yaml"
    if text is not None:
        configuration.write_text(text)
    for line in (
        "pin --config {} ",
        "pin --config {} web ",
        "explain --config {} f",
        "quarantine clear --config {} ",
    ):
        assert offered(f"puller {line.format(configuration)}") == set()
    assert offered(f"puller site halt {tmp_path} ") == set()


@pytest.mark.shells
@pytest.mark.parametrize("ask", [offered_by_bash, offered_by_zsh, offered_by_fish])
def test_real_shells_offer_all_of_that(
    ask: Callable[[str, Path], set[str]], config: str, tmp_path: Path
) -> None:
    def offer(line: str) -> set[str]:
        return ask(line, tmp_path)

    assert {"publish", "prune", "promote", "push"} <= offer("puller site p")
    assert {"--noop", "--no-diff"} <= offer("puller run --no")
    assert {"kernel_module", "link", "line"} <= offer("puller state ")
    assert "web" in offer(f"puller pin {config} ")
    assert "1.0.0" in " ".join(offer(f"puller pin {config} web "))


@pytest.mark.shells
def test_real_zsh_and_fish_quote_values_with_spaces(publisher: Publisher, host: Host, tmp_path: Path) -> None:
    publisher.publish("1.0.0", "resources: [{exec: [{'true a b': {}}]}]\n", files={})
    assert host.run().status == 0
    line = f"puller explain --config {host.configuration} exec"
    assert {"a\\", "b"} <= offered_by_zsh(line, tmp_path), "a backslash before each space"
    # fish quotes when it inserts a completion, so the list has the value itself.
    assert offered_by_fish(line, tmp_path) == {"exec#true a b"}
