"""`puller import machine`: changes by hand on a booted Debian, and the draft on a fresh one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.local_packages import SOURCE, add_packages
from tests.support.machines import powered_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINENO5BBHYBbDqOgk1cPiqa+N259bg97G1XeVSYa0YiN"

SCRIPT = f"""
set -eu
# 1 to 3: a repository, its pin, and a held package of it
echo '{SOURCE.strip()}' > /etc/apt/sources.list.d/local.list
printf 'Package: tool\\nPin: origin ""\\nPin-Priority: 700\\n' > /etc/apt/preferences.d/tool
apt-get -qq update -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/local.list -o Dir::Etc::sourceparts=-
DEBIAN_FRONTEND=noninteractive apt-get -qq install tool
apt-mark hold tool
# 4 and 5: a disabled unit and a masked timer
systemctl disable --now fstrim.timer
systemctl mask --now apt-daily.timer
# 6 to 8: a unit with its timer, and a drop-in
printf '[Service]\\nType=oneshot\\nExecStart=/bin/true\\n' > /etc/systemd/system/own.service
printf '[Timer]\\nOnCalendar=daily\\n[Install]\\nWantedBy=timers.target\\n' > /etc/systemd/system/own.timer
mkdir /etc/systemd/system/cron.service.d
printf '[Service]\\nNice=7\\n' > /etc/systemd/system/cron.service.d/nice.conf
systemctl daemon-reload
systemctl enable --now own.timer
systemctl restart cron
# 9 and 10: a changed and a removed configuration file
echo 'alias ll="ls -l"' >> /etc/bash.bashrc
rm /etc/cron.daily/dpkg
# 11 and 12: jobs
echo '0 4 * * * root true' > /etc/cron.d/own
printf '15 3 * * 1 echo "{{{{ x }}}}" >/dev/null\\n' | crontab -u games -
# 13 to 16: a group, a user with keys, limits and the keys of root
groupadd --gid 3000 deploy
useradd --uid 3001 --gid deploy --groups games --create-home --shell /bin/bash --comment 'Ann A' ann
chage --maxdays 90 --expiredate 2031-12-30 ann
install -d -m 0700 -o ann -g deploy /home/ann/.ssh
echo '{KEY} ann' > /home/ann/.ssh/authorized_keys
chown ann:deploy /home/ann/.ssh/authorized_keys
chmod 0600 /home/ann/.ssh/authorized_keys
install -d -m 0700 /root/.ssh
echo '{KEY} root' > /root/.ssh/authorized_keys
mkdir -p /etc/security/limits.d
echo '@deploy soft nofile 4096' > /etc/security/limits.d/deploy.conf
# 17 to 19: kernel parameters and modules
echo 'net.ipv4.ip_default_ttl = 65' > /etc/sysctl.d/90-own.conf
echo 65 > /proc/sys/net/ipv4/ip_default_ttl
mkdir -p /etc/modprobe.d
echo 'blacklist pcspkr' > /etc/modprobe.d/own.conf
echo loop > /etc/modules-load.d/own.conf
# 20 to 23: zone, name, hosts and message of the day
ln -sf /usr/share/zoneinfo/Europe/Berlin /etc/localtime
echo Europe/Berlin > /etc/timezone
echo db07 > /etc/hostname
hostname db07
printf '192.0.2.7 cache.example.com cache\\n192.0.2.8 db.example.com\\n2001:db8::8 db.example.com\\n' >> /etc/hosts
echo 'Welcome.' > /etc/motd
# 24 to 27: alternatives, a diversion, an override and own programs
update-alternatives --quiet --set pager /bin/more
dpkg-divert --quiet --local --rename --divert /usr/bin/lslocks.real --add /usr/bin/lslocks
printf '#!/bin/sh\\nexec lslocks.real "$@"\\n' > /usr/bin/lslocks
chmod 0755 /usr/bin/lslocks
dpkg-statoverride --update --add root games 0750 /usr/bin/wall
printf '#!/bin/sh\\n' > /usr/local/sbin/own
chmod 0750 /usr/local/sbin/own
chmod o+r /usr/local/sbin/own
ln -s own /usr/local/sbin/alias
# 28 and 29: swap and a mount in fstab
echo '/var/swap none swap sw 0 0' >> /etc/fstab
printf '%s\\n' 'tmpfs /srv/my\\040cache tmpfs size=1m,noauto 0 0' >> /etc/fstab
# 30: the target of the boot
systemctl set-default multi-user.target
# Secrets and files of programs
echo 'token=topsecret' > /etc/cron.daily/own
echo 'ann:topsecret' | chpasswd
echo 'state' > /etc/own.conf
"""

PROBES = {
    "package": "dpkg-query -W -f '${db:Status-Abbrev}${Version}' tool",
    "pin": "apt-cache policy tool | grep -o '700$' | head -1",
    "disabled unit": "systemctl is-enabled fstrim.timer; systemctl is-active --quiet fstrim.timer; echo $?",
    "masked unit": "systemctl is-enabled apt-daily.timer; systemctl is-active --quiet apt-daily.timer; echo $?",
    "own unit": "cat /etc/systemd/system/own.service",
    "own timer": "systemctl is-enabled own.timer; systemctl is-active own.timer",
    "drop-in": "cut -d' ' -f19 /proc/$(systemctl show --value -p MainPID cron)/stat",
    "changed file": "cat /etc/bash.bashrc",
    "removed file": "test -e /etc/cron.daily/dpkg; echo $?",
    "job": "stat -c '%U %G %a' /etc/cron.d/own; cat /etc/cron.d/own",
    "job of a user": (
        "(crontab -u games -l 2>/dev/null; cut -d' ' -f1-5,7- /etc/cron.d/* 2>/dev/null) | grep '^15 3 .*x'"
    ),
    "group": "getent group deploy",
    "user": "getent passwd ann; id -nG ann",
    "ageing": "chage -l ann | grep -e Maximum -e 'Account expires'",
    "key of a user": "cat /home/ann/.ssh/authorized_keys; stat -c '%U %G %a' /home/ann/.ssh/authorized_keys",
    "key of root": "cat /root/.ssh/authorized_keys",
    "limits": "cat /etc/security/limits.d/deploy.conf",
    "parameter": "cat /proc/sys/net/ipv4/ip_default_ttl; cat /etc/sysctl.d/90-own.conf",
    "blacklisted module": "cat /etc/modprobe.d/own.conf",
    "loaded module": "cat /etc/modules-load.d/own.conf",
    "zone": "date --date=@1700000000 +%Z; cat /etc/timezone",
    "name": "uname -n; cat /etc/hostname",
    "hosts": "grep -e cache -e db.example /etc/hosts | tr -s '\\t' ' '",
    "message": "cat /etc/motd",
    "alternative": "readlink /etc/alternatives/pager; update-alternatives --query pager | grep Status",
    "diversion": "dpkg-divert --list /usr/bin/lslocks; sha256sum /usr/bin/lslocks",
    "diverted file": "/usr/bin/lslocks.real --version",
    "override": "dpkg-statoverride --list /usr/bin/wall; stat -c '%U %G %a' /usr/bin/wall",
    "program": "stat -c '%U %G %a' /usr/local/sbin/own; cat /usr/local/sbin/own; readlink /usr/local/sbin/alias",
    "swap": "grep -o '^/var/swap[[:space:]]*none[[:space:]]*swap' /etc/fstab | tr -s ' \\t' '  '",
    "mount": "findmnt --fstab --noheadings --output TARGET,SOURCE,FSTYPE,OPTIONS '/srv/my cache'",
    "target": "systemctl get-default",
}


def seen(machine: Machine) -> dict[str, str]:
    """Return the state of each change, as programs of the machine see it."""
    return {
        name: machine.run("sh", "-c", command, check=False, timeout=60).stdout
        for name, command in PROBES.items()
    }


def test_draft_of_a_changed_machine_repeats_its_changes(
    debian_with_imports: Callable[[], AbstractContextManager[Path]],
    tmp_path: Path,
) -> None:
    draft = tmp_path / "draft"
    with debian_with_imports() as root:
        add_packages(root, "tool")
        with powered_on(root, "--private-network", "--timezone=off") as machine:
            machine.run("sh", "-c", SCRIPT)
            changed = seen(machine)
            output = machine.run("puller", "import", "machine", "/root/draft").stdout
            shutil.copytree(root / "root/draft", draft)
            machine.cut_power()
    assert " 0 errors, 0 warnings" in output
    report = (draft / "IMPORT.md").read_text()
    assert not [path for path in draft.rglob("*") if path.is_file() and b"topsecret" in path.read_bytes()]
    assert "`/etc/cron.daily/own` /etc/cron.daily/own: the file can contain secrets" in report
    assert "The password of ann is left out" in report
    (others,) = (line for line in report.splitlines() if "the draft lacks, because programs" in line)
    assert "/etc/own.conf" in others
    with debian_with_imports() as root:
        add_packages(root, "tool")
        shutil.copytree(draft, root / "root/draft")
        with powered_on(root, "--private-network", "--timezone=off") as machine:
            before = seen(machine)
            assert [name for name in PROBES if before[name] == changed[name]] == []
            done = machine.run("puller", "apply", "/root/draft", "--verbose", check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            assert seen(machine) == changed
            again = machine.run("puller", "apply", "/root/draft")
            assert ", 0 changed in " in again.stdout, again.stdout
            machine.cut_power()
