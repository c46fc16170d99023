"""The configuration of a user's agent: its location, its permissions, and users that may not run it."""

import grp
import json
import os
import pwd
import stat
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from puller import state
from puller.cli import find_job
from puller.cli.command_table import cli
from puller.config.configuration import load_configuration, sample
from puller.errors import ConfigurationError, UsageError
from puller.run import jobs
from puller.state import UserConfigurationFile, configuration_file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory with a configuration. Root counts as an ordinary user."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    directory = home / ".config/puller"
    directory.mkdir(parents=True, mode=0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("puller.config.configuration.require_user", lambda: None)
    (directory / "config.yaml").write_text("site: https://www.example.org/p\nbundles: [{name: web}]\n")
    return home


def load() -> object:
    return load_configuration(configuration_file(None, as_user=True))


def test_everything_is_below_the_directories_of_the_user(home: Path) -> None:
    configuration = load_configuration(configuration_file(None, as_user=True))
    own = home / ".config/puller"
    assert configuration.as_user
    assert configuration.trust_anchor == str(own / "root.json")
    assert (configuration.host_data, configuration.host_data_directory) == (
        str(own / "data.yaml"),
        str(own / "data.d"),
    )
    assert configuration.facts_directory == str(own / "facts.d")
    assert configuration.eyaml_private_key == str(own / "keys/private_key.pkcs7.pem")
    assert configuration.state_directory == str(home / ".local/state/puller")
    assert not configuration.run_directory.startswith("/run/puller")


def test_the_variables_of_xdg_count_when_they_are_absolute(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    assert state.users_configuration() == str(home / ".config/puller")
    assert state.users_state() == str(home / "state/puller")
    assert state.users_run() == str(home / "puller")


def test_without_runtime_directory_the_lock_is_in_the_state(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "gone"))
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    assert state.users_run() == str(home / ".local/state/puller/run")


def test_file_settings_override_user_directories(home: Path) -> None:
    with (home / ".config/puller/config.yaml").open("a") as file:
        file.write(f"state_directory: {home}/elsewhere\n")
    assert load_configuration(configuration_file(None, as_user=True)).state_directory == f"{home}/elsewhere"


@pytest.mark.attack("configuration.user")
@pytest.mark.parametrize(
    "name",
    ["config.yaml", "root.json", "data.yaml", "data.d/one.yaml", "keys/private_key.pkcs7.pem", "token"],
)
def test_files_writable_by_others_are_not_read(home: Path, name: str) -> None:
    path = home / ".config/puller" / name
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text("")
    with (home / ".config/puller/config.yaml").open("a") as file:
        file.write(f"http: {{token_file: {home}/.config/puller/token}}\n")
    path.chmod(0o644)
    load()
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match=rf"{name}: is not read: .* has mode 0666"):
        load()


@pytest.mark.attack("configuration.user")
def test_directories_writable_by_others_are_not_read(home: Path) -> None:
    with (home / ".config/puller/config.yaml").open("a") as file:
        file.write(f"host_data: {home}/open/below/data.yaml\n")
    (home / "open").mkdir()
    load()
    (home / "open").chmod(0o777)
    with pytest.raises(
        ConfigurationError, match="open has mode 0777, expected it writable by its owner only"
    ):
        load()


@pytest.mark.attack("configuration.user")
def test_group_of_the_user_alone_may_write(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / ".config/puller/config.yaml"
    path.chmod(0o664)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid or 4711)
    monkeypatch.setattr("puller.system.trusted_files._trusted_users", lambda: (0, path.stat().st_uid))
    me = SimpleNamespace(pw_uid=4711, pw_gid=path.stat().st_gid, pw_name="alice")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: me)
    group = SimpleNamespace(gr_gid=me.pw_gid, gr_name="alice", gr_mem=["alice"])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: group)
    load()
    group.gr_mem.append("bob")
    with pytest.raises(ConfigurationError, match="has mode 0664"):
        load()
    group.gr_mem, group.gr_name = [], "users"
    with pytest.raises(ConfigurationError, match="has mode 0664"):
        load()


def test_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for refused in (
        lambda: load_configuration(UserConfigurationFile(tmp_path / "config.yaml")),
        lambda: jobs.apply(jobs.ApplyOptions(source=str(tmp_path), as_user=True)),
    ):
        with pytest.raises(UsageError, match="--as-user is for ordinary users"):
            refused()


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    results: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = (*path, name)
        results += commands(command, below) if isinstance(command, click.Group) else [(below, command)]
    return results


def test_each_host_command_accepts_the_configuration_option() -> None:
    of_others = {("site", "mirror")}  # only reads how to reach the site
    with_configuration, with_user = (
        {
            path
            for path, command in commands(cli)
            if any(option in parameter.opts for parameter in command.params)
        }
        for option in ("--config", "--as-user")
    )
    of_hiera = {path for path in with_configuration if path[0] == "hiera"}  # their option takes a hiera.yaml
    without = {("config", "sample")}
    assert with_user - without == with_configuration - of_others - of_hiera
    assert {("run",), ("status",), ("check",), ("pin",), ("rollback",)} <= with_user


@pytest.mark.skipif(os.geteuid() == 0, reason="root is refused")
def test_a_run_of_a_user_keeps_to_the_places_of_the_user(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bundles.publisher.lifecycle import make_site
    from bundles.publisher.publication import publish_bundle

    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(home / name))
        (home / name).mkdir(mode=0o700)
    site, source, own = make_site(home / "site", None), home / "source", home / "XDG_CONFIG_HOME/puller"
    source.mkdir()
    out = home / "out"
    (source / "manifest.yaml").write_text(
        f"as_user: true\nresources:\n  - file:\n      - {out}: {{content: hello, mode: '0600'}}\n"
    )
    publish_bundle(site, source, lambda key: b"", name="web", version="1.0.0")
    own.mkdir()
    (own / "root.json").write_bytes(site.anchor.read_bytes())
    (own / "config.yaml").write_text(f"site: {site.public}\nbundles: [{{name: web}}]\n")
    job = find_job(["run", "--as-user"])
    assert job is not None
    assert job() == 0, capfd.readouterr()
    assert job() == 0
    assert (out.read_text(), stat.S_IMODE(out.stat().st_mode)) == ("hello", 0o600)
    assert (home / "XDG_STATE_HOME/puller/last-run.json").exists()
    assert (home / "XDG_RUNTIME_DIR/puller/lock").exists()


def test_user_sample_is_valid_and_uses_default_paths(home: Path) -> None:
    (home / ".config/puller/config.yaml").write_text(sample(as_user=True))
    configuration = load_configuration(configuration_file(None, as_user=True))
    assert configuration.state_directory == str(home / ".local/state/puller")
    assert "/etc/puller" not in sample(as_user=True)
    assert "/var/lib/puller" not in sample(as_user=True)


def test_facts_and_the_key_of_apply_are_the_user_s_own(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = home / ".config/puller/facts.d"
    facts.mkdir()
    (facts / "own.json").write_text('{"color": "green"}')
    command = {"echo {{ facts.color }} > out": {"provider": "shell", "cwd": str(home)}}
    manifest = {"as_user": True, "resources": [{"exec": [command]}]}
    (home / "manifest.yaml").write_text(json.dumps(manifest))
    options = jobs.ApplyOptions(
        source=str(home / "manifest.yaml"), as_user=True, state_directory=str(home / "s")
    )
    assert jobs.apply(options) == 0, capsys.readouterr()
    assert (home / "out").read_text() == "green\n"
    assert options.private_key == str(home / ".config/puller/keys/private_key.pkcs7.pem")
