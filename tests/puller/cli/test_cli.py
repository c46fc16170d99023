"""The command ``puller`` as users type it: output and exit status."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from puller.cli import _status, main
from puller.errors import UsageError, reason
from tests.support.stories import run_here

Puller = Callable[..., "subprocess.CompletedProcess[str]"]

MANIFEST = """\
data: {greeting: hello}
pre_message: about to greet
post_message: greeted
resources:
  - file:
      - DIR/motd: {content: "{{ data.greeting }} {{ facts.role }}\\n", owner: "UID", group: "GID", mode: "0644"}
"""


@pytest.fixture
def puller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Puller:
    """Run ``puller`` with the given arguments, in a temporary directory and in this process."""
    monkeypatch.chdir(tmp_path)
    return run_here


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """A directory with a manifest that prints a greeting."""
    directory = tmp_path / "web"
    directory.mkdir()
    text = (
        MANIFEST.replace("DIR", str(tmp_path))
        .replace("UID", str(os.geteuid()))
        .replace("GID", str(os.getegid()))
    )
    (directory / "manifest.yaml").write_text(text)
    return directory


STATE = ("--state-directory", "state")  # with its own lock
APPLY = ("apply", "web", "--fact", "role=db", *STATE)


@pytest.mark.usefixtures("web")
def test_apply_changes_then_is_stable(puller: Puller, tmp_path: Path) -> None:
    first, second = puller(*APPLY), puller(*APPLY, "-v")
    assert (tmp_path / "motd").read_text() == "hello db\n"
    assert first.stdout.splitlines()[0] == "about to greet"
    assert first.stdout.splitlines()[-1] == "greeted"
    assert "changed ensure=present" in first.stdout
    assert "1 resource, 0 stable, 1 changed in " in first.stdout
    assert "INFO   file#" in second.stdout
    assert "1 resource, 1 stable, 0 changed in " in second.stdout
    assert (first.returncode, second.returncode, first.stderr, second.stderr) == (0, 0, "", "")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ((), 0),
        (("--detailed-exitcodes",), 2),
        (("--noop",), 0),
        (("--noop", "--detailed-exitcodes"), 2),
    ],
)
def test_changes_show_in_the_exit_status_when_asked_for(
    puller: Puller, options: tuple[str, ...], status: int
) -> None:
    assert puller(*APPLY, *options).returncode == status


@pytest.mark.usefixtures("web")
def test_a_dry_run_shows_the_diff_and_leaves_no_trace(puller: Puller, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    done = puller(*APPLY, "--noop", "--diff")
    assert 'noop="Would have created the file"' in done.stdout
    assert "+hello db" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.usefixtures("web")
def test_data_from_the_command_line_wins(puller: Puller, tmp_path: Path) -> None:
    (tmp_path / "local.yaml").write_text("data: {greeting: hi}\n")
    puller(*APPLY, "--data", "local.yaml")
    assert (tmp_path / "motd").read_text() == "hi db\n"


@pytest.mark.usefixtures("web")
def test_a_bundle_file_is_applied_as_its_directory(puller: Puller, tmp_path: Path) -> None:
    assert puller("bundle", "build", "web", "--version", "1.0.0").returncode == 0
    (tmp_path / "web" / "manifest.yaml").unlink()
    done = puller("apply", "web-1.0.0.tar.gz", "--fact", "role=db", "--state-directory", "state")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "motd").read_text() == "hello db\n"


def test_failed_resources_show_in_the_exit_status(puller: Puller, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("resources: [{exec: [{'false': {}}, {'echo a': {}}]}]\n")
    done = puller("apply", "manifest.yaml", "--state-directory", "state")
    assert done.returncode == 6
    assert "exec#false failed ensure=present" in done.stdout
    assert 'errors="exit code 1, expected 0"' in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ("apply", "nowhere", *STATE),
            64,
            "puller: nowhere: does not exist\n",
        ),
        (("apply", ".", *STATE), 64, "puller: ./manifest.yaml: does not exist ("),
        (
            ("apply", "bad.yaml", *STATE),
            13,
            "puller: bad.yaml:1: unknown key 'resource' (did you mean 'resources'?)",
        ),
        (("apply", "bad.tar.gz", *STATE), 13, "puller: bad.tar.gz: is not a bundle"),
        (("apply", "bad.yaml", "--data", "bad.yaml", *STATE), 78, "puller: bad.yaml:1:1: resource"),
        (("apply", "bad.yaml", "--fact", "novalue"), 64, "--fact"),
        (("apply",), 64, "Missing argument 'SOURCE'"),
        (("aply", "web"), 64, "Unknown command `aply`. Similar: `puller apply`."),
        (
            ("run", "--config", "none.yaml"),
            78,
            "puller: none.yaml: the configuration does not exist; create it from the output of `puller config sample`",
        ),
        (
            ("run", "--config", "bad.yaml"),
            78,
            "puller: bad.yaml:1: resource is not a key of the configuration",
        ),
        (("status", "--config", "none.yaml"), 78, "puller: none.yaml: the configuration does not exist"),
        (("config", "check", "--config", "bad.yaml"), 78, "puller: bad.yaml:1: "),
    ],
)
def test_a_mistake_has_a_sentence_and_a_documented_status(
    puller: Puller, tmp_path: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    (tmp_path / "bad.yaml").write_text("resource: []\n")
    (tmp_path / "bad.tar.gz").write_text("not a bundle")
    done = puller(*arguments)
    assert message in done.stderr
    assert done.returncode == status
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("web")
def test_lint_lists_missing_facts(puller: Puller) -> None:
    missing, complete = puller("lint", "web", "-v"), puller("lint", "web", "--fact", "role=db")
    assert "web/manifest.yaml:6:" in missing.stdout
    assert ": unchecked: file#" in missing.stdout
    assert "unknown key 'role' in facts" in missing.stdout
    assert complete.stdout == "web: 1 resource, 0 errors, 0 warnings\n"
    assert (missing.returncode, complete.returncode) == (0, 0)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_render_shows_data_and_resources_as_they_are_here(puller: Puller, tmp_path: Path, form: str) -> None:
    done = puller("render", "web", "--fact", "role=db", "--format", form)
    result = yaml.load(done.stdout, yaml.CSafeLoader) if form == "yaml" else json.loads(done.stdout)
    assert result["data"] == {"greeting": "hello"}
    ((name, properties),) = result["resources"][0]["file"][0].items()
    assert (name, properties["content"], properties["mode"]) == (f"{tmp_path}/motd", "hello db\n", "0644")


def test_render_masks_sensitive_values(puller: Puller, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(
        "resources: [{file: {name: /a, content: hidden, sensitive: true, owner: root, group: root, mode: '0600'}}]\n"
    )
    done = puller("render", "manifest.yaml")
    assert "(sensitive)" in done.stdout
    assert "hidden" not in done.stdout


def test_the_sample_configuration_is_valid(puller: Puller, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(puller("config", "sample").stdout)
    done = puller("config", "check", "--file-only", "--config", "config.yaml")
    assert done.stdout.splitlines()[1:] == [
        "site: https://puller.example.com/",
        "bundle: base, channel stable",
        "bundle: web, channel stable",
    ]


def test_units_are_installed_with_the_path_of_the_command(puller: Puller, tmp_path: Path) -> None:
    done = puller("install-units", "--root", "root")
    assert done.returncode == 0
    service = (tmp_path / "root/etc/systemd/system/puller.service").read_text()
    (start,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    assert start.endswith("/puller run")
    assert start.startswith("ExecStart=/")
    assert "@PULLER@" not in service
    assert (tmp_path / "root/etc/systemd/system/puller.timer").exists()
    checking = (tmp_path / "root/etc/systemd/system/puller-check.service").read_text()
    assert f"{start.removesuffix('run')}check --run\n" in checking
    assert (tmp_path / "root/etc/systemd/system/puller-check.timer").exists()
    assert (tmp_path / "root/etc/tmpfiles.d/puller.conf").exists()


def test_package_units_stay_and_use_the_unversioned_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from puller.cli.command_table import run_click

    monkeypatch.setattr(sys, "prefix", "/usr/lib/puller/1.0.0")
    monkeypatch.setattr(
        "puller.cli.host.units.write_output", lambda path, _: pytest.fail(f"{path} is written")
    )
    assert run_click(["install-units"]) == 0
    assert capsys.readouterr().out.startswith(
        "the package of Puller has brought the units already\nnext: systemctl"
    )
    assert run_click(["install-units", "--stdout"]) == 0
    assert "\nExecStart=/usr/bin/puller run\n" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--publisher", "--tight", "--stdout"])
def test_an_installation_without_units_is_an_error(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("puller.cli.host.units._shipped", lambda: tmp_path / "units")
    assert _status(["install-units", "--root", f"{tmp_path}/root", option])[0] == 78
    assert not (tmp_path / "root").exists()
    error = capsys.readouterr().err
    assert error.startswith(f"puller: {tmp_path}/units/puller")
    assert "this installation of Puller lacks its systemd units: no such file or directory" in error


def test_tight_profile_is_a_drop_in_of_both_services(
    puller: Puller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from puller.cli.command_table import run_click

    assert puller("install-units", "--tight", "--root", "root").returncode == 0
    made = sorted(
        path.relative_to(tmp_path / "root") for path in (tmp_path / "root").rglob("*.*") if path.is_file()
    )
    assert [str(path) for path in made] == [
        f"etc/systemd/system/{name}.service.d/50-tight.conf" for name in ("puller-check", "puller")
    ]
    monkeypatch.setattr(sys, "prefix", "/usr/lib/puller/1.0.0")
    assert run_click(["install-units", "--tight", "--root", str(tmp_path / "packaged")]) == 0
    assert "50-tight.conf" in capsys.readouterr().out
    assert puller("install-units", "--tight", "--user").returncode == 64


def test_the_units_of_a_user_start_the_user_s_agent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from puller.cli.command_table import run_click

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("puller.cli.host.units.require_user", lambda: None)
    monkeypatch.setattr("puller.cli.host.units._find_command", lambda: "/home/alice/venv/bin/puller")
    assert run_click(["install-units", "--user"]) == 0
    assert "loginctl enable-linger" in capsys.readouterr().out
    service = (tmp_path / "systemd/user/puller.service").read_text()
    assert "\nExecStart=/home/alice/venv/bin/puller run --as-user\n" in service
    assert (tmp_path / "systemd/user/puller.timer").exists()
    monkeypatch.undo()
    if os.geteuid() == 0:
        with pytest.raises(UsageError, match="--as-user is for ordinary users"):
            run_click(["install-units", "--user"])


@pytest.mark.parametrize("number", [errno.EROFS, errno.EPERM])
def test_profile_restrictions_are_named_in_the_error(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert reason(error) == os.strerror(number).lower()
    monkeypatch.setenv("PULLER_UNIT_PROFILE", "tight")
    assert reason(error).endswith(" (this run has the tight profile of its unit: docs/units.md)")
    missing = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    assert reason(missing) == "no such file or directory"


def test_output_into_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m puller config sample | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


def test_the_version_is_that_of_the_distribution(puller: Puller) -> None:
    from importlib.metadata import version

    assert puller("--version").stdout == f"puller, version {version('puller-agent')}\n"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "x.tar",
            "x.tar: is an archive but not a bundle, whose name ends in .tar.gz; unpack it, and pass its directory",
        ),
        (
            "https://user:secret@www.example.org/web.tar.gz",
            "is a URL, expected a file or directory of this machine; download",
        ),
        (
            "x.tar.gz",
            "is not a bundle of `puller bundle build`: its first bytes differ; unpack another archive",
        ),
    ],
)
def test_refused_apply_states_the_alternative(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argument: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x.tar", "x.tar.gz"):
        Path(name).write_bytes(b"manifest.yaml")
    with pytest.raises(SystemExit) as ended:
        main(["apply", argument])
    output = capsys.readouterr().err
    assert ended.value.code == 13
    assert message in output
    assert "secret" not in output
