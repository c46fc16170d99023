"""Objects of one run that another resource would remove, on a booted Debian with real tools.

* A scaffold with ``purge`` leaves the objects of every other type.
* Conflicting declarations of one object by two spellings fail, and so does a file at a path that another type writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ8h1Jx3v8Qe1yq2h2gq4Yx3kq1w0h7mJv1g0l1S8aB joe"
OWNED = {"owner": "root", "group": "root", "mode": "0755"}
JOB = {"schedule": "@daily", "command": "true"}

PREPARE = """\
set -e
apt-get update -q; apt-get install -y -q --no-install-recommends cron git
mkdir -p /root/b/templates /root/b/files /srv/packages /opt/links/v1
echo '# x' > /root/b/templates/x
echo y > /root/b/files/y
ln -s v1 /opt/links/current
(cd /srv/packages && dpkg-scanpackages . > Packages 2>/dev/null || : > Packages)
git init -q /srv/work
git -C /srv/work -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m one
"""


def purge(*directories: str) -> dict[str, Any]:
    return {"scaffold": [{path: {"source": "templates", "purge": True}} for path in directories]}


OBJECTS: list[tuple[str, list[dict[str, Any]], list[str]]] = [
    ("cron", [{"cron": [{"job": JOB}]}, purge("/etc/cron.d")], ["/etc/cron.d/job"]),
    (
        "checkout",
        [
            {"file": [{"/opt/sp": {"ensure": "directory", **OWNED}}]},
            {"checkout": [{"/opt/sp/co": {"url": "/srv/work"}}]},
            purge("/opt/sp"),
        ],
        ["/opt/sp/co/.git"],
    ),
    (
        "sysctl",
        [
            {"sysctl": [{"net.ipv4.tcp_syncookies": {"value": 1, "path": "/etc/sysctl.d/s.conf"}}]},
            purge("/etc/sysctl.d"),
        ],
        ["/etc/sysctl.d/s.conf"],
    ),
    (
        "kernel_module",
        [{"kernel_module": [{"cramfs": {"ensure": "blacklisted"}}]}, purge("/etc/modprobe.d")],
        ["/etc/modprobe.d/cramfs.conf"],
    ),
    (
        "user",
        [{"user": [{"joe": {"authorized_keys": [KEY]}}]}, purge("/home/joe/.ssh", "/home")],
        ["/home/joe/.ssh/authorized_keys", "/home/joe/.profile"],
    ),
    (
        "service",
        [
            {
                "service": [
                    {"cron": {"enable": True}},
                    {"apt-daily.timer": {"ensure": "stopped", "enable": "masked"}},
                ]
            },
            purge("/etc/systemd/system"),
        ],
        [
            "/etc/systemd/system/multi-user.target.wants/cron.service",
            "/etc/systemd/system/apt-daily.timer",
        ],
    ),
    (
        "files",
        [
            {
                "file": [
                    {"defaults": OWNED},
                    {"/opt/f": {"ensure": "directory"}},
                    {"/opt/f/tree": {"ensure": "directory", "source": "files", "recurse": True}},
                    {"/opt/f/exists": {"ensure": "exists"}},
                    {"/opt/f/content": {"content": "c\n"}},
                ]
            },
            {"link": [{"/opt/f/link": {"target": "/etc"}}]},
            {"line": [{"/opt/f/exists": {"line": "one"}}]},
            {"exec": [{"touch /opt/f/done": {"creates": "/opt/f/done"}}]},
            {"scaffold": [{"/opt/f/other": {"source": "files"}}]},
            {"mount": [{"/opt/f/mount": {"device": "tmpfs", "type": "tmpfs"}}]},
            purge("/opt/f"),
        ],
        [f"/opt/f/{name}" for name in ("tree/y", "exists", "content", "link", "done", "other/y", "mount")],
    ),
    (
        "spelling",
        [
            {
                "file": [
                    {"defaults": OWNED},
                    {"/usr/lib/app": {"ensure": "directory"}},
                    {"/lib/app/y": {"content": "y\n"}},
                    {"/opt/links/current/y": {"content": "y\n"}},
                ]
            },
            purge("/usr/lib/app", "/opt/links"),
        ],
        ["/usr/lib/app/y", "/opt/links/current/y"],
    ),
]

SAME = {"owner": "root", "group": "root", "mode": "0644"}
REFUSED: list[list[dict[str, Any]]] = [
    [{"service": [{"cron": {"enable": True}}, {"cron.service": {"ensure": "stopped", "enable": False}}]}],
    [{"package": [{"cron": {}}, {"cron:NATIVE": {"ensure": "absent"}}]}],
    [{"file": [{"/usr/lib/t": {"content": "1", **SAME}}, {"/lib/t": {"content": "2", **SAME}}]}],
    [
        {"file": [{"/etc/apt/sources.list.d/rr.sources": {"content": "1", **SAME}}]},
        {"repository": [{"rr": {"url": "file:///srv/packages", "suites": ["./"]}}]},
    ],
    [
        {"file": [{"/etc/modprobe.d/cramfs.conf": {"content": "1", **SAME}}]},
        {"kernel_module": [{"cramfs": {"ensure": "blacklisted"}}]},
    ],
    [
        {"user": [{"joe": {"authorized_keys": [KEY]}}]},
        {"file": [{"/home/joe/.ssh/authorized_keys": {"content": "x", **SAME}}]},
    ],
    [
        {"mount": [{"/mnt/x": {"device": "tmpfs", "type": "tmpfs"}}]},
        {"line": [{"/etc/fstab": {"line": "tmpfs /mnt/x tmpfs ro 0 0"}}]},
    ],
]


def apply(machine: Machine, resources: list[dict[str, Any]], *options: str) -> tuple[int, str]:
    text = yaml.safe_dump({"resources": resources}, sort_keys=False)
    (machine.root / "root/b/manifest.yaml").write_text(text)
    done = machine.run("puller", "apply", "/root/b", "--detailed-exitcodes", *options, check=False)
    return done.returncode, done.stdout + done.stderr


def test_purge_leaves_objects_of_other_types(debian: Machine) -> None:
    debian.run("sh", "-c", PREPARE, timeout=600)
    for name, resources, paths in OBJECTS:
        status, text = apply(debian, resources)
        assert status == 2, (name, text)
        for options in ([], ["--noop"]):
            status, text = apply(debian, resources, *options)
            assert (status, "would change" in text.replace(" 0 would change", "")) == (0, False), (name, text)
        for path in paths:
            debian.run("test", "-e", path, check=True)


def test_contradicting_spellings_and_writers_are_refused(debian: Machine) -> None:
    (debian.root / "root/b").mkdir()
    native = debian.run("dpkg", "--print-architecture").stdout.strip()
    for resources in REFUSED:
        text = yaml.safe_dump(resources).replace("NATIVE", native)
        for options in (["--noop"], []):
            status, output = apply(debian, yaml.safe_load(text), *options)
            assert status == 13, (resources, output)
    status, output = apply(debian, [{"service": [{"dbus": {}}, {"dbus.service": {}}]}])
    assert status == 0, output
