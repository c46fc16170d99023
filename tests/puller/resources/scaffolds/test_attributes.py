"""Owner, group and mode: declared attributes are managed, and all others are preserved."""

import os
from typing import Any

import pytest

from puller.errors import ResourceError


def modes(bench: Any) -> dict[str, str]:
    return {
        str(path.relative_to(bench.target)): f"{path.stat().st_mode & 0o7777:04o}"
        for path in sorted(bench.target.rglob("*"))
    }


def test_new_files_are_plain_or_executable_as_their_templates(bench: Any) -> None:
    """The reference never copied modes."""
    bench.template("bin/run", "#!/bin/sh\n", mode=0o755)
    bench.template("plain.conf", '[[ write("bin/written", "w") ]]', mode=0o600)
    bench.apply()
    assert modes(bench) == {"bin": "0755", "bin/run": "0755", "bin/written": "0644", "plain.conf": "0644"}


def test_a_mode_that_is_given_is_repaired(bench: Any) -> None:
    """The reference never detected a drifted mode."""
    bench.template("app.conf")
    bench.template("d/b.conf")
    bench.apply(mode="0640")
    assert modes(bench) == {"app.conf": "0640", "d": "0750", "d/b.conf": "0640"}
    inode = (bench.target / "app.conf").stat().st_ino
    (bench.target / "app.conf").chmod(0o644)
    done = bench.apply(mode="0640")
    assert [*map(str, done.differences)] == ["app.conf mode 0644 → 0640"]
    assert done.noop == "Would have changed 1 scaffold files"
    assert modes(bench)["app.conf"] == "0640"
    assert (bench.target / "app.conf").stat().st_ino == inode, "only the mode was wrong"


def test_unset_mode_survives_new_content(bench: Any) -> None:
    bench.template("app.conf", "[[ data.n ]]\n")
    bench.data = {"n": 1}
    bench.apply()
    (bench.target / "app.conf").chmod(0o600)
    assert bench.apply().noop == "stable"
    bench.data = {"n": 2}
    bench.apply()
    assert (bench.files(), modes(bench)) == ({"app.conf": "2\n"}, {"app.conf": "0600"})


@pytest.mark.parametrize(
    ("mask", "mode"), [("xx0", "0640"), ("7xx", "0744"), ("x00", "0600"), ("xxx", "0644")]
)
def test_a_mask_leaves_some_digits_as_they_are(bench: Any, mask: str, mode: str) -> None:
    bench.template("app.conf")
    bench.apply(mode=mask)
    assert modes(bench) == {"app.conf": mode}


def test_existing_directories_keep_their_attributes(bench: Any) -> None:
    """A target may be /etc, which must not get mode 0600."""
    bench.template("old/a.conf")
    bench.template("new/b.conf")
    bench.target.mkdir(mode=0o751)
    (bench.target / "old").mkdir(mode=0o711)
    bench.apply(mode="0600")
    assert bench.target.stat().st_mode & 0o777 == 0o751
    assert modes(bench) == {"new": "0700", "new/b.conf": "0600", "old": "0711", "old/a.conf": "0600"}


def test_a_setuid_bit_goes_with_a_managed_mode(bench: Any) -> None:
    bench.template("run")
    bench.present("run", mode=0o4755)
    assert bench.apply(mode="0755").differences == ["run mode 4755 → 0755"]


@pytest.mark.root
def test_owner_and_group_are_managed_when_they_are_given(bench: Any) -> None:
    """The reference ignored owner and group."""
    bench.template("d/app.conf")
    bench.apply(owner="nobody", group=12345)
    status = [(path.stat().st_uid, path.stat().st_gid) for path in (bench.target, *bench.target.rglob("*"))]
    assert status == [(65534, 12345)] * 3
    os.chown(bench.target / "d/app.conf", 0, 0)
    assert bench.apply().noop == "stable"
    done = bench.apply(owner="nobody", group="12345")
    assert [*map(str, done.differences)] == [
        "d/app.conf owner root → nobody",
        "d/app.conf group root → 12345",
    ]


@pytest.mark.root
def test_unset_owner_survives_new_content(bench: Any) -> None:
    bench.template("app.conf", "new\n")
    os.chown(bench.present("app.conf", "old\n", mode=0o640), 1, 2)
    bench.apply()
    status = (bench.target / "app.conf").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1, 2, 0o640)


@pytest.mark.parametrize("what", ["owner", "group"])
def test_unknown_owner_is_refused_unless_expected(bench: Any, what: str) -> None:
    bench.template("app.conf")
    bench.apply()
    who = {what: "nobody-by-that-name"}
    kind = {"owner": "user", "group": "group"}[what]
    assert bench.fail(**who) == f"{what} is 'nobody-by-that-name', an unknown {kind}"
    scaffold = bench.scaffold(noop=True, uncertain=True, **who)
    (difference,) = scaffold.differences(scaffold.look())
    assert (difference.property, difference.path, difference.desired) == (
        what,
        "app.conf",
        "nobody-by-that-name",
    )
    with pytest.raises(ResourceError):
        bench.scaffold(uncertain=False, **who).look()


@pytest.mark.root
@pytest.mark.parametrize("mode", [None, "go-w"])
def test_change_of_owner_clears_set_id_bits(bench: Any, mode: str | None) -> None:
    bench.template("run", mode=0o755)
    bench.present("run", mode=0o4755)
    os.chown(bench.target / "run", 65534, 65534)
    (bench.target / "run").chmod(0o4755)
    bench.apply(owner=str(os.geteuid()), group=str(os.getegid()), **({"mode": mode} if mode else {}))
    assert modes(bench) == {"run": "0755"}


def test_changes_to_a_mode_and_special_bits_are_as_for_a_file(bench: Any) -> None:
    bench.template("d/run", "#!/bin/sh\n", mode=0o755)
    bench.apply(mode="u=rwX,go=rX")
    assert modes(bench) == {"d": "0755", "d/run": "0755"}
    (bench.target / "d/run").chmod(0o611)
    bench.apply(mode="a-x,u=rwX,go=rX")
    assert modes(bench)["d/run"] == "0644"
    bench.apply(mode="2755")
    assert modes(bench)["d/run"] == "2755"
    assert bench.apply(mode="2755").noop == "stable"
