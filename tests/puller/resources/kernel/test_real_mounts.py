"""Real mounts, in a mount namespace with its own copy of /etc."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.root

INSIDE = """\
set -e
mount --bind "$1/etc" /etc
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /mnt
cd /mnt
. "$1/script"
"""
NOBODY = 65534


class Namespace:
    """A mount namespace for scripts run by root.

    ``apply OPTIONS… <<EOF`` applies a YAML list of resources below /mnt.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "etc").mkdir()
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
            if Path("/etc", name).exists():
                shutil.copy2(f"/etc/{name}", directory / "etc" / name)
        (directory / "etc/fstab").write_text("")

    def run(self, script: str) -> str:
        apply = f'{sys.executable} -m puller apply "$D/m.yaml" --state-directory="$D/state" "$@" 2>&1 || true'
        function = f'apply() {{ cat > "$D/m.yaml"; {apply}; }}'
        (self.directory / "script").write_text(f"D={self.directory}\n{function}\n{script}")
        done = subprocess.run(
            ["unshare", "--mount", "--propagation=private", "sh", "-c", INSIDE, "sh", str(self.directory)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def fstab(self) -> str:
        return (self.directory / "etc/fstab").read_text()


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Create a namespace outside of directories that other users own or can write."""
    with tempfile.TemporaryDirectory(prefix="puller-mounts-", dir="/root") as name:
        yield Namespace(Path(name))


def apply(
    point: str, options: str, *arguments: str, device: str = "/mnt/data/www", kind: str = "none"
) -> str:
    mount = {point: {"device": device, "type": kind, "options": options.split(",")}}
    text = yaml.safe_dump({"resources": [{"mount": [mount]}]})
    return f"apply {' '.join(arguments)} <<'EOF'\n{text}EOF\n"


SHOW = "findmnt -rn -o TARGET,VFS-OPTIONS,FS-OPTIONS {}; echo\n"
DATA = "mkdir data; mount -t tmpfs -o size=1m tmpfs data; mkdir data/www\n"


@pytest.mark.parametrize("how", ["bind", "rbind"])
@pytest.mark.parametrize("has_entry", [True, False])
@pytest.mark.representatives(1)
def test_a_bind_mount_becomes_ro_alone_and_rw_again(namespace: Namespace, how: str, has_entry: bool) -> None:
    start = apply("/mnt/www", how) if has_entry else f"mkdir www; mount --{how} data/www www\n"
    output = namespace.run(
        DATA
        + start
        + apply("/mnt/www", f"{how},ro,nosuid,noexec")
        + SHOW.format("/mnt/www")
        + "touch data/www/x && ! touch www/y && echo only there\n"
        + apply("/mnt/www", f"{how},ro,nosuid,noexec")
        + apply("/mnt/www", how)
        + "touch www/y\n"
        + SHOW.format("/mnt/www")
        + apply("/mnt/www", f"{how},ro")
        + SHOW.format("/mnt/www")
        + SHOW.format("/mnt/data")
    )
    shown = [line.split()[1] for line in output.splitlines() if line.startswith("/mnt/www ")]
    assert shown == ["ro,nosuid,noexec,relatime", "rw,relatime", "ro,relatime"]
    assert "only there" in output
    assert "1 resource, 1 stable" in output
    assert re.search(r"^/mnt/data rw,relatime rw,", output, re.MULTILINE)
    assert namespace.fstab == f"/mnt/data/www /mnt/www none {how},ro 0 0\n"


@pytest.mark.everything
def test_a_file_open_for_writing_is_foretold(namespace: Namespace) -> None:
    bound = DATA + apply("/mnt/www", "bind") + "exec 9>www/open\n"
    output = namespace.run(bound + apply("/mnt/www", "bind,ro", "--noop") + apply("/mnt/www", "bind,ro"))
    assert output.count("/mnt/www cannot become read-only: files are open for writing in ") == 2
    assert "sh (" in output
    assert namespace.fstab == "/mnt/data/www /mnt/www none bind 0 0\n"


@pytest.mark.everything
def test_a_tmpfs_grows_and_becomes_ro_beside_its_bind(namespace: Namespace) -> None:
    tmpfs = {"device": "tmpfs", "kind": "tmpfs"}
    output = namespace.run(
        apply("/mnt/data", "size=1m", **tmpfs)
        + "mkdir data/www www; mount --bind data/www www\n"
        + apply("/mnt/data", "size=2m,ro,nodev", **tmpfs)
        + "touch www/x && ! touch data/x && echo only there\n"
        + SHOW.format("/mnt/data")
        + apply("/mnt/data", "size=2m,ro,nodev", **tmpfs)
    )
    assert "only there" in output
    assert re.search(r"^/mnt/data ro,nodev,relatime rw,size=2048k", output, re.MULTILINE)
    assert "so only /mnt/data is read-only until the next boot" in output
    assert "1 resource, 1 stable" in output


@pytest.mark.everything
def test_an_overlay_of_other_directories_is_mounted_anew(namespace: Namespace) -> None:
    overlay = {"device": "overlay", "kind": "overlay"}
    output = namespace.run(
        DATA
        + "mkdir data/a data/b data/c; touch data/a/one data/b/two\n"
        + apply("/mnt/over", "lowerdir=/mnt/data/a:/mnt/data/c", **overlay)
        + apply("/mnt/over", "lowerdir=/mnt/data/b:/mnt/data/c", **overlay)
        + "ls over\n"
        + apply("/mnt/over", "lowerdir=/mnt/data/b:/mnt/data/c", **overlay)
    )
    assert "\ntwo\n" in output
    assert "1 resource, 1 stable" in output


def test_a_part_of_another_tmpfs_is_not_the_tmpfs(namespace: Namespace) -> None:
    """A remount would change the options of the whole file system behind the bind mount."""
    tmpfs = {"device": "tmpfs", "kind": "tmpfs"}
    output = namespace.run(
        DATA
        + "mkdir www; mount --bind data/www www\n"
        + apply("/mnt/www", "size=3m", **tmpfs)
        + SHOW.format("/mnt/data")
        + SHOW.format("/mnt/www")
    )
    assert re.search(r"^/mnt/data .*size=1024k", output, re.MULTILINE)
    assert re.search(r"^/mnt/www .*size=3072k", output, re.MULTILINE)


USER = "mkdir home; chown 65534 home\n"
LED_ELSEWHERE = {
    "device": ("ln -s /root home/www; chown -h 65534 home/www\n", "/mnt/www", "bind", "/mnt/home/www", "none"),
    "directory": ("mkdir home/www\n", "/mnt/www", "rbind", "/mnt/home/www", "none"),
    "below a link": ("ln -s /mnt/home link; mkdir home/www\n", "/mnt/www", "bind", "/mnt/link/www", "none"),
    "missing": ("", "/mnt/www", "bind", "/mnt/home/www", "none"),
    "image": ("truncate -s 1m home/image\n", "/mnt/www", "loop", "/mnt/home/image", "ext4"),
    "mount point": ("mkdir home/www\n", "/mnt/home/www", "size=1m", "tmpfs", "tmpfs"),
    "overlay": ("mkdir home/l\n", "/mnt/www", "lowerdir=/mnt/home/l:/mnt", "overlay", "overlay"),
    "sticky": (
        "mkdir -m 1777 t; mkdir t/www; chown 65534 t/www\n", "/mnt/www", "bind", "/mnt/t/www", "none",
    ),
}  # fmt: skip


@pytest.mark.attack("mount.user")
@pytest.mark.parametrize("case", LED_ELSEWHERE)
@pytest.mark.representatives(1)
def test_a_path_that_a_user_can_change_is_not_mounted(namespace: Namespace, case: str) -> None:
    made, point, options, device, kind = LED_ELSEWHERE[case]
    output = namespace.run(
        USER
        + made
        + apply(point, options, "--noop", device=device, kind=kind)
        + apply(point, options, device=device, kind=kind)
        + f"! mountpoint -q {point}\n"
    )
    assert output.count("can be led elsewhere by another user, now or at boot") == 2, output
    assert namespace.fstab == ""


@pytest.mark.attack("mount.user")
def test_a_directory_of_a_user_in_a_directory_of_root_is_bound(namespace: Namespace) -> None:
    output = namespace.run(
        USER + "touch home/theirs\n" + apply("/mnt/www", "bind", device="/mnt/home") + "ls www; umount www\n"
    )
    assert "\ntheirs\n" in output, output


IDS = "owner: root, group: root"
FILE = f"{{{IDS}, content: x, mode: '0644'}}"
DIRECTORY = f"{{{IDS}, ensure: directory, mode: '0755'}}"
ORDERS = {
    "a file before its tmpfs": f"""
      - file: [{{/mnt/t/sub: {DIRECTORY}}}, {{/mnt/t/sub/f: {FILE}}}]
      - mount: [{{/mnt/t: {{device: tmpfs, type: tmpfs, options: [mode=0755]}}}}]
    """,
    "the mount point itself": f"""
      - file: [{{/mnt/t: {{{IDS}, ensure: directory, mode: '0750'}}}}]
      - mount: [{{/mnt/t: {{device: tmpfs, type: tmpfs, options: [mode=0755]}}}}]
    """,
    "files before their bind": f"""
      - file: [{{/mnt/b/sub/f: {FILE}}}, {{/mnt/b/sub/g: {FILE}}}]
      - mount: [{{/mnt/b: {{device: /mnt/source, type: none, options: [bind]}}}}]
    """,
    "a device after its mount": f"""
      - mount: [{{/mnt/x: {{device: /mnt/made/in, type: none, options: [bind]}}}}]
      - file: [{{/mnt/x/f: {FILE}}}, {{/mnt/made: {DIRECTORY}}}, {{/mnt/made/in: {DIRECTORY}}}]
    """,
    "a directory between two mounts": f"""
      - mount:
          - /mnt/n: {{device: tmpfs, type: tmpfs, options: [mode=0755]}}
          - /mnt/m: {{device: /mnt/n/www, type: none, options: [bind]}}
      - file: [{{/mnt/m/f: {FILE}}}, {{/mnt/n/www: {DIRECTORY}}}]
    """,
    "a bind of a bind": """
      - mount:
          - /mnt/r1: {device: /mnt/source, type: none, options: [bind]}
          - /mnt/r3: {device: /mnt/r1, type: none, options: [bind]}
    """,
    "a link": """
      - link: [{/mnt/t/link: {target: sub}}]
      - mount: [{/mnt/t: {device: tmpfs, type: tmpfs, options: [mode=0755]}}]
    """,
}


@pytest.mark.parametrize("case", ORDERS)
@pytest.mark.representatives(1)
def test_mounts_come_before_the_files_below_them(namespace: Namespace, case: str) -> None:
    """The dry run predicts the run, and the second run changes nothing."""
    text = f"resources:\n{ORDERS[case]}"
    script = "mkdir -p source/sub t/sub; echo old > source/sub/f; echo hidden > t/sub/f\n"
    for options in ("--noop -v", "-v", "-v"):
        script += f"apply {options} <<'EOF'\n{text}\nEOF\necho next\n"
    noop, run, again, _ = namespace.run(script).split("next\n")

    def changed(output: str) -> list[str]:
        matches = re.findall(r"^\w+ +(\w+#\S+) (?:would change|changed|stable|failed)", output, re.MULTILINE)
        is_changed = re.findall(r"^\w+ +(\w+#\S+) (?:would change|changed) ", output, re.MULTILINE)
        assert matches, output
        return is_changed

    assert "failed" not in noop + run + again, noop + run + again
    assert changed(noop) == changed(run) != []
    assert changed(again) == [], again
