"""`puller import machine`: the files of a machine, and the draft."""

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hiera.parsing import load_yaml
from puller.authoring.importing.draft import Draft, Outcome
from puller.authoring.importing.machine.machine_importer import import_machine
from puller.cli.command_table import cli
from puller.errors import SourceError

STATUS = """\
Package: base-files
Essential: yes
Status: install ok installed
Priority: required

Package: nginx
Status: install ok installed
Priority: optional
Conffiles:
 /etc/nginx/nginx.conf {original}
 /etc/nginx/same.conf {original}
 /etc/nginx/gone.conf {original}
 /etc/nginx/key.conf {original}
 /etc/nginx/old.conf {original} obsolete

Package: libc-helper
Status: install ok installed
Priority: optional

Package: kept
Status: hold ok installed
Priority: optional

Package: libacl1
Status: install ok installed
Priority: optional
Section: libs

Package: removed
Status: deinstall ok config-files
Priority: optional
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Bz0Zb3cGQh1Wc6w7o9f4x1bQ2m5sN0aY7dKpR3vTe ann"
PASSWD = "root:x:0:0::/root:/bin/bash\nann:x:1001:1001:Ann,,,:/home/ann:/bin/zsh\nbob:x:1002:1002::/home/bob:/bin/sh\n"


SETTINGS = {
    "etc/hostname": "db07\n",
    "etc/hosts": (
        "127.0.0.1 localhost db07.example.com db07\n127.0.1.1 localhost intern\n::1 ip6-localhost\n"
        "192.0.2.8 db.example.com db # main\n2001:db8::8 db.example.com\n"
    ),
    "etc/fstab": (
        "# static\nUUID=1 / ext4 errors=remount-ro 0 1\n/dev/sdb1 none swap sw 0 0\n"
        "nas:/x /srv/my\\040x nfs ro,_netdev 0 2\n//nas/s /srv/s cifs password=hunter2 0 0\n"
    ),
    "etc/motd": "Welcome\n",
    "usr/share/base-files/motd": "Debian\n",
    "etc/locale.gen": "de_DE.UTF-8 UTF-8\n",
    "etc/own/state": "of a program\n",
    "var/lib/ucf/hashfile": f"{hashlib.md5(b'original').hexdigest()}  /etc/default/grub\n",
    "etc/default/grub": "changed\n",
    "etc/systemd/system/nginx.service.d/limits.conf": "[Service]\nNice=1\n",
    "usr/lib/systemd/system/fstrim.timer": "[Timer]\n",
    "var/lib/systemd/deb-systemd-helper-enabled/fstrim.timer.dsh-also": (
        "/etc/systemd/system/timers.target.wants/fstrim.timer\n"
    ),
    "sys/fs/cgroup/system.slice/fstrim.timer/cgroup.procs": "",
    "usr/bin/vim": "",
    "opt/jdk/java": "",
    "usr/bin/ping": "#!/bin/sh\n",
    "var/lib/dpkg/diversions": "/bin/sh\n/bin/sh.distrib\ndash\n/usr/bin/ping\n/usr/bin/ping.distrib\n:\n",
    "var/lib/dpkg/statoverride": "root games 750 /usr/bin/wall\nroot crontab 2755 /usr/bin/crontab\n",
    "var/lib/dpkg/info/cron.list": "/usr/bin/crontab\n/usr/bin/vim\n",
    "var/lib/dpkg/info/cron.postinst": "dpkg-statoverride --update --add root crontab 2755 /usr/bin/crontab\n",
    "var/lib/dpkg/alternatives/pager": "auto\n/usr/bin/pager\n\n/usr/bin/less\n77\n\n",
    "var/lib/dpkg/alternatives/editor": (
        "manual\n/usr/bin/editor\neditor.1.gz\n/usr/share/man/man1/editor.1.gz\n\n/usr/bin/vim\n30\n/m/vim.1.gz\n\n"
    ),
    "var/lib/dpkg/alternatives/java": (
        "manual\n/usr/bin/java\njava.1.gz\n/usr/share/man/man1/java.1.gz\n\n/opt/jdk/java\n2000\n/opt/jdk/java.1\n\n"
    ),
}
"""Settings of the complete machine, and databases."""
LINKS = {
    "etc/localtime": "/usr/share/zoneinfo/Europe/Berlin",
    "etc/alternatives/editor": "/usr/bin/vim",
    "etc/alternatives/pager": "/usr/bin/less",
    "etc/alternatives/java": "/opt/jdk/java",
    "etc/systemd/system/apt-daily.timer": "/dev/null",
    "etc/systemd/system/default.target": "/lib/systemd/system/rescue.target",
    "usr/local/bin/app": "/opt/app/app",
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the root of a small machine."""
    files = {
        "var/lib/dpkg/status": STATUS.format(original=hashlib.md5(b"original\n").hexdigest()),
        "var/lib/dpkg/info/nginx.list": "/.\n/etc\n/etc/cron.d\n/etc/cron.d/nginx\n/etc/systemd/system\n",
        "var/lib/apt/extended_states": "Package: libc-helper\nArchitecture: amd64\nAuto-Installed: 1\n",
        "etc/passwd": PASSWD,
        "etc/group": "root:x:0:\nsudo:x:27:ann\nann:x:1001:\nbob:x:1002:\n",
        "etc/shadow": "root:*:1::::::\nann:$6$topsecret:1:0:90:7::22279:\nbob:!:1::::::\n",
        "home/ann/.ssh/authorized_keys": f"# mine\n{KEY}\n",
        "etc/nginx/nginx.conf": "changed {{ x }}\n",
        "etc/nginx/same.conf": "original\n",
        "etc/nginx/key.conf": "password = topsecret\n",
        "etc/cron.d/nginx": "of the package\n",
        "etc/cron.d/own": "0 1 * * * root true\n",
        "etc/sysctl.d/90-own.conf": "# comment\nnet.ipv4.ip_forward = 1\nnet.ipv4.conf.*.rp_filter = 1\n",
        "etc/systemd/system/app.service": "[Service]\nExecStart=/bin/true\n",
        "usr/lib/systemd/system/nginx.service": "[Service]\n",
        "var/lib/systemd/deb-systemd-helper-enabled/nginx.service.dsh-also": (
            "/etc/systemd/system/multi-user.target.wants/nginx.service\n"
        ),
        "var/spool/cron/crontabs/ann": "MAILTO=ann\n*/5 * * * * date +\\%F\n",
    }
    for path, text in {**files, **SETTINGS}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o644)
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "app.service").symlink_to("/etc/systemd/system/app.service")
    (tmp_path / "etc/systemd/system/rpcbind.service").symlink_to("/dev/null")
    for path, target in LINKS.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).symlink_to(target)
    (tmp_path / "root/.ssh").mkdir(parents=True)
    (tmp_path / "root/.ssh/authorized_keys").write_text(f"{KEY}\n")
    return tmp_path


def resources_of(draft: Draft) -> dict[str, Any]:
    manifest = load_yaml(draft.all_files()["manifest.yaml"], "manifest.yaml")
    result = {}
    for group in manifest["resources"]:
        for kind, entries in group.items():
            for entry in entries:
                [(name, properties)] = (entry if isinstance(entry, dict) else {entry: None}).items()
                result[f"{kind}#{name}"] = properties or {}
    return result


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("package#nginx", {}),
        ("package#kept", {"held": True}),
        ("group#ann", {"gid": 1001}),
        (
            "user#ann",
            {
                "uid": 1001,
                "group": "ann",
                "groups": ["sudo"],
                "home": "/home/ann",
                "shell": "/bin/zsh",
                "comment": "Ann",
                "authorized_keys": [KEY],
                "password_max_days": 90,
                "expires": "2030-12-31",
            },
        ),
        ("user#root", {"authorized_keys": [KEY]}),
        ("hostname#db07", {}),
        ("host_entry#db.example.com", {"address": ["192.0.2.8", "2001:db8::8"], "aliases": ["db"]}),
        ("timezone#Europe/Berlin", {}),
        (
            "mount#/srv/my x",
            {"ensure": "present", "device": "nas:/x", "type": "nfs", "options": ["ro", "_netdev"], "pass": 2},
        ),
        (
            "line#swap /dev/sdb1",
            {"path": "/etc/fstab", "line": "/dev/sdb1 none swap sw 0 0", "create": True},
        ),
        ("exec#locale-gen", {"refreshonly": True, "subscribe": ["file#/etc/locale.gen"]}),
        pytest.param(
            "unit#nginx.service.d/limits.conf",
            {"source": "files/etc/systemd/system/nginx.service.d/limits.conf"},
            marks=pytest.mark.root,
        ),
        ("service#apt-daily.timer", {"ensure": "stopped", "enable": "masked"}),
        ("service#fstrim.timer", {"enable": False}),
        ("link#/etc/systemd/system/default.target", {"target": "/lib/systemd/system/rescue.target"}),
        ("link#/usr/local/bin/app", {"target": "/opt/app/app"}),
        ("alternative#editor", {"path": "/usr/bin/vim"}),
        (
            "alternative#java",
            {
                "path": "/opt/jdk/java",
                "link": "/usr/bin/java",
                "priority": 2000,
                "slaves": {"java.1.gz": {"link": "/usr/share/man/man1/java.1.gz", "path": "/opt/jdk/java.1"}},
            },
        ),
        ("diversion#/usr/bin/ping", {}),
        (
            "exec#dpkg-statoverride --force-all --update --add root games 750 '/usr/bin/wall'",
            {
                "provider": "shell",
                "unless": (
                    "dpkg-statoverride --list '/usr/bin/wall' | grep -qxF 'root games 750 /usr/bin/wall'"
                ),
            },
        ),
        ("file#/etc/nginx/gone.conf", {"ensure": "absent"}),
        ("sysctl#net.ipv4.ip_forward", {"value": "1", "path": "/etc/sysctl.d/90-own.conf"}),
        (
            "cron#ann-2",
            {
                "schedule": "*/5 * * * *",
                "command": "date +\\%F",
                "user": "ann",
                "environment": {"MAILTO": "ann"},
            },
        ),
        ("service#rpcbind", {"ensure": "stopped", "enable": "masked"}),
        ("service#nginx", {"ensure": "stopped", "enable": False}),
        pytest.param(
            "service#app", {"enable": True, "subscribe": ["unit#app.service"]}, marks=pytest.mark.root
        ),
    ],
)
def test_changes_of_a_machine_become_resources(
    machine: Path, reference: str, expected: dict[str, Any]
) -> None:
    assert resources_of(import_machine(machine))[reference] == expected


def test_changed_files_are_copied_with_their_attributes(machine: Path) -> None:
    draft = import_machine(machine)

    properties = resources_of(draft)["file#/etc/nginx/nginx.conf"]
    assert properties["source"] == "files/etc/nginx/nginx.conf"
    assert properties["mode"] == "0644"
    assert draft.files["files/etc/nginx/nginx.conf"] == b"changed {{ x }}\n"
    assert draft.files["files/etc/cron.d/own"] == b"0 1 * * * root true\n"


@pytest.mark.parametrize(
    "reference",
    [
        *("package#base-files", "package#libc-helper", "package#libacl1", "package#removed"),
        *("alternative#pager", "diversion#/bin/sh", "mount#/", "host_entry#localhost"),
        *("file#/etc/nginx/same.conf", "file#/etc/cron.d/nginx", "file#/etc/nginx/old.conf"),
    ],
)
def test_state_of_a_new_installation_is_omitted(machine: Path, reference: str) -> None:
    assert reference not in resources_of(import_machine(machine))


def test_secrets_of_a_machine_are_left_out_and_listed(machine: Path) -> None:
    (machine / "etc/cron.daily").mkdir()
    (machine / "etc/cron.daily/private").write_text("topsecret")
    (machine / "etc/cron.daily/private").chmod(0o600)

    draft = import_machine(machine)

    assert not [path for path, content in draft.all_files().items() if b"topsecret" in content]
    report = draft.report()
    assert "The password of ann is left out" in report
    assert "`/etc/nginx/key.conf`" in report
    assert "`/etc/cron.daily/private`" in report


@pytest.mark.parametrize("path", ["/etc/motd", "/etc/default/grub", "/etc/locale.gen", "/usr/bin/ping"])
def test_files_of_scripts_are_compared_with_originals(machine: Path, path: str) -> None:
    assert f"file#{path}" in resources_of(import_machine(machine))


@pytest.mark.parametrize(
    "text",
    [
        "`/etc/fstab` /: the installation of a machine creates this entry",
        "`/etc/fstab` /srv/s: the options contain a secret",
        "`/etc/hosts` intern: the line has further names of this machine",
        ", /etc/own/state.",
        "A disabled unit is stopped in the draft",
        "removed packages of the installation are not part of it",
    ],
)
def test_omitted_parts_of_a_machine_are_named(machine: Path, text: str) -> None:
    assert text in import_machine(machine).report()


def test_links_of_users_are_not_followed(machine: Path) -> None:
    (machine / "home/bob").mkdir()
    (machine / "home/bob/.ssh").symlink_to(machine / "home/ann/.ssh")
    (machine / "etc/cron.d/link").symlink_to(machine / "etc/shadow")

    resources = resources_of(import_machine(machine))

    assert "authorized_keys" not in resources["user#bob"]
    assert "file#/etc/cron.d/link" not in resources


def test_omitted_libraries_are_listed(machine: Path) -> None:
    report = import_machine(machine).report()

    assert "installed on request: libacl1." in report
    assert "priorities required, important and standard are omitted" in report


def test_pattern_of_a_parameter_is_listed(machine: Path) -> None:
    remarks = {remark.subject: remark for remark in import_machine(machine).remarks}

    assert remarks["net.ipv4.conf.*.rp_filter"].outcome is Outcome.UNMAPPED


def test_machine_without_dpkg_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="Only machines with dpkg are supported"):
        import_machine(tmp_path)


def test_draft_of_a_machine_passes_lint(machine: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("draft")

    result = CliRunner().invoke(
        cli, ["import", "machine", str(target), "--root", str(machine)], standalone_mode=False
    )

    assert result.return_value == 0
    assert " 0 errors, 0 warnings" in result.output


def test_links_of_an_image_stay_inside_of_the_image(machine: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret-plan").write_text("of this machine\n")
    (machine / "etc/sudoers.d").symlink_to(outside)
    (machine / "usr/local").mkdir(parents=True, exist_ok=True)
    (machine / "usr/local/sbin").symlink_to("/opt/tools")
    (machine / "opt/tools").mkdir(parents=True)
    (machine / "opt/tools/clean").write_text("of the image\n")

    files = import_machine(machine).all_files()

    assert not any("secret-plan" in path for path in files)
    assert files["files/usr/local/sbin/clean"] == b"of the image\n"


def test_unreadable_directory_is_an_error(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if "sudoers.d" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)

    with pytest.raises(SourceError, match="permission denied"):
        import_machine(machine)


def test_job_with_a_password_is_left_out(machine: Path) -> None:
    jobs = machine / "var/spool/cron/crontabs/ann"
    jobs.parent.mkdir(parents=True, exist_ok=True)
    jobs.write_text("1 2 * * * PGPASSWORD=hunter2 pg_dump\n3 4 * * * date\n")

    draft = import_machine(machine)

    assert not any(b"hunter2" in content for content in draft.all_files().values())
    assert "cron#ann-2" in resources_of(draft)


def test_unit_with_a_password_is_left_out(machine: Path) -> None:
    unit = machine / "etc/systemd/system/app.service"
    unit.write_text("[Service]\nEnvironment=APP_TOKEN=hunter2\n")

    draft = import_machine(machine)

    assert not any(b"hunter2" in content for content in draft.all_files().values())


def test_invalid_account_numbers_are_skipped(machine: Path) -> None:
    with (machine / "etc/passwd").open("a") as file:
        file.write("odd:x:\N{SUPERSCRIPT TWO}:1::/:/bin/sh\nbad:x:1003:none::/:/bin/sh\n")

    assert not {"user#odd", "user#bad"} & set(resources_of(import_machine(machine)))
