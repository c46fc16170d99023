"""Hostile repositories, remotes and URLs, and obstacles that an ordinary user can create."""

import os
import re
from pathlib import Path

import pytest

from puller.errors import ResourceError
from puller.resources.base import PropertyError
from puller.resources.checkouts.git import Remote as Url
from puller.resources.checkouts.repository import Repository
from puller.system.commands import Command, Completed, base_environment
from puller.system.local import LocalSystem
from tests.puller.resources.checkouts.conftest import Place
from tests.support.git_remotes import Remote, git, give
from tests.support.rows import each_row

NOBODY = 65534
BASE = base_environment()


URLS = [
    "ext::sh -c id",
    "ext::id",
    "fd::17",
    "foo::https://h/x",
    "-uid",
    "--upload-pack=id",
    "-oProxyCommand=id:x",
    "host:-x",
    "-host:x",
    "ssh://-oProxyCommand=id/x",
    "ssh://-luser@host/x",
    "ssh://%2DoProxyCommand=id@host/x",
    "ssh://%2dluser@host/x",
    "git://%2Duser@host/x",
    "ssh://%2Dhost/x",
    "ssh://[-oProxyCommand=id]/x",
    "-luser@host:x",
    "user@-host:x",
    "[-oProxyCommand=id]:x",
    "ssh://user%0a@host/x",
    "git://host/x%0ahost=other",
    "ssh://@host/x",
    "ssh://user@/x",
    "ext::ssh://x",
    "ssh://user:pw@host/x",
    "git://-x/y",
    "https:///x",
    "https://h:port/x",
    "https://h/x?private_token=y",
    "https://h/x#y",
    "file://host/x",
    "ftp://h/x",
    "http+unix://h/x",
    "relative/path",
    "../x",
    "https://h/a b",
    "https://h/x\ny",
    "/srv/x\0y",
    "https://[::1",
]


@pytest.mark.attack("checkout.url")
@pytest.mark.parametrize("url", URLS)
def test_invalid_or_executing_url_is_refused_at_load(place: Place, url: str) -> None:
    with pytest.raises(PropertyError, match="url "):
        place.resource(url=url)


GOOD = [
    "https://h/x.git",
    "http://h:8080/x",
    "ssh://git@h/x",
    "ssh://git@h:2222/~/x",
    "git://h/x",
    "git@h:group/x.git",
    "h:x",
    "git@[::1]:x",
    "ssh://joe%40example.com@h/x",
    "https://[::1]:8443/x",
    "file:///srv/x.git",
    "/srv/x.git",
]


@each_row("url", GOOD)
def test_other_urls_are_kept_as_they_are(url: str) -> None:
    assert Url.parse(url) == Url(url)


@pytest.mark.attack("secrets.checkout")
@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("https://joe:s3cret%40x@h:8443/x", "am9lOnMzY3JldEB4"),
        ("https://t0ken@h/x", "dDBrZW46"),
        ("https://:s3cret@h/x", "OnMzY3JldA=="),
    ],
)
def test_credentials_are_taken_out_of_a_url(url: str, header: str) -> None:
    result = Url.parse(url)
    assert "@" not in result.url
    assert result.environment["GIT_CONFIG_VALUE_0"] == f"Authorization: Basic {header}"
    assert result.environment["GIT_CONFIG_KEY_0"] == f"http.{result.url.removesuffix('x')}.extraHeader"
    assert "s3cret" not in repr(result)
    assert header not in repr(result)


@pytest.mark.attack("secrets.checkout")
def test_no_sentence_about_a_url_shows_its_credentials() -> None:
    messages = {
        "https://joe:s3cret@h/x?y": "expected a URL without a query",
        "foo://joe:s3cret@h/x": "expected https://, http://, ssh://",
        "ssh://joe:s3cret@h/x": "only http:// and https:// accept a password",
    }
    for url, message in messages.items():
        with pytest.raises(ValueError, match=message) as caught:
            Url.parse(url)
        assert "s3cret" not in str(caught.value)


PROGRAMS = """
[core]
    fsmonitor = PROGRAM
    sshCommand = PROGRAM
    hooksPath = HOOKS
    editor = PROGRAM
    pager = PROGRAM
    gitProxy = PROGRAM
    alternateRefsCommand = PROGRAM
[filter "evil"]
    clean = PROGRAM
    smudge = PROGRAM
    process = PROGRAM
    required = true
[diff]
    external = PROGRAM
[credential]
    helper = PROGRAM
[include]
    path = INCLUDED
[uploadpack]
    packObjectsHook = PROGRAM
"""


def arm(tree: Path, marks: Path) -> None:
    """Let everything that a repository can name run a program that records the id of its user."""
    program = marks / "program"
    program.write_text(f"#!/bin/sh\nid -u >> {marks}/ran\nexit 1\n")
    program.chmod(0o755)
    hooks = marks / "hooks"
    hooks.mkdir()
    for name in (
        "post-checkout",
        "reference-transaction",
        "pre-auto-gc",
        "post-index-change",
        "fsmonitor-watchman",
    ):
        (hooks / name).symlink_to(program)
    text = PROGRAMS.replace("PROGRAM", str(program)).replace("HOOKS", str(hooks))
    (marks / "included").write_text(text.replace("[include]\n    path = INCLUDED", ""))
    with (tree / ".git/config").open("a") as stream:
        stream.write(text.replace("INCLUDED", f"{marks}/included"))
    (tree / ".git/info").mkdir(exist_ok=True)
    (tree / ".git/info/attributes").write_text("* filter=evil diff=evil\n")
    for name in os.listdir(hooks):
        (tree / ".git/hooks").mkdir(exist_ok=True)
        (tree / ".git/hooks" / name).symlink_to(program)


@pytest.mark.representatives(1)
@pytest.mark.attack("checkout.programs")
@pytest.mark.root
@pytest.mark.parametrize("force", [False, True])
def test_programs_named_by_a_user_repository_never_run_as_root(
    place: Place, open_to_all: Path, force: bool
) -> None:
    place.path, marks = open_to_all / "app", open_to_all / "marks"
    theirs = Remote(open_to_all / "remote")
    theirs.commit("one", tag="v1")
    theirs.commit("two", tag="v2")
    give(theirs.bare)
    place.apply(url=theirs.url, revision="v1", owner="nobody")
    marks.mkdir()
    marks.chmod(0o777)
    arm(place.path, marks)
    give(place.path)
    (place.path / "file").write_text("by hand")
    os.chown(place.path / "file", NOBODY, NOBODY)
    for wanted in ({"revision": "v1"}, {"revision": "v2"}, {"ensure": "latest", "revision": "main"}):
        for act in (place.predict, place.apply):
            try:
                act(url=theirs.url, force=force, **wanted)
            except ResourceError:
                continue
    with pytest.raises(ResourceError):
        place.apply(ensure="absent")
    ran = (marks / "ran").read_text().split() if (marks / "ran").exists() else []
    assert "0" not in ran


@pytest.mark.attack("checkout.root")
@pytest.mark.root
def test_root_repository_uses_files_of_root_only(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    git_directory = place.path / ".git"
    for path, mode, owner in (
        (git_directory, 0o755, NOBODY),
        (git_directory / "config", 0o644, NOBODY),
        (git_directory / "config", 0o666, 0),
        (git_directory, 0o777, 0),
    ):
        before = path.stat()
        os.chown(path, owner, owner)
        path.chmod(mode)
        for act in (place.predict, place.apply):
            with pytest.raises(ResourceError, match=re.escape(str(path))):
                act(url=remote.url, revision="v1")
        assert place.started == []
        os.chown(path, 0, 0)
        path.chmod(before.st_mode & 0o777)
    assert place.apply(url=remote.url, revision="v1") == []


@pytest.mark.attack("checkout.programs")
def test_no_hook_or_monitor_of_the_repository_runs_at_all(
    place: Place, remote: Remote, tmp_path: Path
) -> None:
    place.apply(url=remote.url, revision="v1")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    (place.path / ".git/hooks").mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (place.path / ".git/hooks" / name).symlink_to(program)
    with (place.path / ".git/config").open("a") as stream:
        stream.write(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {place.path}/.git/hooks\n")
    place.apply(url=remote.url, revision="v2")
    assert not (tmp_path / "ran").exists()


@pytest.mark.everything
@pytest.mark.attack("checkout.submodule")
def test_a_remote_brings_no_submodule_and_no_program(place: Place, remote: Remote, tmp_path: Path) -> None:
    git(
        remote.work,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "--quiet",
        str(remote.bare),
        "module",
    )
    (remote.work / ".gitattributes").write_text("*.bin filter=lfs diff=lfs\n")
    (remote.work / "big.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    remote.commit("three", tag="v3")
    place.apply(url=remote.url, revision="v3")
    assert os.listdir(place.path / "module") == []
    assert (place.path / "big.bin").read_text().startswith("version https://git-lfs")
    assert place.apply(url=remote.url, revision="v3") == []


@pytest.mark.attack("checkout.link")
@pytest.mark.root
@pytest.mark.parametrize(
    "part", [".git", ".git/HEAD", ".git/refs/tags/v9", ".git/packed-refs", ".git/puller"]
)
@pytest.mark.representatives(1)
def test_a_link_of_a_user_in_a_repository_leads_root_nowhere(
    place: Place, open_to_all: Path, part: str
) -> None:
    place.path, victim = open_to_all / "app", open_to_all / "victim"
    theirs = Remote(open_to_all / "remote")
    commit = theirs.commit("one", tag="v1")
    give(theirs.bare)
    place.apply(url=theirs.url, revision="v1", owner="nobody")
    victim.write_text(commit)
    before = victim.lstat()
    path = place.path / part
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.rename(place.path / "aside")
    path.symlink_to(victim)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    try:
        place.apply(url=theirs.url, revision="v9")
    except ResourceError:
        pass
    assert (victim.read_text(), victim.lstat().st_ctime_ns) == (commit, before.st_ctime_ns)


@pytest.mark.everything
@pytest.mark.attack("checkout.link")
@pytest.mark.root
def test_a_fifo_in_a_repository_stops_nobody(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    os.mkfifo(place.path / ".git/refs/tags/v7")
    with pytest.raises(ResourceError, match="v7"):
        place.apply(url=remote.url, revision="v7")


@pytest.mark.everything
@pytest.mark.attack("checkout.endless")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "ref: ../../../etc/passwd",
        "ref: refs/heads/../../../x",
        "ref: refs/heads/a\0b",
        "\xff\xfe",
        "x" * 40,
    ],
)
@pytest.mark.representatives(1)
def test_a_head_that_says_nothing_is_no_commit(place: Place, remote: Remote, text: str) -> None:
    place.apply(url=remote.url, revision="v1")
    (place.path / ".git/HEAD").write_text(text)
    with pytest.raises(ResourceError, match=r"git status|has local changes"):
        place.apply(url=remote.url, revision="v1")


@pytest.mark.everything
@pytest.mark.attack("checkout.endless")
@pytest.mark.parametrize(
    "text",
    [
        "\n" * 1_000_000,
        " " * 1_000_000,
        '[remote "origin"]\nurl = "' + '\\"' * 500_000,
        '[remote "' + '\\"' * 500_000,
        "[" * 1_000_000,
    ],
    ids=["lines", "blanks", "quotes", "section", "brackets"],
)
@pytest.mark.representatives(1)
def test_slow_configuration_is_read_once(place: Place, remote: Remote, text: str) -> None:
    """If each of a million positions restarted the search, the test would exceed its timeout."""
    place.apply(url=remote.url, revision="v1")
    path = place.path / ".git/config"
    status = path.lstat()
    path.write_text(text)
    assert Repository(str(place.path), status, LocalSystem()).url() in ("", '"' * 500_000)


@pytest.mark.everything
@pytest.mark.attack("checkout.endless")
def test_a_record_that_is_not_ours_says_nothing(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    for text in (
        "",
        "{",
        '{"begun": 5}',
        '{"begun": "--output=x", "commit": "-x"}',
        "[]",
        f'{{"x":{"[" * 100_000}',
    ):
        (place.path / ".git/puller").write_text(text)
        assert place.apply(url=remote.url, revision="v1") == []
        (place.path / "file").write_text("by hand")
        with pytest.raises(ResourceError, match="has local changes in file"):
            place.apply(url=remote.url, revision="v1")
        place.git("checkout", "--quiet", "--", "file")


@pytest.mark.attack("checkout.exchange")
@pytest.mark.root
def test_a_tree_exchanged_before_git_starts_is_refused(
    place: Place, open_to_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if root has allowed git every directory. The tree is replaced after Puller has checked it."""
    (open_to_all / "home").mkdir()
    (open_to_all / "home/.gitconfig").write_text("[safe]\n\tdirectory = *\n")
    monkeypatch.setattr(
        "puller.system.commands.base_environment", lambda: {**BASE, "HOME": f"{open_to_all}/home"}
    )
    theirs, marks = Remote(open_to_all / "remote"), open_to_all / "marks"
    theirs.commit("one", tag="v1")
    place.path = open_to_all / "app"
    place.apply(url=theirs.url, revision="v1")
    marks.mkdir()
    marks.chmod(0o777)
    arm(place.path, marks)
    real = LocalSystem.query

    def exchanged(self: LocalSystem, command: Command) -> Completed:
        give(place.path)
        return real(self, command)

    monkeypatch.setattr(LocalSystem, "query", exchanged)
    with pytest.raises(ResourceError, match="belongs to user 65534 now, not to user 0"):
        place.apply(url=theirs.url, revision="v1")
    assert not (marks / "ran").exists()
