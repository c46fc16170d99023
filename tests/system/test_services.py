"""The service resource with a real systemd, and a comparison with the simulated one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.simulators import systemd as simulator

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

UNITS = "etc/systemd/system"
OF_PACKAGES = "usr/lib/systemd/system"
COMPARED = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload", "WantedBy", "TriggeredBy",
    "SourcePath", "NRestarts",
)  # fmt: skip


def write_units(machine: Machine, files: dict[str, str]) -> None:
    for name, text in files.items():
        (machine.root / OF_PACKAGES / name).write_text(text)
    linked = machine.root / simulator.LINKED.lstrip("/")
    linked.parent.mkdir(parents=True, exist_ok=True)
    linked.write_text(simulator.SLEEP + simulator.INSTALL)
    machine.run("systemctl", "daemon-reload")


def show(machine: Machine, name: str) -> dict[str, str]:
    (properties,) = show_all(machine, [name])
    return properties


def show_all(machine: Machine, names: Iterable[str]) -> list[dict[str, str]]:
    """Return the compared properties of each unit, by one command."""
    output = machine.run("systemctl", "show", f"--property={','.join(COMPARED)}", "--", *names).stdout
    blocks = output.rstrip("\n").split("\n\n")
    return [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]


def forget(machine: Machine, *names: str) -> None:
    """Restore the original states of units. Systemd reloads once, because a reload takes longer than a change."""
    of_all = " ".join(names)
    # With several units, `disable` ends at the first missing one.
    disable = [f"--no-reload disable {how} {name}" for name in names for how in ("", "--runtime")]
    steps = [
        f"stop {of_all}",
        f"--no-reload unmask {of_all}",
        *disable,
        f"reset-failed {of_all}",
        "daemon-reload",
    ]
    machine.run("sh", "-c", "\n".join(f"systemctl {step}" for step in steps), check=False)


def test_simulated_systemd_behaves_like_systemd(debian: Machine) -> None:
    write_units(debian, simulator.FILES)
    for state, (name, steps) in simulator.STATES.items():
        imitation = simulator.SimulatedSystemd()
        for step in steps:
            debian.run("systemctl", *step, check=False)
            imitation._run(["systemctl", *step])
        shown = dict(line.split("=", 1) for line in imitation.unit(name).show().splitlines())
        assert show(debian, name) == {key: shown[key] for key in COMPARED}, state
        forget(debian, name)


def apply(machine: Machine, manifest: dict[str, Any], *options: str) -> Completed:
    (machine.root / "root/manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    return machine.run(
        "puller", "apply", "/root/manifest.yaml", "--verbose", *options, check=False, timeout=120
    )


def outcomes(done: Completed) -> dict[str, str]:
    """Return the state of each service, by its alias."""
    return dict(re.findall(r"service#(.*?) \(.*?\) (would change|\w+)", done.stdout))


def of_its_own(number: int, state: str) -> tuple[str, dict[str, str], list[list[str]]]:
    """Return the unit, files and steps of a state, under names that no other state uses."""
    name, steps = simulator.STATES[state]
    own = f"s{number}-{name}"
    plain = name.removesuffix(".service").partition("@")[0]
    files = {f"s{number}-{file}": text for file, text in simulator.FILES.items() if file.startswith(plain)}
    return (
        own,
        files,
        [[word if word[:2] == "--" or i == 0 else own for i, word in enumerate(step)] for step in steps],
    )


def test_every_state_converges_in_a_run_or_is_refused(debian: Machine) -> None:
    states = {state: n for n, state in enumerate(simulator.STATES) if not state.startswith("linked")}
    own = {state: of_its_own(number, state) for state, number in states.items()}
    write_units(debian, {name: text for _, files, _ in own.values() for name, text in files.items()})
    for desired in simulator.DESIRED:
        forget(debian, *(name for name, _, _ in own.values()))
        for _, _, steps in own.values():
            for step in steps:
                debian.run("systemctl", *step, check=False)
        converge(debian, desired, {state: name for state, (name, _, _) in own.items()})


def converge(machine: Machine, desired: dict[str, Any], services: dict[str, str]) -> None:
    """Run noop and two runs, and check their results and the resulting state in systemd."""
    bodies = [{name: {**desired, "alias": state}} for state, name in services.items()]
    manifest = {"resources": [{"service": bodies}]}
    predicted = outcomes(apply(machine, manifest, "--noop"))
    done = apply(machine, manifest)
    first, second = outcomes(done), outcomes(apply(machine, manifest))
    assert first.keys() == predicted.keys() == services.keys(), done.stdout
    results = dict(zip(services, show_all(machine, services.values()), strict=True))
    for state in services:
        where = f"{state}, expected {desired}:\n{done.stdout}"
        if simulator.refusal(state, desired):
            assert first[state] == "failed", where
            assert predicted[state] == "failed" or state == "failed", where
            continue
        assert (first[state], predicted[state]) in [("stable", "stable"), ("changed", "would change")], where
        assert second[state] == "stable", where
        result = results[state]
        assert (result["ActiveState"] == "active") is (desired["ensure"] == "running"), where
        if desired.get("enable") == "masked":
            assert result["UnitFileState"] == "masked", where
        elif "enable" in desired:
            assert (result["UnitFileState"] == "enabled") is desired["enable"], where
            assert (result["WantedBy"] == "multi-user.target") is desired["enable"], where


def test_linked_unit_file_stays_known_when_disabled(debian: Machine) -> None:
    write_units(debian, {})
    debian.run("systemctl", "enable", simulator.LINKED)
    debian.run("systemctl", "start", "linked")
    manifest = {"resources": [{"service": [{"linked": {"ensure": "stopped", "enable": False}}]}]}
    assert "service#linked changed" in apply(debian, manifest).stdout
    assert show(debian, "linked")["UnitFileState"] == "linked"
    assert "service#linked stable" in apply(debian, manifest).stdout


def test_service_restarts_once_for_many_files(debian: Machine) -> None:
    def manifest(text: str) -> dict[str, Any]:
        unit = simulator.SLEEP + f"# {text}\n" + simulator.INSTALL
        files = {f"/{UNITS}/app.service": unit, "/etc/app.conf": text, "/etc/app.d.conf": text}
        common = {"owner": "root", "group": "root", "mode": "0644"}
        service = {"enable": True, "subscribe": [f"file#{path}" for path in files]}
        bodies = [{path: {**common, "content": content}} for path, content in files.items()]
        return {"resources": [{"file": bodies}, {"service": [{"app": service}]}]}

    def starts() -> int:
        entries = debian.journal("app.service")
        return sum(entry["MESSAGE"].startswith("Started ") for entry in entries)

    assert "service#app changed" in apply(debian, manifest("one")).stdout, "on a fresh machine, in one run"
    assert starts() == 1
    assert "service#app stable" in apply(debian, manifest("one")).stdout
    assert 'noop="Would have restarted via subscribe"' in apply(debian, manifest("two"), "--noop").stdout
    assert starts() == 1
    assert "service#app refreshed" in apply(debian, manifest("two")).stdout
    assert starts() == 2
    assert show(debian, "app")["NeedDaemonReload"] == "no", "what runs now is what the unit file says"
    assert "service#app stable" in apply(debian, manifest("two")).stdout
    assert starts() == 2


NOTING = """
[Service]
ExecStart=/bin/sh -c 'read_it() { cp /etc/app.conf /run/app.read; }; trap read_it HUP; read_it; \\
  while :; do sleep 0.1; done'
ExecReload=/bin/sh -c 'kill -HUP $MAINPID'
"""
"""A service that reads its configuration at its start and at a reload."""


def test_service_reloads_or_restarts_as_required(debian: Machine, wait_until: Callable[..., None]) -> None:
    write_units(debian, {"app.service": NOTING + simulator.INSTALL})

    def manifest(conf: str, unit: str = "") -> dict[str, Any]:
        dropin = f"/{UNITS}/app.service.d/own.conf"
        files = {"/etc/app.conf": conf, dropin: f"[Service]\n{unit}\n"}
        bodies = [{path: {"content": text, **ROOTS}} for path, text in files.items()]
        directory = {str(Path(dropin).parent): {**ROOTS, "ensure": "directory", "mode": "0755"}}
        service = {"reload": ["file#/etc/app.conf"], "subscribe": [f"file#{dropin}"]}
        return {"resources": [{"file": [directory, *bodies]}, {"service": [{"app": service}]}]}

    def process() -> str:
        return debian.show("app", "MainPID")["MainPID"]

    def has_read(text: str) -> bool:
        result = debian.run("cat", "/run/app.read", check=False)
        return result.stdout == text

    assert "service#app changed" in apply(debian, manifest("one")).stdout
    first = process()
    wait_until(lambda: has_read("one"), "it has read", 30, debian.say)
    assert 'noop="Would have reloaded"' in apply(debian, manifest("two"), "--noop").stdout
    done = apply(debian, manifest("two"))
    assert "service#app refreshed" in done.stdout, done.stdout
    wait_until(lambda: has_read("two"), "it has read again", 30, debian.say)
    assert process() == first
    assert "service#app stable" in apply(debian, manifest("two")).stdout
    assert "service#app refreshed" in apply(debian, manifest("three", "Environment=A=b")).stdout
    assert process() != first, "a restart is enough for both"
    second = process()
    kill = {
        "exec": [
            {"kill -9 $PPID": {"provider": "shell", "onlyif": "test ! -e /root/once && touch /root/once"}}
        ]
    }
    killed = manifest("four", "Environment=A=b")
    killed["resources"].insert(1, kill)
    assert apply(debian, killed).returncode == -9
    assert "service#app refreshed" in apply(debian, manifest("four", "Environment=A=b")).stdout
    wait_until(lambda: has_read("four"), "it has read what the killed run wrote", 30, debian.say)
    assert process() == second
    plain = {"resources": [{"file": [{"/etc/x": {"content": "", **ROOTS}}]},
                           {"service": [{"getty@tty9": {"reload": ["file#/etc/x"]}}]}]}  # fmt: skip
    for options in (("--noop",), ()):
        assert "getty@tty9.service cannot reload (CanReload=no)" in apply(debian, plain, *options).stdout


def test_only_masks_of_puller_are_removed(debian: Machine) -> None:
    write_units(debian, simulator.FILES)
    debian.run("systemctl", "enable", "--now", "plain")

    def manifest(name: str, **desired: Any) -> dict[str, Any]:
        return {"resources": [{"service": [{name: desired}]}]}

    masked = {"ensure": "stopped", "enable": "masked"}
    for name in ("plain", "later"):
        assert f"service#{name} changed" in apply(debian, manifest(name, **masked)).stdout
        assert f"service#{name} stable" in apply(debian, manifest(name, **masked)).stdout
        assert show(debian, name)["UnitFileState"] == "masked"
    write_units(debian, {"later.service": simulator.SLEEP + simulator.INSTALL})
    for name in ("plain", "later"):
        desired = manifest(name, ensure="running", enable=True)
        assert 'noop="Would have unmasked, would have started' in apply(debian, desired, "--noop").stdout
        done = apply(debian, desired)
        assert f"service#{name} changed" in done.stdout, done.stdout
        assert f"service#{name} stable" in apply(debian, desired).stdout
        result = show(debian, name)
        assert (result["ActiveState"], result["UnitFileState"]) == ("active", "enabled")
    debian.run("systemctl", "stop", "plain")
    debian.run("systemctl", "mask", "plain")
    for desired in ({"enable": True}, {"ensure": "stopped", "enable": False}):
        done = apply(debian, manifest("plain", **desired))
        assert "plain.service is masked; to allow it: systemctl unmask plain.service" in done.stdout
    (debian.root / UNITS / "own.service").write_text(simulator.SLEEP)
    for options in (("--noop",), ()):
        done = apply(debian, manifest("own", **masked), *options)
        assert f"/{UNITS}/own.service occupies the place of the mask link" in done.stdout


def test_services_of_a_user_are_managed_by_that_user(debian: Machine) -> None:
    debian.run("apt-get", "update", "-q")
    debian.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "libpam-systemd")
    debian.run("useradd", "--create-home", "--uid", "1234", "app")
    units = "/home/app/.config/systemd/user"
    owned = {"owner": "app", "group": "app"}
    directories = ["/home/app/.config", "/home/app/.config/systemd", units]

    def manifest(text: str, **desired: Any) -> dict[str, Any]:
        made: list[dict[str, Any]] = [
            {path: {**owned, "ensure": "directory", "mode": "0755"}} for path in directories
        ]
        unit = {f"{units}/own.service": {**owned, "mode": "0644", "content": simulator.SLEEP + text}}
        service = {"scope": "user", "user": "app", "subscribe": [f"file#{units}/own.service"], **desired}
        return {"resources": [{"file": [*made, unit]}, {"service": [{"own": service}]}]}

    install = "[Install]\nWantedBy=default.target\n"
    enabled = manifest(install, enable=True)
    for options in (("--noop",), ()):
        assert "user app has no systemd" in apply(debian, enabled, *options).stdout
    linger = {"exec": [{"loginctl enable-linger app": {"creates": "/var/lib/systemd/linger/app"}}]}
    enabled["resources"].insert(0, linger)
    assert 'noop="Would have started, would have enabled"' in apply(debian, enabled, "--noop").stdout
    done = apply(debian, enabled)
    assert "service#own changed" in done.stdout, done.stdout
    assert "service#own stable" in apply(debian, enabled).stdout
    link = debian.root / units.lstrip("/") / "default.target.wants/own.service"
    assert link.lstat().st_uid == 1234
    changed = manifest("# 2\n" + install, enable=True)
    assert "service#own refreshed" in apply(debian, changed).stdout
    assert "service#own stable" in apply(debian, changed).stdout
    masked = {"resources": [{"service": [
        {"own2": {"scope": "user", "user": "app", "ensure": "stopped", "enable": "masked"}}]}]}  # fmt: skip
    assert "service#own2 changed" in apply(debian, masked).stdout
    assert "service#own2 stable" in apply(debian, masked).stdout
    assert (debian.root / units.lstrip("/") / "own2.service").readlink() == Path("/dev/null")
    stopped = manifest("# 2\n" + install, ensure="stopped", enable=False)
    assert "service#own changed" in apply(debian, stopped).stdout
    assert not link.is_symlink()


SETTING = "[Service]\nEnvironment=SETTING=1\n"
WITH_SETTING = SETTING + simulator.SLEEP.partition("\n")[2]
WRITTEN = {
    "first": (f"/{UNITS}/first.service.d/first.conf", SETTING),
    "another": (f"/{UNITS}/another.service.d/second.conf", SETTING),
    "instance@one": (f"/{UNITS}/instance@.service.d/first.conf", SETTING),
    "of-a-prefix": (f"/{UNITS}/of-a-.service.d/first.conf", SETTING),
    "replaced": (f"/{UNITS}/replaced.service", WITH_SETTING),
    "changed": (f"/{OF_PACKAGES}/changed.service", WITH_SETTING),
}
"""Files that systemd has to reload before a service restarts. systemd 252 overlooks most of them."""


def start_without_setting(machine: Machine) -> None:
    names = [re.sub("@.*", "@", name) for name in WRITTEN]
    write_units(machine, {f"{name}.service": simulator.SLEEP for name in names})
    before = machine.root / UNITS / "another.service.d/first.conf"
    before.parent.mkdir()
    before.write_text("[Service]\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", *WRITTEN)


def with_setting(machine: Machine) -> list[str]:
    """Return the services whose process has the setting."""
    pids = {name: machine.show(name, "MainPID")["MainPID"] for name in WRITTEN}
    environments = {name: machine.run("cat", f"/proc/{pid}/environ").stdout for name, pid in pids.items()}
    return [name for name, text in environments.items() if "SETTING=1" in text]


def writing(how: Callable[[str, str], dict[str, Any]]) -> dict[str, Any]:
    """Return a manifest in which each service subscribes to its written files."""
    directories: list[dict[str, Any]] = []
    writes, services = [], []
    for name, (path, text) in WRITTEN.items():
        directories.append({str(Path(path).parent): {"ensure": "directory", **ROOTS, "mode": "0755"}})
        writes.append(how(path, text))
        ((kind, _),) = writes[-1].items()
        services.append({name: {"subscribe": [f"{kind}#{path}"]}})
    unique = list({next(iter(item)): item for item in directories}.values())
    return {"resources": [{"file": unique}, *({kind: [body]} for item in writes for kind, body in item.items()),
                          {"service": services}]}  # fmt: skip


ROOTS = {"owner": "root", "group": "root", "mode": "0644"}


def test_unit_files_are_effective_after_the_run(debian: Machine) -> None:
    start_without_setting(debian)
    manifest = writing(lambda path, text: {"file": {path: {"content": text, **ROOTS}}})
    done = apply(debian, manifest)
    assert with_setting(debian) == list(WRITTEN), done.stdout
    assert "6 refreshed" in done.stdout
    again = apply(debian, manifest)
    assert "0 changed" in again.stdout
    assert "refreshed" not in again.stdout


def test_unit_files_with_old_times_are_effective(
    debian: Machine,
) -> None:
    start_without_setting(debian)

    def copy(path: str, text: str) -> dict[str, Any]:
        (debian.root / f"root/{Path(path).name}").write_text(text)
        script = (
            f"cp /root/{Path(path).name} {path}.new && touch -d 2001-01-01 {path}.new && mv {path}.new {path}"
        )
        unless = f"grep -q SETTING {path}"
        return {"exec": {path: {"command": script, "provider": "shell", "unless": unless}}}

    done = apply(debian, writing(copy))
    assert with_setting(debian) == list(WRITTEN), done.stdout
    dropins = [path for path, _ in WRITTEN.values() if path.startswith("/etc")]
    removed = {path: {"ensure": "absent"} for path in dropins}
    services = [
        {name: {"subscribe": [f"file#{path}"]}} for name, (path, _) in WRITTEN.items() if path in dropins
    ]
    apply(
        debian,
        {"resources": [{"file": [{path: body} for path, body in removed.items()]}, {"service": services}]},
    )
    assert with_setting(debian) == ["changed"]


def test_unit_files_of_a_killed_run_become_effective(debian: Machine) -> None:
    start_without_setting(debian)
    manifest = writing(lambda path, text: {"file": {path: {"content": text, **ROOTS}}})
    kill = {
        "exec": [
            {"kill -9 $PPID": {"provider": "shell", "onlyif": "test ! -e /root/once && touch /root/once"}}
        ]
    }
    manifest["resources"].insert(-1, kill)
    assert apply(debian, manifest).returncode == -9
    assert with_setting(debian) == []
    done = apply(debian, manifest)
    assert with_setting(debian) == list(WRITTEN), done.stdout


def test_simulated_systemd_misses_the_same_changes(debian: Machine) -> None:
    """systemd overlooks a new directory of drop-ins, but no new file in a known one. systemd 257 sees both."""
    imitation = simulator.SimulatedSystemd()
    write_units(debian, simulator.FILES)
    for run in (
        lambda *words: debian.run("systemctl", *words),
        lambda *words: imitation._run(["systemctl", *words]),
    ):
        run("start", "plain")
    for name in ("first", "second"):
        path = debian.root / UNITS / f"plain.service.d/{name}.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SETTING)
        imitation.files[f"plain.service.d/{name}.conf"] = SETTING
        imitated = "yes" if imitation.unit("plain").needs_reload else "no"
        assert show(debian, "plain")["NeedDaemonReload"] == imitated == {"first": "no", "second": "yes"}[name]
        debian.run("systemctl", "daemon-reload")
        imitation._run(["systemctl", "daemon-reload"])


def test_in_noop_a_unit_file_of_the_same_manifest_is_believed_in(debian: Machine) -> None:
    common = {"owner": "root", "group": "root", "mode": "0644"}
    file = {f"/{UNITS}/app.service": {**common, "content": simulator.SLEEP + simulator.INSTALL}}
    manifest = {"resources": [{"file": [file]}, {"service": [{"app": {"enable": True}}]}]}
    assert 'noop="Would have started, would have enabled"' in apply(debian, manifest, "--noop").stdout
    alone: dict[str, Any] = {"resources": [{"service": [{"app": {}}]}]}
    for options in (("--noop",), ()):
        assert "unknown unit app.service" in apply(debian, alone, *options).stdout
    stopped = {"resources": [{"service": [{"app": {"ensure": "stopped", "enable": False}}]}]}
    for options in (("--noop",), ()):
        assert "service#app stable" in apply(debian, stopped, *options).stdout


def test_a_failure_carries_the_last_lines_of_the_journal(debian: Machine) -> None:
    write_units(debian, simulator.FILES)
    done = apply(debian, {"resources": [{"service": [{"fails": {}}]}]})
    assert done.returncode == 4
    assert "systemctl start fails.service: exit code 1; it said: Job for fails.service failed" in done.stdout
    assert "Its journal:" in done.stdout
    assert "it is broken" in done.stdout


def test_init_script_without_start_links_is_disabled(debian: Machine) -> None:
    script = debian.root / "etc/init.d/old"
    header = "# Provides: old\n# Default-Start: 2 3 4 5\n# Default-Stop: 0 1 6\n"
    script.write_text(f"#!/bin/sh\n### BEGIN INIT INFO\n{header}### END INIT INFO\n")
    script.chmod(0o755)
    debian.run("systemctl", "daemon-reload")
    done = apply(debian, {"resources": [{"service": [{"old": {"ensure": "stopped", "enable": False}}]}]})
    assert "service#old stable" in done.stdout


def test_a_service_that_is_starting_is_waited_for(debian: Machine, wait_until: Callable[..., None]) -> None:
    slow = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 3\n"
    write_units(debian, {"slow.service": slow})
    debian.run("systemctl", "start", "--no-block", "slow")
    wait_until(lambda: show(debian, "slow")["ActiveState"] == "activating", "the job begins", 30)
    assert "service#slow stable" in apply(debian, {"resources": [{"service": [{"slow": {}}]}]}).stdout


def test_restarts_may_exceed_the_start_limit(debian: Machine) -> None:
    write_units(debian, {"often.service": simulator.SLEEP + simulator.INSTALL})
    for number in range(simulator.START_LIMIT + 2):
        content = {"content": f"{number}\n", "owner": "root", "group": "root", "mode": "0644"}
        service = {"often": {"ensure": "running", "subscribe": ["file#/etc/often"]}}
        manifest = {"resources": [{"file": [{"/etc/often": content}]}, {"service": [service]}]}
        done = apply(debian, manifest)
        assert done.returncode == 0, done.stdout
        assert show(debian, "often")["SubState"] == "running"


def test_hundred_matching_services_cost_a_process(debian: Machine) -> None:
    names = [f"app{number}" for number in range(100)]
    write_units(debian, {f"{name}.service": simulator.SLEEP for name in names})
    counting = debian.root / "usr/local/bin/systemctl"
    counting.write_text('#!/bin/sh\necho "$2" >>/root/asked\nexec /bin/systemctl "$@"\n')
    counting.chmod(0o755)
    manifest = {"resources": [{"service": [{name: {"ensure": "stopped"}} for name in names]}]}
    assert "100 stable" in apply(debian, manifest).stdout
    assert (debian.root / "root/asked").read_text() == "show\nshow\n", (
        "at first also when it has read its files"
    )
    assert "100 stable" in apply(debian, manifest).stdout
    assert (debian.root / "root/asked").read_text() == "show\n" * 3


# Services that start at boot and keep running

AT_BOOT = {
    "runtime.service": simulator.SLEEP + simulator.INSTALL,
    "socketed.service": simulator.SLEEP + "[Install]\nAlso=socketed.socket\n",
    "socketed.socket": "[Socket]\nListenStream=/run/socketed.sock\n[Install]\nWantedBy=sockets.target\n",
    "wanted.service": simulator.SLEEP,
    "wanting.service": "[Unit]\nWants=wanted.service\n" + simulator.SLEEP + simulator.INSTALL,
    "rescued.service": simulator.SLEEP + "[Install]\nWantedBy=rescue.target\n",
}
INIT_SCRIPT = """\
#!/bin/sh
### BEGIN INIT INFO
# Provides: script
# Required-Start:
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
### END INIT INFO
exit 0
"""


def services(ensure: str, enable: bool, *names: str) -> dict[str, Any]:
    return {
        "resources": [
            {"service": [{name: {"alias": name, "ensure": ensure, "enable": enable}} for name in names]}
        ]
    }


def test_enabled_services_start_at_boot_or_fail(debian: Machine) -> None:
    write_units(debian, AT_BOOT)
    script = debian.root / "etc/init.d/script"
    script.parent.mkdir(exist_ok=True)
    script.write_text(INIT_SCRIPT)
    script.chmod(0o755)
    debian.run("systemctl", "daemon-reload")
    debian.run("systemctl", "enable", "--runtime", "runtime")
    enabled = services("stopped", True, "runtime", "socketed", "script", "wanted", "rescued")
    failed = {"wanted": "failed", "rescued": "failed"}
    would = {"runtime": "would change", "socketed": "would change", "script": "would change"}
    assert outcomes(apply(debian, enabled, "--noop")) == would | failed
    assert outcomes(apply(debian, enabled)) == dict.fromkeys(would, "changed") | failed
    assert outcomes(apply(debian, enabled)) == dict.fromkeys(would, "stable") | failed
    debian.run("systemctl", "enable", "wanting")
    assert outcomes(apply(debian, services("stopped", True, "wanted"))) == {"wanted": "stable"}
    assert show(debian, "runtime")["UnitFileState"] == "enabled"
    assert show(debian, "socketed")["TriggeredBy"] == "socketed.socket"
    assert len(list((debian.root / "etc").glob("rc[2345].d/S??script"))) == 4
    disabled = services("stopped", False, "runtime", "script")
    assert set(outcomes(apply(debian, disabled)).values()) == {"changed"}
    assert set(outcomes(apply(debian, disabled)).values()) == {"stable"}


def test_changed_install_section_is_applied(debian: Machine) -> None:
    def apply_with(target: str) -> dict[str, str]:
        write_units(debian, {"moved.service": f"{simulator.SLEEP}[Install]\nWantedBy={target}\n"})
        return outcomes(apply(debian, services("stopped", True, "moved")))

    for target in (
        "multi-user.target",
        "multi-user.target sockets.target",
        "sockets.target",
        "multi-user.target",
    ):
        assert apply_with(target) == {"moved": "changed"}
        assert apply_with(target) == {"moved": "stable"}
        assert sorted(show(debian, "moved")["WantedBy"].split()) == sorted(target.split())


@pytest.mark.parametrize("life", ["0", "1"])
def test_service_that_ends_again_and_again_fails(debian: Machine, life: str) -> None:
    loop = f"[Service]\nExecStart=/bin/sh -c 'sleep {life}; echo no database; exit 3'\nRestart=always\nRestartSec=1\n"
    write_units(debian, {"loop.service": loop})
    manifest = {"resources": [{"service": [{"loop": {"alias": "loop"}}]}]}
    for _ in range(3):
        done = apply(debian, manifest)
        assert outcomes(done) == {"loop": "failed"}
        assert "its process has ended with exit code 3, and systemd restarts it" in done.stdout
        assert "no database" in done.stdout
    write_units(debian, {"loop.service": simulator.SLEEP})
    debian.run("systemctl", "restart", "loop")
    assert outcomes(apply(debian, manifest)) == {"loop": "stable"}
