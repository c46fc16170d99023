"""The checkout resource in a booted Debian: the run installs git, which runs as the owner of the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

MANIFEST = """\
resources:
  - package: [{git: {options: {recommends: false}}}]
  - checkout:
      - /srv/app:
          url: file:///srv/app.git
          revision: REVISION
          owner: www-data
          require: [package#git]
  - file:
      - /srv/app/local.conf: {content: x, owner: www-data, group: www-data, mode: "0600"}
"""
REMOTE = """\
set -e
cd "$(mktemp -d)"
git init --quiet --initial-branch=main
git config user.email test@example.com
git config user.name test
for number in 1 2; do
    echo $number > file; git add file; git commit --quiet --message $number; git tag v$number
done
git clone --quiet --bare . /srv/app.git
chown -R www-data: /srv/app.git
"""
ATTRIBUTES = "mkdir -p /srv/app/.git/info; echo '* filter=x' > /srv/app/.git/info/attributes"
PROGRAM = "#!/bin/sh\nid -un >> /tmp/ran\n"


def test_git_is_installed_and_runs_as_the_owner(debian: Machine) -> None:
    manifest, program = debian.root / "root/manifest.yaml", debian.root / "srv/program"
    apply = ("puller", "apply", "/root/manifest.yaml", "-v")
    manifest.write_text(MANIFEST.replace("REVISION", "v1"))
    dry = debian.run(*apply, "--noop").stdout
    assert "Would have cloned file:///srv/app.git at v1" in dry, dry
    assert "failed" not in dry, dry
    # Without the remote the clone fails, although git is installed.
    debian.run("apt-get", "-qq", "update")
    failed = debian.run(*apply, check=False)
    assert failed.returncode == 6
    assert "git clone: exit code 128" in failed.stdout, failed.stdout
    assert debian.run("ls", "-A", "/srv").stdout == ""

    debian.run("sh", "-c", REMOTE)
    debian.run(*apply)
    assert debian.run("cat", "/srv/app/file").stdout == "1\n"
    assert debian.run("find", "/srv/app", "!", "-user", "www-data").stdout == ""
    assert "3 resources, 3 stable" in debian.run(*apply).stdout

    # Programs that the owner configures for git run as the owner.
    program.write_text(PROGRAM)
    program.chmod(0o755)
    as_owner = ("setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups", "env", "HOME=/tmp")
    for key in ("filter.x.smudge", "filter.x.clean", "core.fsmonitor", "core.sshCommand"):
        debian.run(*as_owner, "git", "-C", "/srv/app", "config", key, "/srv/program")
    debian.run(*as_owner, "sh", "-c", ATTRIBUTES)
    manifest.write_text(MANIFEST.replace("REVISION", "v2"))
    debian.run(*apply, check=False)
    assert set(debian.run("cat", "/tmp/ran").stdout.split()) == {"www-data"}
