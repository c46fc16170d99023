"""For any source and target, one run converges, a second run changes nothing, and a dry run predicts both."""

import os
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.errors import ResourceError

Path_: TypeAlias = tuple[str, ...]

PATHS = st.lists(st.sampled_from(["a", "b", "c", "_partials"]), min_size=1, max_size=3).map(tuple)
TEXTS = st.sampled_from(["", "x\n", "[[ facts.hostname ]]\n", " \n"])
THINGS = st.one_of(
    TEXTS.map(lambda text: text.replace("[[ facts.hostname ]]", "web01")),
    st.sampled_from(["-> outside", "-> outside/file", "-> nowhere", "-> a", "directory", "fifo"]),
)


def fits(path: Path_, others: dict[Path_, str]) -> bool:
    """Return whether the path, its parents and its children are free."""
    return not any(other[: len(path)] == path or path[: len(other)] == other for other in others)


def trees(contents: st.SearchStrategy[str]) -> st.SearchStrategy[dict[Path_, str]]:
    def possible(results: list[tuple[Path_, str]]) -> dict[Path_, str]:
        made: dict[Path_, str] = {}
        for path, content in results:
            if fits(path, made):
                made[path] = content
        return made

    return st.lists(st.tuples(PATHS, contents), max_size=6).map(possible)


def build(root: Path, found: dict[Path_, str], outside: Path) -> None:
    for path, content in found.items():
        place = root.joinpath(*path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            to = content[3:]
            place.symlink_to(to if to == "nowhere" else root / "a" if to == "a" else outside.parent / to)
        elif content == "directory":
            place.mkdir()
        elif content == "fifo":
            os.mkfifo(place)
        else:
            place.write_text(content)


def rendered(source: dict[Path_, str], *, skip_empty: bool) -> dict[str, str]:
    """Return the expected files, computed independently of the product."""
    out = {}
    for path, text in source.items():
        ended = [
            above for above in source if above[-1] == "_partials" and above[:-1] == path[: len(above) - 1]
        ]
        hidden = any(path[len(above) - 1 :] >= ("_partials",) for above in ended)
        result = text.replace("[[ facts.hostname ]]", "web01").replace(" \n", "" if text == " \n" else " \n")
        if "_partials" not in path and not hidden and not (skip_empty and not result.strip()):
            out["/".join(path)] = result
    return out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    source=trees(TEXTS).filter(bool),
    target=trees(THINGS),
    ensure=st.sampled_from(["present", "absent"]),
    purge=st.booleans(),
    skip_empty=st.booleans(),
)
def test_run_converges_or_is_refused_as_predicted(
    bench: Any,
    source: dict[Path_, str],
    target: dict[Path_, str],
    ensure: str,
    purge: bool,
    skip_empty: bool,
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        here = type(bench)(Path(scratch))
        outside = here.directory / "outside"
        outside.mkdir()
        (outside / "file").write_text("precious\n")
        build(here.source, source, outside)
        build(here.target, target, outside)
        before = here.files()
        properties = {"ensure": ensure, "purge": purge, "skip_empty": skip_empty}
        desired = rendered(source, skip_empty=skip_empty)
        try:
            here.apply(**properties)
        except ResourceError:
            assert here.fail(**properties), "for the same reason in a dry run, and nothing was changed"
            assert ensure == "present"
            assert not purge
        else:
            ours = {f"{'/'.join(path[:depth])}/" for path in source for depth in range(1, 4)}
            check(
                ensure,
                purge,
                {path: text for path, text in before.items() if path not in ours},
                desired,
                here.files(),
            )
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "precious\n"}


def check(
    ensure: str, purge: bool, before: dict[str, str], wanted: dict[str, str], after: dict[str, str]
) -> None:
    managed = wanted.keys()
    if ensure == "present":
        assert {path: text for path, text in after.items() if path in managed} == wanted
        if purge:
            assert after == wanted
    else:
        assert managed & after.keys() == set()
    if ensure == "absent" or not purge:
        foreign = {path: text for path, text in before.items() if path not in managed}
        assert foreign.items() <= after.items(), "what belongs to others stays"
