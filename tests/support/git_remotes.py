"""Bare git repositories on this machine, with a work tree for commits."""

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    **{
        f"GIT_{who}_{what}": "test@example.com"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}


def git(directory: Path, *arguments: str) -> str:
    """Run git as the owner of the directory and return its output."""
    owner, is_root = directory.stat(), os.geteuid() == 0
    ended = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        user=owner.st_uid if is_root else None,
        group=owner.st_gid if is_root else None,
        extra_groups=[] if is_root else None,
    )
    return ended.stdout.strip()


def give(directory: Path, owner: int = 65534) -> None:
    """Change the owner of a tree."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


class Remote:
    """A bare repository, with a work tree for commits."""

    def __init__(self, directory: Path) -> None:
        self.work, self.bare = directory / "work", directory / "remote.git"
        for path in (self.work, self.bare):
            path.mkdir(parents=True)
        git(self.work, "init", "--quiet", "--initial-branch=main")
        git(self.bare, "init", "--quiet", "--bare", "--initial-branch=main")
        git(self.work, "remote", "add", "origin", str(self.bare))

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def commit(self, text: str, *, branch: str = "main", tag: str = "", name: str = "file") -> str:
        """Commit and push a file with this text, with an annotated tag if ``tag`` is set. Return the commit ID."""
        (self.work / name).write_text(text)
        git(self.work, "add", "--all")
        git(self.work, "commit", "--quiet", "--message", text)
        if tag:
            git(self.work, "tag", "--force", "--annotate", "--message", tag, tag)
        git(self.work, "push", "--quiet", "--force", "--tags", "origin", f"HEAD:refs/heads/{branch}")
        return git(self.work, "rev-parse", "HEAD")
