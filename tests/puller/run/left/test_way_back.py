"""Rollback of a bundle that fails its trial: all its changes are undone."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.system import commands, trusted_files
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from tests.simulators.locales import make_locales, redirect_locales
from tests.simulators.mounts import FIRST, MountingSystem
from tests.simulators.swaps import SwappingSystem
from tests.support.stories import Host, Publisher

TOP = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "Hello from VERSION\\n"}
      - "{{ facts.machine }}/health":
          content: "CODE\\n"
          health_checks: [{name: app, command: "sh -c 'exit $(cat {{ facts.machine }}/health)'"}]
"""
ANYTHING = """\
      - "{{ facts.machine }}/new": {ensure: directory, mode: "0700"}
      - "{{ facts.machine }}/new/file": {content: "new\\n"}
      - "{{ facts.machine }}/theirs": {content: "ours\\n", mode: "0600"}
      - "{{ facts.machine }}/link": {content: "no link\\n"}
      - "{{ facts.machine }}/gone": {ensure: absent}
      - "{{ facts.machine }}/tree": {ensure: absent, force: true}
      - "{{ facts.machine }}/attributes": {ensure: exists, mode: "0600"}
  - scaffold: [{"{{ facts.machine }}/deep/pages": {source: pages}}]
"""
PAGES = {"pages/a": b"a\n", "pages/sub/b": b"b\n"}


def story(code: int, *parts: str) -> str:
    """Return a manifest with ``parts`` and a check that exits with ``code``."""
    return TOP.replace("CODE", str(code)) + "".join(parts)


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return kind, mode and content of all objects below a directory."""
    result = {}
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        content = os.readlink(path).encode() if stat.S_ISLNK(mode) else b""
        result[str(path.relative_to(root))] = (mode, path.read_bytes() if stat.S_ISREG(mode) else content)
    return result


@pytest.fixture
def settled(host: Host, publisher: Publisher) -> Host:
    """Return a host on which 1.0.0 has passed, with unmanaged files."""
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    machine = host.machine
    for name in ("theirs", "gone", "attributes"):
        (machine / name).write_text(f"{name}, by hand\n")
        (machine / name).chmod(0o640)
    os.setxattr(machine / "theirs", "user.note", b"by hand")
    (machine / "link").symlink_to("theirs")
    (machine / "tree/below").mkdir(parents=True, mode=0o711)
    (machine / "tree/below/file").write_text("in a tree\n")
    (machine / "tree/link").symlink_to("nowhere")
    return host


def copies(host: Host) -> list[str]:
    """Return the files that Puller stores for trials."""
    return [str(path) for path in (host.state / "trials").rglob("*") if not path.is_dir()]


def test_all_that_it_made_and_changed_is_as_it_was(settled: Host, publisher: Publisher) -> None:
    before = tree(settled.machine)
    publisher.publish("2.0.0", story(2, ANYTHING), files=PAGES)
    outcome = settled.run()
    assert outcome.status == 7, outcome.output
    assert tree(settled.machine) == before
    assert os.getxattr(settled.machine / "theirs", "user.note") == b"by hand"
    assert settled.enforced == "1.0.0"
    assert copies(settled) == []
    assert settled.status()["bundles"][0].get("left_behind") is None
    assert settled.run().status == 20
    assert tree(settled.machine) == before
    assert set(settled.states().values()) == {"stable"}


def test_undone_changes_are_in_the_report(settled: Host, publisher: Publisher) -> None:
    publisher.publish("2.0.0", story(2, ANYTHING), files=PAGES)
    settled.run()
    states = settled.states()
    assert states["file#new/file"] == states["file#theirs"] == states["file#deep"] == "changed"


def test_a_bundle_that_passes_needs_no_way_back(settled: Host, publisher: Publisher) -> None:
    publisher.publish("2.0.0", story(0, ANYTHING), files=PAGES)
    assert settled.run().status == 0
    assert copies(settled) == []
    assert (settled.machine / "theirs").read_text() == "ours\n"


def test_while_it_is_on_trial_the_copies_are_private(settled: Host, publisher: Publisher) -> None:
    failing = '  - exec: [{"false": {}}]\n'
    publisher.publish("2.0.0", story(0, ANYTHING, failing), files=PAGES)
    assert settled.run().status == 6
    assert copies(settled)
    for path in (settled.state / "trials").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_next_version_undoes_a_trial_and_removes_on_success(settled: Host, publisher: Publisher) -> None:
    before = tree(settled.machine)
    publisher.publish("2.0.0", story(0, ANYTHING, '  - exec: [{"false": {}}]\n'), files=PAGES)
    assert settled.run().status == 6
    theirs = '      - "{{ facts.machine }}/theirs": {content: "3.0.0\\n", mode: "0600"}\n'
    publisher.publish("3.0.0", story(0, theirs, '  - exec: [{"false": {}}]\n'))
    assert settled.run().status == 6
    now = tree(settled.machine)
    assert {name for name in before if now.get(name) != before[name]} == {"motd", "theirs"}
    # Because a resource has failed, objects that may be in use stay.
    made = {"new", "new/file", "deep", "deep/pages", "deep/pages/a", "deep/pages/sub", "deep/pages/sub/b"}
    assert now.keys() - before.keys() == made
    publisher.publish("4.0.0", story(0, theirs))
    assert settled.run().status == 0
    assert tree(settled.machine).keys() == before.keys()
    assert copies(settled) == []


def test_irreversible_change_is_listed(settled: Host, publisher: Publisher) -> None:
    migrate = (
        "  - exec: [{migrate: {command: 'true', unless: 'test -e {{ facts.machine }}/x', recheck: false}}]\n"
    )
    publisher.publish("2.0.0", story(2, migrate))
    outcome = settled.run()
    assert outcome.status == 7
    output = "exec#migrate was changed or run"
    assert output in outcome.output
    assert settled.report()["bundles"][0]["not_undone"] == [output]
    assert f"not undone: {output}" in settled.puller("quarantine", "list").output


@pytest.mark.everything
def test_object_too_large_to_keep_is_named_before_the_change(
    settled: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("puller.run.leftovers.observers.LARGEST", 10)
    publisher.publish("2.0.0", story(2, ANYTHING), files=PAGES)
    outcome = settled.run()
    assert f"{settled.machine}/theirs: has 16 bytes, and copies over 10 bytes are not kept" in outcome.output
    assert "cannot be undone: " in outcome.output
    assert not (settled.machine / "new").exists()


def test_content_unknown_to_the_last_good_bundle_is_restored(host: Host, publisher: Publisher) -> None:
    exists = '      - "{{ facts.machine }}/conf": {ensure: exists, mode: "0600"}\n'
    host.machine.mkdir()
    (host.machine / "conf").write_text("by hand\n")
    publisher.publish("1.0.0", story(0, exists))
    assert host.run().status == 0
    publisher.publish("2.0.0", story(2, exists.replace("ensure: exists", 'content: "2\\n"')))
    assert host.run().status == 7
    assert (host.machine / "conf").read_text() == "by hand\n"


def test_a_parameter_of_the_kernel_gets_its_value_back(
    host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Puller restores the value in the kernel's file, and does not replace the file."""
    monkeypatch.setattr(trusted_files, "PROC_SYS", str(tmp_path / "proc"))
    key, conf = tmp_path / "proc/vm/swappiness", tmp_path / "sysctl.conf"
    key.parent.mkdir(parents=True)
    key.write_text("60\n")
    conf.write_text("# by hand\n")
    inode = key.stat().st_ino
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    publisher.publish("2.0.0", story(2, f"  - sysctl: [{{vm.swappiness: {{value: 10, path: {conf}}}}}]\n"))
    assert host.run().status == 7
    assert key.read_text() == "60\n"
    assert key.stat().st_ino == inode
    assert conf.read_text() == "# by hand\n"


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return simulated mounts, with a file system mounted at ``mnt/old``."""
    system = MountingSystem(tmp_path)
    for constant, path in (("fstab.FSTAB", system.fstab), ("mount_table.MOUNTINFO", system.mountinfo)):
        monkeypatch.setattr(f"puller.resources.kernel.{constant}", str(path))
    monkeypatch.setattr("puller.resources.kernel.mount_changes.PROC", str(tmp_path / "mnt"))

    def execute(real: LocalSystem, command: Command) -> Completed:
        real.executed += 1
        done: Completed = system.execute(command)
        return done

    monkeypatch.setattr(LocalSystem, "execute", execute)
    (tmp_path / "mnt/old").mkdir(parents=True)
    system.fstab.write_text(f"tmpfs {tmp_path}/mnt/old tmpfs size=1m 0 0 # by hand\n")
    system.mountinfo.write_text(FIRST)
    system.add(50, "tmpfs", f"{tmp_path}/mnt/old", "tmpfs", ("size=1m",))
    return system


MOUNT = "  - mount: [{DIR/mnt/NAME: {device: tmpfs, type: tmpfs, options: [size=5m]}}]\n"


@pytest.mark.parametrize("change", [MOUNT, "  - mount: [{DIR/mnt/NAME: {ensure: absent}}]\n"])
def test_mounts_are_as_they_were(
    host: Host, publisher: Publisher, mounts: Any, change: str, tmp_path: Path
) -> None:
    before = mounts.fstab.read_text(), mounts.mountinfo.read_text()
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    pieces = (change.replace("NAME", "old") + MOUNT.replace("NAME", "new")).replace("DIR", str(tmp_path))
    publisher.publish("2.0.0", story(2, pieces))
    outcome = host.run()
    assert outcome.status == 7
    assert "was changed or run" not in outcome.output
    after = mounts.fstab.read_text(), mounts.mountinfo.read_text()
    numbers_and_comment = re.compile("(?m)^[0-9]+ | 0:[0-9]+| # by hand$")
    assert [numbers_and_comment.sub("", text) for text in after] == [
        numbers_and_comment.sub("", text) for text in before
    ]


def test_a_rollback_by_the_operator_undoes_a_trial_too(settled: Host, publisher: Publisher) -> None:
    before = tree(settled.machine)
    publisher.publish("2.0.0", story(0, ANYTHING, '  - exec: [{"false": {}}]\n'), files=PAGES)
    assert settled.run().status == 6
    assert settled.puller("rollback", "web").status in (0, 20)
    assert tree(settled.machine) == before
    assert copies(settled) == []


@pytest.mark.everything
def test_subscriber_of_an_undone_change_is_refreshed(settled: Host, publisher: Publisher) -> None:
    reload = """\
  - exec:
      - reload:
          command: sh -c 'ls {{ facts.machine }}/new >> {{ facts.machine }}/reloads; true'
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/MORE"]
"""
    publisher.publish("1.1.0", story(0, reload.replace("MORE", "health")))
    assert settled.run().status == 0
    (settled.machine / "reloads").write_text("")
    broken = story(0, ANYTHING, reload.replace("MORE", "new/file")).replace("exit $(cat", "exit 2 $(cat")
    publisher.publish("2.0.0", broken, files=PAGES)
    assert settled.run().status == 7
    assert not (settled.machine / "new").exists()
    assert (settled.machine / "reloads").read_text() == "file\n"
    assert settled.states()["exec#reload"] == "refreshed"


class Died(BaseException):
    """Raised to simulate a killed run."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Return ``dying(step)``: the run dies before its change number ``step``."""

    def prepare(step: int) -> None:
        leftovers = [step]

        def counted(method: Any) -> Any:
            def change(self: object, *arguments: Any, **named: Any) -> Any:
                leftovers[0] -= 1
                if leftovers[0] == 0:
                    raise Died
                return method(self, *arguments, **named)

            return change

        from puller.system.local import LocalSystem

        for name in ("replace_file", "make_directory", "make_link", "remove", "set_attributes", "set_labels"):
            monkeypatch.setattr(LocalSystem, name, counted(getattr(LocalSystem, name)))

    return prepare


@pytest.mark.parametrize("step", [1, 2, 5, 9, 12, 14, 16, 18, 20, 22, 24, 26])
@pytest.mark.representatives(1)
def test_wherever_it_is_killed_the_next_runs_finish_it(
    settled: Host,
    publisher: Publisher,
    dying: Callable[[int], Any],
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    before = tree(settled.machine)
    publisher.publish("2.0.0", story(2, ANYTHING), files=PAGES)
    dying(step)
    with pytest.raises(Died):
        settled.run()
    monkeypatch.undo()
    assert settled.run().status in (7, 20)
    assert tree(settled.machine) == before
    assert copies(settled) == []
    assert settled.run().status == 20
    assert set(settled.states().values()) == {"stable"}


HOST_TYPES = """\
  - hostname: [web02: {hosts: true}]
  - host_entry: [db: {address: 192.0.2.11, aliases: [store]}, new: {address: 192.0.2.12}]
  - timezone: [Europe/Paris]
"""
HOSTS = "127.0.0.1 localhost\n127.0.1.1 web01 # installer\n192.0.2.10 db\n"


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with the files of host name, hosts and time zone, and a kernel beside it."""
    etc, zones, kernel = tmp_path / "etc", tmp_path / "zoneinfo/Europe", tmp_path / "proc/kernel/hostname"
    for path in (etc, zones, kernel.parent):
        path.mkdir(parents=True)
    (zones / "Paris").write_bytes(b"TZif2")
    (etc / "hosts").write_text(HOSTS)
    (etc / "timezone").write_text("UTC\n")
    (etc / "localtime").symlink_to("../zoneinfo/UTC")
    for path in (etc / "hostname", kernel):
        path.write_text("web01\n")
    monkeypatch.setattr(trusted_files, "PROC_SYS", str(tmp_path / "proc"))
    for name, value in {
        "host_entry.HOSTS": etc / "hosts",
        "hostname.HOSTNAME": etc / "hostname",
        "timezone.ETC": etc,
        "timezone.ZONES": tmp_path / "zoneinfo",
    }.items():
        monkeypatch.setattr(f"puller.resources.host.{name}", str(value))
    return etc


def test_names_and_zone_of_the_machine_are_restored(host: Host, publisher: Publisher, etc: Path) -> None:
    before, kernel = tree(etc), etc.parent / "proc/kernel/hostname"
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    publisher.publish("2.0.0", story(2, HOST_TYPES))
    outcome = host.run()
    assert outcome.status == 7, outcome.output
    assert tree(etc) == before
    assert kernel.read_text() == "web01\n"
    publisher.publish("3.0.0", story(0, HOST_TYPES))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert kernel.read_text() == (etc / "hostname").read_text() == "web02\n"
    assert os.readlink(etc / "localtime") == str(etc.parent / "zoneinfo/Europe/Paris")
    assert (etc / "hosts").read_text() == (
        "127.0.0.1 localhost\n127.0.1.1 web02 # installer\n192.0.2.11 db store\n192.0.2.12\tnew\n"
    )


def test_rollback_keeps_lines_that_others_added_meanwhile(
    host: Host, publisher: Publisher, etc: Path
) -> None:
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    failing = '  - exec: [{"false": {}}]\n'
    publisher.publish("2.0.0", story(0, HOST_TYPES, failing))
    assert host.run().status == 6
    with (etc / "hosts").open("a") as file:
        file.write("10.0.0.1 by-hand\n")
    publisher.publish("3.0.0", story(0))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert (etc / "hosts").read_text() == HOSTS + "10.0.0.1 by-hand\n"


def test_undeclared_entries_are_removed_if_puller_added_them(
    host: Host, publisher: Publisher, etc: Path
) -> None:
    removed = "removed: absent\n"
    publisher.publish("1.0.0", removed + story(0, HOST_TYPES))
    assert host.run().status == 0
    publisher.publish("2.0.0", removed + story(0))
    for _ in range(2):
        outcome = host.run()
        assert outcome.status == 0, outcome.output
        assert (etc / "hosts").read_text() == (
            "127.0.0.1 localhost\n127.0.1.1 web02 # installer\n192.0.2.11 db store\n"
        )
    publisher.publish("3.0.0", removed + story(0, HOST_TYPES))
    assert host.run().status == 0
    assert (etc / "hosts").read_text().endswith("192.0.2.12\tnew\n")


LOCALES = "  - locale: [de_DE.UTF-8: {variables: [LANG]}, en_US.UTF-8: {ensure: absent}]\n"
PROGRAMS = {
    "locale": "echo C; echo POSIX; cat ARCHIVE",
    "localedef": """\
case $1 in
    --list-archive) cat ARCHIVE ;;
    --delete-from-archive) sed -i "/^$2$/d" ARCHIVE ;;
    *) echo "$6" | sed s/UTF-8/utf8/ >>ARCHIVE ;;
esac
""",
}


def install_programs(
    directory: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], **words: Path
) -> None:
    """Put shell scripts before the programs of the system. ``words`` are paths that they contain."""
    (directory / "programs").mkdir()
    for name, text in programs.items():
        for word, path in words.items():
            text = text.replace(word, str(path))
        program = directory / "programs" / name
        program.write_text(f"#!/bin/sh\n{text}")
        program.chmod(0o755)
    monkeypatch.setattr(commands, "SEARCH_PATH", f"{directory}/programs:{commands.SEARCH_PATH}")


def test_locales_and_their_variables_are_restored(
    host: Host, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_locales(tmp_path)
    redirect_locales(tmp_path, monkeypatch)
    etc, archive = tmp_path / "etc", tmp_path / "lib/locale-archive"
    for path, text in {
        etc / "locale.gen": "en_US.UTF-8 UTF-8\n# de_DE.UTF-8 UTF-8\n",
        etc / "default/locale": "# by hand\nLANG=en_US.UTF-8\n",
        archive: "en_US.utf8\n",
    }.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    install_programs(tmp_path, monkeypatch, PROGRAMS, ARCHIVE=archive)
    before = {**tree(etc), **tree(archive.parent)}
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    publisher.publish("2.0.0", story(2, LOCALES))
    outcome = host.run()
    assert outcome.status == 7, outcome.output
    assert {**tree(etc), **tree(archive.parent)} == before
    publisher.publish("3.0.0", story(0, LOCALES))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert (etc / "default/locale").read_text() == "# by hand\nLANG=de_DE.UTF-8\n"
    assert archive.read_text() == "de_DE.utf8\n"
    publisher.publish("4.0.0", "removed: absent\n" + story(0, LOCALES))
    assert host.run().status == 0
    publisher.publish("5.0.0", "removed: absent\n" + story(0))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert (etc / "default/locale").read_text() == "# by hand\n"
    assert (etc / "locale.gen").read_text() == "# en_US.UTF-8 UTF-8\n# de_DE.UTF-8 UTF-8\n"
    assert archive.read_text() == ""


SWAP_PROGRAMS = {
    "swapon": """\
priority=-2
test "$1" = --priority && priority=$2 && shift 2
printf '%s\\tfile\\t1\\t0\\t%s\\n' "$2" "$priority" >>SWAPS
""",
    "swapoff": 'grep -v "^$2\t" SWAPS >SWAPS.new; mv SWAPS.new SWAPS\n',
}


@pytest.mark.parametrize("has_old", [False, True])
def test_swap_is_removed_or_has_its_size_again(
    host: Host, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_old: bool
) -> None:
    machine = SwappingSystem(tmp_path)
    machine.redirect(monkeypatch)
    install_programs(tmp_path, monkeypatch, SWAP_PROGRAMS, SWAPS=machine.swaps)
    (tmp_path / "swap").mkdir()
    file = tmp_path / "swap/file"
    if has_old:
        machine.make(file, 1 << 20)
        machine.swaps.write_text(f"{machine.swaps.read_text()}{file}\tfile\t1\t0\t7\n")
        machine.fstab.write_text(f"{file} none swap sw,pri=7 0 0\n")

    def picture() -> tuple[object, ...]:
        size = file.stat().st_size if file.exists() else None
        return size, machine.swaps.read_text(), machine.fstab.read_text()

    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    before = picture()
    declared = f"  - swap: [{{{file}: {{size: 2M, priority: 9}}}}]\n"
    publisher.publish("2.0.0", story(2, declared))
    outcome = host.run()
    assert outcome.status == 7, outcome.output
    assert picture() == before
    publisher.publish("3.0.0", "removed: absent\n" + story(0, declared))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert (file.stat().st_size, machine.swaps.read_text().split()[-1]) == (2 << 20, "9")
    publisher.publish("4.0.0", "removed: absent\n" + story(0))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert file.exists() is has_old
    assert (str(file) in machine.fstab.read_text()) is has_old
