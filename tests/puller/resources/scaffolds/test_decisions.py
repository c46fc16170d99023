"""The decision tables of the scaffold type: states, changes, messages of dry runs, and preserved files."""

from hashlib import sha256
from typing import Any

import pytest

# The files of each situation in the target of a scaffold with the templates ``app.conf`` and ``conf.d/a.conf``.
RENDERED = {"app.conf": "host web01\n", "conf.d/a.conf": "a\n"}
TEMPLATES = {"app.conf": "host [[ facts.hostname ]]\n", "conf.d/a.conf": "a\n", "_partials/p": "not rendered"}
SITUATIONS: dict[str, dict[str, str] | None] = {
    "no target": None,
    "an empty target": {},
    "all as rendered": RENDERED,
    "one file differs": {**RENDERED, "app.conf": "old\n"},
    "one file is missing": {"app.conf": "host web01\n"},
    "all as rendered, and foreign files": {**RENDERED, "old.conf": "o\n", "other.d/x": "x\n"},
    "one file differs, and foreign files": {
        **RENDERED,
        "app.conf": "old\n",
        "old.conf": "o\n",
        "conf.d/b": "b\n",
    },
    "only foreign files": {"old.conf": "o\n", "conf.d/b": "b\n"},
}

# (ensure, purge, situation) → message of the dry run, and files in the target afterwards (None: no target).
FOREIGN = {"old.conf": "o\n", "other.d/x": "x\n"}
TABLE: list[tuple[str, bool, str, str, dict[str, str] | None]] = [
    ("present", False, "no target", "Would have changed 2 scaffold files", RENDERED),
    ("present", False, "an empty target", "Would have changed 2 scaffold files", RENDERED),
    ("present", False, "all as rendered", "stable", RENDERED),
    ("present", False, "one file differs", "Would have changed 1 scaffold files", RENDERED),
    ("present", False, "one file is missing", "Would have changed 1 scaffold files", RENDERED),
    ("present", False, "all as rendered, and foreign files", "stable", {**RENDERED, **FOREIGN}),
    (
        "present", False, "one file differs, and foreign files",
        "Would have changed 1 scaffold files", {**RENDERED, "old.conf": "o\n", "conf.d/b": "b\n"},
    ),
    (
        "present", False, "only foreign files",
        "Would have changed 2 scaffold files", {**RENDERED, "old.conf": "o\n", "conf.d/b": "b\n"},
    ),
    ("present", True, "no target", "Would have changed 2 scaffold files", RENDERED),
    ("present", True, "an empty target", "Would have changed 2 scaffold files", RENDERED),
    ("present", True, "all as rendered", "stable", RENDERED),
    ("present", True, "one file differs", "Would have changed 1 scaffold files", RENDERED),
    ("present", True, "one file is missing", "Would have changed 1 scaffold files", RENDERED),
    ("present", True, "all as rendered, and foreign files", "Would have changed 2 scaffold files", RENDERED),
    ("present", True, "one file differs, and foreign files", "Would have changed 3 scaffold files", RENDERED),
    ("present", True, "only foreign files", "Would have changed 4 scaffold files", RENDERED),
    *(
        row
        for purge in (False, True)
        for row in (
            ("absent", purge, "no target", "stable", None),
            ("absent", purge, "an empty target", "stable", {}),
            ("absent", purge, "all as rendered", "Would have removed 2 scaffold files", None),
            ("absent", purge, "one file differs", "Would have removed 2 scaffold files", None),
            ("absent", purge, "one file is missing", "Would have removed 1 scaffold files", None),
            ("absent", purge, "all as rendered, and foreign files", "Would have removed 2 scaffold files", FOREIGN),
            (
                "absent", purge, "one file differs, and foreign files",
                "Would have removed 2 scaffold files", {"old.conf": "o\n", "conf.d/b": "b\n"},
            ),
            ("absent", purge, "only foreign files", "stable", {"old.conf": "o\n", "conf.d/b": "b\n"}),
        )
    ),
]  # fmt: skip


def arrange(bench: Any, situation: str) -> None:
    for path, text in TEMPLATES.items():
        bench.template(path, text)
    files = SITUATIONS[situation]
    if files is not None:
        bench.target.mkdir()
        for path, text in files.items():
            bench.present(path, text)


def test_the_table_has_every_case() -> None:
    cases = {(ensure, purge, situation) for ensure, purge, situation, *_ in TABLE}
    assert len(cases) == len(TABLE) == 2 * 2 * len(SITUATIONS)


@pytest.mark.parametrize(("ensure", "purge", "situation", "noop", "after"), TABLE)
def test_noop_predicts_the_run_and_the_second_is_stable(
    bench: Any, ensure: str, purge: bool, situation: str, noop: str, after: dict[str, str] | None
) -> None:
    arrange(bench, situation)
    done = bench.apply(ensure=ensure, purge=purge)
    assert done.noop == noop
    assert (done.differences == []) == (noop == "stable")
    assert bench.target.exists() == (after is not None)
    assert bench.files() == (after or {})


@pytest.mark.parametrize(("ensure", "purge", "situation", "noop", "after"), TABLE)
def test_matching_file_is_not_written_again(
    bench: Any, ensure: str, purge: bool, situation: str, noop: str, after: dict[str, str] | None
) -> None:
    arrange(bench, situation)
    before = bench.snapshot()
    bench.apply(ensure=ensure, purge=purge)
    retained = {path: status for path, status in bench.snapshot().items() if before.get(path) == status}
    files = SITUATIONS[situation] or {}
    untouched = {path for path, text in (after or {}).items() if files.get(path) == text}
    assert {str(bench.target / path) for path in untouched} <= retained.keys()
    del noop


def test_the_lists_of_the_state_are_those_of_the_design(bench: Any) -> None:
    arrange(bench, "one file differs, and foreign files")
    state = bench.scaffold(purge=True).look()
    assert (state.changed, state.stable, state.purged) == (
        ("app.conf",),
        ("conf.d/a.conf",),
        ("conf.d/b", "old.conf"),
    )
    state = bench.scaffold(ensure="absent").look()
    assert (state.changed, state.stable, state.purged) == (("app.conf",), ("conf.d/a.conf",), ())


def test_the_differences_are_a_list_of_the_files(bench: Any) -> None:
    arrange(bench, "one file differs, and foreign files")
    bench.present("conf.d/a.conf", "a\n", mode=0o600)
    app, mode, *purged = bench.apply(purge=True, mode="0644").differences
    assert app == "app.conf content: 4 bytes → 11 bytes"
    assert mode == "conf.d/a.conf mode 0600 → 0644"
    assert purged == ["conf.d/b removed", "old.conf removed"]
    bench.present("app.conf", "host web02\n")
    (content,) = bench.apply().differences
    there, desired = (sha256(text).hexdigest()[:8] for text in (b"host web02\n", b"host web01\n"))
    assert content == f"app.conf content: {there} → {desired}"


def test_a_missing_target_is_a_difference_of_its_own(bench: Any) -> None:
    arrange(bench, "no target")
    assert bench.apply().differences == [
        "ensure absent → a directory",
        "app.conf added",
        "conf.d/a.conf added",
    ]


def test_the_ensure_that_is_reported_is_that_of_the_target(bench: Any) -> None:
    """The reference always reported a scaffold as present."""
    arrange(bench, "no target")
    for ensure, reported in (("absent", "absent"), ("present", "present"), ("absent", "absent")):
        bench.apply(ensure=ensure)
        scaffold = bench.scaffold(ensure=ensure)
        assert scaffold.final_ensure(scaffold.look()) == reported


def test_a_tree_of_which_nothing_is_left_is_stable(bench: Any) -> None:
    """The reference never considered a scaffold without files stable."""
    bench.template("app.conf", "[[ if data.on ]]on[[ end ]]\n")
    bench.data = {"on": False}
    bench.present("app.conf", "on\n")
    assert bench.apply(skip_empty=True, purge=True).noop == "Would have changed 1 scaffold files"
    assert bench.files() == {}
    bench.target.rmdir()
    assert bench.apply(skip_empty=True).noop == "Would have created the target directory"


def test_absent_needs_no_source_when_there_is_nothing_to_remove(bench: Any) -> None:
    assert bench.apply(ensure="absent", source="gone").noop == "stable"


@pytest.mark.parametrize("purge", [False, True])
def test_directories_that_become_empty_go_with_their_files(bench: Any, purge: bool) -> None:
    """The reference left directories of purged files, and such directories prevented removal of the target."""
    bench.template("a/b/c/file")
    bench.template("a/_partials/p")
    bench.template("e/_partials/only")
    bench.apply()
    (bench.target / "e").mkdir()
    bench.present("a/b/old/x/file")
    bench.apply(purge=purge)
    assert "a/b/old/x/file" in bench.files() or purge
    assert (bench.target / "a/b/old").exists() is not purge
    if purge:
        bench.apply(ensure="absent")
        assert not bench.target.exists()


def test_empty_foreign_directories_are_purged(bench: Any) -> None:
    bench.template("file")
    bench.apply()
    (bench.target / "old").mkdir()
    assert bench.apply().noop == "stable"
    assert bench.apply(purge=True).differences == ["old removed"]
    assert bench.files() == {"file": "x\n"}
    (bench.target / "theirs").mkdir()
    bench.apply(ensure="absent")
    assert bench.files() == {"theirs/": ""}


def test_a_target_deep_down_is_made_with_its_parents(bench: Any) -> None:
    bench.template("file")
    bench.target = bench.target / "some" / "where"
    bench.apply(mode="0600")
    assert (bench.target / "file").stat().st_mode & 0o777 == 0o600
    assert bench.target.stat().st_mode & 0o777 == 0o700
    assert bench.target.parent.stat().st_mode & 0o777 == 0o755


def test_later_resources_find_planned_files_in_noop(bench: Any) -> None:
    bench.template("d/file")
    bench.present("old")
    scaffold = bench.scaffold(noop=True, purge=True)
    actual = scaffold.look()
    scaffold.noop_message(scaffold.differences(actual), actual)
    system, target = scaffold.context.system, str(bench.target)
    assert system.exists(f"{target}/d/file")
    assert system.is_directory(f"{target}/d")
    assert not system.exists(f"{target}/old")
    bench.apply()
    scaffold = bench.scaffold(noop=True, ensure="absent")
    actual = scaffold.look()
    scaffold.noop_message(scaffold.differences(actual), actual)
    assert not scaffold.context.system.exists(f"{target}/d/file")
