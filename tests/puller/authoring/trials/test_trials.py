"""Trials: a bundle is applied twice on a tree, which stays unchanged. No ending of a trial leaves anything behind."""

import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from puller.authoring.cases.trial import Trial, TrialOutcome, run_trial
from puller.errors import UsageError
from puller.facts.given_facts import facts_of
from puller.reporting.report import State
from tests.support.machines import mounts

pytestmark = pytest.mark.root

BUNDLE = """\
data: {workers: 8}
resources:
  - file:
      - /etc/app: {ensure: directory, owner: root, group: root, mode: "0755"}
      - /etc/app/app.conf: {template: app.conf.j2, owner: root, group: root, mode: "0644"}
      - /etc/app/tool: {source: files/tool, owner: root, group: root, mode: "0755"}
      - /etc/cron.d/app: {content: "0 3 * * * root /etc/app/tool\\n", owner: root, group: root, mode: "0644"}
  - link:
      - /etc/app/link: {target: app.conf}
  - line:
      - app: {path: /etc/hosts, line: "192.0.2.1 app.example.com"}
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    directory = tmp_path / "web"
    (directory / "files").mkdir(parents=True)
    (directory / "files" / "tool").write_text("tool\n")
    (directory / "app.conf.j2").write_text("workers = {{ data.workers }} on {{ facts.os.name }}\n")
    (directory / "manifest.yaml").write_text(BUNDLE)
    return directory


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A minimal system: release file, accounts, a directory for cron, and a few programs."""
    root = tmp_path / "tree, with: marks"
    for directory in ("etc/cron.d", "usr/bin", "var/lib", "tmp", "mnt"):
        (root / directory).mkdir(parents=True)
    for name in ("bin", "lib64"):
        (root / "usr" / name).mkdir(exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc/os-release").write_text("ID=debian\n")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    for program in ("sh", "sleep", "cat", "date"):
        install(program, root)
    return root


def install(program: str, root: Path) -> None:
    """Copy a program of this machine, with its linked libraries."""
    path = shutil.which(program)
    assert path
    shutil.copy(path, root / "usr/bin" / program)
    linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+) \(0x", linked):
        target = Path(f"{root}{library}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def trial_of(bundle: Path, tree: Path) -> Trial:
    return Trial(
        tree=str(tree),
        manifests=((str(bundle / "manifest.yaml"), "web/manifest.yaml"),),
        facts=facts_of("debian-12"),
    )


def commanded(bundle: Path, *commands: str) -> None:
    """Write a bundle that runs shell commands."""
    lines = ["resources:", "  - exec:"]
    for command in commands:
        lines += [f"      - {msgspec.json.encode(command).decode()}:", "          provider: shell"]
    (bundle / "manifest.yaml").write_text("\n".join(lines) + "\n")


def states(outcome: TrialOutcome) -> list[set[State]]:
    return [{event.state for event in events} for events in (outcome.first, outcome.second)]


def contents(root: Path) -> dict[str, tuple[int, float, bytes]]:
    """Return all files of a tree, with modes and times."""
    result = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        is_file = path.is_file() and not path.is_symlink()
        data = path.read_bytes() if is_file else os.readlink(path).encode() if path.is_symlink() else b""
        result[str(path)] = (status.st_mode, status.st_mtime, data)
    return result


def test_a_bundle_is_applied_and_is_stable_the_second_time(bundle: Path, tree: Path) -> None:
    outcome = run_trial(trial_of(bundle, tree))

    assert outcome.failures == []
    assert states(outcome) == [{State.CHANGED}, {State.STABLE}]
    assert [event.reference for event in outcome.first] == [event.reference for event in outcome.second]


OF_THE_MACHINE = """\
resources:
  - hostname: [web02: {hosts: true}]
  - host_entry: [db: {address: 192.0.2.10}]
  - timezone: [Europe/Berlin]
  - locale: [C.UTF-8: {variables: [LANG]}]
  - swap: [/swapfile: {size: 1M, active: false}]
  - alternative: [editor: {path: /usr/bin/cat, link: /usr/bin/editor, priority: 5}]
  - diversion: [/usr/bin/date: {}]
  - file: [/etc/joined: {fragments: true, owner: root, group: root, mode: "0644"}]
  - fragment: [one: {path: /etc/joined, content: one}]
  - unit: [app.service: {content: "[Service]\\nExecStart=/usr/bin/cat\\n", verify: false}]
"""


def test_types_of_the_machine_are_tried(bundle: Path, tree: Path) -> None:
    for program in ("locale", "update-alternatives", "dpkg-divert"):
        install(program, tree)
    for directory in (
        "usr/share/zoneinfo/Europe",
        "var/lib/dpkg/alternatives",
        "etc/alternatives",
        "var/log",
    ):
        (tree / directory).mkdir(parents=True)
    (tree / "usr/share/zoneinfo/Europe/Berlin").write_bytes(b"TZif2" + bytes(40))
    (tree / "etc/debian_version").write_text("12.0\n")
    (tree / "var/lib/dpkg/status").touch()
    (bundle / "manifest.yaml").write_text(OF_THE_MACHINE)
    before, name, swaps = contents(tree), os.uname().nodename, Path("/proc/swaps").read_text()
    outcome = run_trial(trial_of(bundle, tree))
    assert outcome.failures == []
    assert states(outcome)[1] == {State.STABLE}
    stable = [event.reference for event in outcome.first if event.state is State.STABLE]
    assert stable == ["fragment#one"]
    assert (contents(tree), os.uname().nodename, Path("/proc/swaps").read_text()) == (before, name, swaps)


def test_nothing_of_the_tree_and_of_this_machine_is_changed(bundle: Path, tree: Path) -> None:
    def state() -> tuple[object, ...]:
        machine = sorted(os.listdir("/")), sorted(os.listdir("/etc"))
        return contents(tree), contents(bundle), mounts(bundle.parent), *machine

    before = state()
    assert run_trial(trial_of(bundle, tree)).failures == []
    assert state() == before


@pytest.mark.everything
def test_written_files_exist_for_later_commands(bundle: Path, tree: Path) -> None:
    with (bundle / "manifest.yaml").open("a") as manifest:
        manifest.write(
            "  - exec:\n"
            '      - \'[ "$(cat /etc/app/link)" = "workers = 8 on Debian" ] && echo yes > /etc/app/done\':\n'
            "          provider: shell\n"
            "          creates: /etc/app/done\n"
            "          require: [link#/etc/app/link]\n"
        )
    assert run_trial(trial_of(bundle, tree)).failures == []


@pytest.mark.everything
def test_change_in_the_second_run_is_a_failure(bundle: Path, tree: Path) -> None:
    commanded(bundle, "cat /etc/hosts")

    (failure,) = run_trial(trial_of(bundle, tree)).failures
    assert failure.startswith("exec#cat /etc/hosts: changes again when it is applied a second time")


@pytest.mark.everything
def test_failed_apply_is_not_repeated(bundle: Path, tree: Path) -> None:
    commanded(bundle, "cat /no/such/file")
    outcome = run_trial(trial_of(bundle, tree))

    assert "exec#cat /no/such/file: cannot be applied" in outcome.failures[0]
    assert outcome.second == ()


def test_refused_manifest_is_a_single_failure(bundle: Path, tree: Path) -> None:
    (bundle / "manifest.yaml").write_text("resources: [{fle: [/etc/x: {}]}]\n")

    (failure,) = run_trial(trial_of(bundle, tree)).failures
    assert "web/manifest.yaml:1" in failure


@pytest.mark.parametrize(
    "command",
    [
        "echo 1 > /proc/sys/vm/overcommit_memory",
        "echo 1 > /sys/kernel/mm/ksm/run",
        "date --set 2030-01-01",
        "echo x > {bundle}/manifest.yaml",
        "echo x > /dev/tcp-not-here/x",
        "cat {outside}",
    ],
)
@pytest.mark.representatives(1)
@pytest.mark.sample(2)
def test_kernel_and_outside_files_are_inaccessible(
    bundle: Path, tree: Path, tmp_path: Path, command: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("of this machine")
    commanded(bundle, command.format(bundle=bundle, outside=outside))

    assert "cannot be applied" in run_trial(trial_of(bundle, tree)).failures[0]
    assert outside.read_text() == "of this machine"


SAME = "read v < {0}; echo $v > {0}"
"""Writes a setting's current value: if a trial fails to block it, the test machine keeps its setting."""


@pytest.mark.parametrize(
    "command",
    [
        "mount -o remount,bind,rw /proc/sys && " + SAME.format("/proc/sys/vm/overcommit_memory"),
        "mount -o remount,rw /proc/sys && " + SAME.format("/proc/sys/vm/overcommit_memory"),
        "umount /proc/sys && " + SAME.format("/proc/sys/vm/overcommit_memory"),
        "mount --rbind /proc /mnt && umount /mnt/sys && " + SAME.format("/mnt/sys/vm/overcommit_memory"),
        "mount -t proc proc /mnt && " + SAME.format("/mnt/sys/vm/overcommit_memory"),
        "mount -t sysfs sysfs /mnt && : > /mnt/power/state",
        "mount -o remount,bind,rw /sys && : > /sys/power/state",
        "unshare --cgroup mount -t cgroup2 cgroup2 /mnt",
        "unshare --user --map-root-user --mount mount -o remount,bind,rw /proc/sys",
        "mount -t devtmpfs devtmpfs /mnt",
        "mount -t debugfs debugfs /mnt",
        "umount /dev",
        "mount -o remount,bind,rw {bundle} && echo x > {bundle}/manifest.yaml",
        ": > /proc/sysrq-trigger",
        "cat < /proc/kmsg",
        ": > /proc/irq/default_smp_affinity",
        "umount /proc/irq && : > /proc/irq/default_smp_affinity",
        "cat /proc/1/root/etc/hosts",
        "cat /proc/1/environ",
        "echo forged > /proc/1/fd/2",
    ],
)
@pytest.mark.representatives(1)
@pytest.mark.sample(3)
def test_mounting_command_reaches_no_device_or_setting(bundle: Path, tree: Path, command: str) -> None:
    for program in ("mount", "umount", "unshare"):
        install(program, tree)
    commanded(bundle, command.format(bundle=bundle))
    before = (bundle / "manifest.yaml").read_bytes()

    assert "cannot be applied" in run_trial(trial_of(bundle, tree)).failures[0]
    assert (bundle / "manifest.yaml").read_bytes() == before


@pytest.mark.everything
@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt && echo a > /mnt/a",
        "mount --bind /etc /mnt && cat /mnt/hosts",
        "chown 4000000:65533 /etc/hosts && chmod 4755 /etc/hosts",
        "mount -t tmpfs -o mode=0700 none /mnt && umount /mnt",
        "hostname other && test $(hostname) = other",
        "setpriv --reuid 33 --regid 33 --init-groups --reset-env sh -c 'test $(id -u) = 33'",
    ],
)
@pytest.mark.representatives(3)
@pytest.mark.sample(2)
def test_command_in_a_trial_has_roots_file_privileges(bundle: Path, tree: Path, command: str) -> None:
    for program in ("mount", "umount", "chown", "chmod", "hostname", "setpriv", "id"):
        install(program, tree)
    with (tree / "etc/passwd").open("a") as accounts:
        accounts.write("www-data:x:33:33::/:/bin/sh\n")
    commanded(bundle, command)
    name = socket.gethostname()

    assert not any("cannot be applied" in failure for failure in run_trial(trial_of(bundle, tree)).failures)
    assert socket.gethostname() == name


@pytest.mark.everything
def test_nodes_of_devices_in_the_tree_are_no_devices(bundle: Path, tree: Path) -> None:
    os.mknod(tree / "etc/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    commanded(bundle, ": < /etc/zero")

    assert "cannot be applied" in run_trial(trial_of(bundle, tree)).failures[0]


@pytest.mark.everything
def test_a_machine_that_allows_no_user_namespace_is_told_to(bundle: Path, tree: Path) -> None:
    container = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc")
    limited = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'  # the container's limit
    done = subprocess.run(
        [*container, "sh", "-c", limited, "sh", *command_of(trial_of(bundle, tree))],
        capture_output=True,
        check=True,
    )

    assert msgspec.json.decode(done.stdout, type=TrialOutcome).failures == [
        "unshare: cannot create a private root on this machine: No space left on device: "
        "user.max_user_namespaces is too low"
    ]


def test_there_is_no_network(bundle: Path, tree: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a"
        (bundle / "manifest.yaml").write_text(
            f'resources: [{{file: [{{/etc/a: {{source: "{url}", checksum: "{"0" * 64}", owner: root, group: root, '
            'mode: "0644"}}]}]\n'
        )
        failures = run_trial(trial_of(bundle, tree)).failures
    assert "a trial has no network" in failures[0]


def test_no_secret_of_the_bundle_is_in_the_outcome(bundle: Path, tree: Path) -> None:
    (bundle / "manifest.yaml").write_text(
        "data: {password: c4n4ry}\n"
        "resources:\n"
        '  - file: [{/etc/a: {content: "{{ data.password }}", owner: root, group: root, mode: "0600", '
        "sensitive: true}}]\n"
    )
    outcome = run_trial(trial_of(bundle, tree))

    assert outcome.failures == []
    assert b"c4n4ry" not in msgspec.json.encode(outcome)


@pytest.mark.everything
@pytest.mark.parametrize("printed", ["$PW", "{{ data.password }}", "{{ data.password | b64encode }}"])
@pytest.mark.representatives(1)
def test_secret_output_of_a_failing_command_is_masked(bundle: Path, tree: Path, printed: str) -> None:
    (bundle / "manifest.yaml").write_text(
        "data:\n  # @sensitive\n  password: c4n4ry\n"
        "resources:\n  - exec:\n      - tell:\n"
        f'          command: "echo {printed}; echo {printed} >&2; exit 3"\n'
        "          provider: shell\n"
        '          environment: ["PW={{ data.password }}"]\n'
    )
    outcome = run_trial(trial_of(bundle, tree))

    assert "exec#tell: cannot be applied" in outcome.failures[0]
    assert b"c4n4ry" not in msgspec.json.encode(outcome)
    assert b"YzRuNHJ5" not in msgspec.json.encode(outcome)


def test_a_trial_that_takes_too_long_is_ended(bundle: Path, tree: Path) -> None:
    commanded(bundle, "sleep 600")

    assert run_trial(trial_of(bundle, tree), limit=3).failures == [
        "exceeded the limit of 3 seconds and was stopped"
    ]


def command_of(trial: Trial) -> list[str]:
    """Return a command line that makes a trial and prints its outcome."""
    code = (
        "import sys, msgspec\n"
        "from puller.authoring.cases.trial import Trial\n"
        "from puller.authoring.cases.trial import run_trial\n"
        "outcome = run_trial(msgspec.json.decode(sys.argv[1], type=Trial))\n"
        "sys.stdout.buffer.write(msgspec.json.encode(outcome))\n"
    )
    return [sys.executable, "-c", code, msgspec.json.encode(trial).decode()]


@pytest.fixture
def long_trial(bundle: Path, tree: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a trial that would take an hour. Return its process and the id of the bundle's command."""
    mark = f"3600.{os.getpid()}{os.urandom(3).hex()}".translate(str.maketrans("abcdef", "012345"))
    commanded(bundle, f"sleep {mark}")
    process = subprocess.Popen(command_of(trial_of(bundle, tree)))
    with process:
        yield process, find_process(f"sleep\0{mark}\0", process)
        process.kill()


def find_process(command: str, beside: subprocess.Popen[bytes]) -> int:
    """Wait for a process with this command line and return its id."""
    while beside.poll() is None:
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                if Path(f"/proc/{number}/cmdline").read_text() == command:
                    return int(number)
            except (OSError, UnicodeDecodeError):  # the process has ended meanwhile
                continue
    raise AssertionError("the trial has ended")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_nothing_outlasts_the_process_that_makes_a_trial(
    long_trial: tuple[subprocess.Popen[bytes], int], number: signal.Signals
) -> None:
    process, command = long_trial
    descriptor = os.pidfd_open(command)
    namespace = os.readlink(f"/proc/{command}/ns/mnt")
    assert namespace != os.readlink("/proc/self/ns/mnt")
    process.send_signal(number)

    assert select.select([descriptor], [], [], 60)[0], "the command has not ended"
    os.close(descriptor)
    process.wait(60)
    assert not [line for line in mounts() if "puller-trial" in line]


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        (
            "/no/such/tree",
            "/no/such/tree: is not a directory, expected the tree of an installed system for --apply",
        ),
        (
            "/proc/self/fd",
            "/proc/self/fd: etc/os-release is missing, expected the tree of an installed system for --apply",
        ),
        ("/", "/: is the root of this machine, expected the tree of another system for --apply"),
    ],
)
def test_invalid_tree_is_refused(bundle: Path, tree: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_trial(trial_of(bundle, Path(tree)))
    assert str(caught.value) == sentence
