"""Runs killed between any two steps: every file is old or new, and the next run converges."""

from collections.abc import Callable
from typing import Any

import pytest

from puller.system.local import LocalSystem


class Killed(BaseException):
    """Raised where the process is killed. Like SIGKILL, it is never caught."""


class Mortal(LocalSystem):
    """The real system, killed after ``steps`` steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def count(self) -> None:
        if self.steps == 0:
            raise Killed
        self.steps -= 1


def _mortal(name: str) -> Callable[..., Any]:
    def step(self: Mortal, *arguments: Any, **options: Any) -> Any:
        self.count()
        return getattr(LocalSystem, name)(self, *arguments, **options)

    return step


for _name in ("replace_file", "make_directory", "set_attributes", "set_note", "remove", "execute"):
    setattr(Mortal, _name, _mortal(_name))


def kill_at_each_step(bench: Any, arrange: Callable[[], None], **properties: Any) -> list[dict[str, str]]:
    """Return the target's files after a run killed at step 0, 1, …, each followed by a complete run."""
    seen: list[dict[str, str]] = []
    while True:
        arrange()
        scaffold = bench.scaffold(system=Mortal(len(seen)), **properties)
        actual = scaffold.look()
        try:
            scaffold.change(scaffold.differences(actual), actual)
        except Killed:
            seen.append(bench.files())
            bench.apply(**properties)
        else:
            return seen


def arranged(bench: Any) -> Callable[[], None]:
    def arrange() -> None:
        bench.apply(source="old", ensure="present", purge=True)

    for path, text in {
        "a.conf": "old a\n",
        "d/b.conf": "old b\n",
        "gone/c.conf": "old c\n",
        "way": "old\n",
    }.items():
        (bench.directory / "old" / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.directory / "old" / path).write_text(text)
    for path, text in {
        "a.conf": "new a\n",
        "d/b.conf": "new b\n",
        "e/f/c.conf": "new c\n",
        "way/x": "x\n",
    }.items():
        bench.template(path, text)
    return arrange


def test_killed_run_leaves_old_or_new_files_in_order(bench: Any) -> None:
    seen = kill_at_each_step(bench, arranged(bench), purge=True, mode="0644")
    assert len(seen) >= 10
    for files in seen:
        assert files.get("a.conf") in ("old a\n", "new a\n")
        assert files.get("d/b.conf") in ("old b\n", "new b\n")
        assert "gone/c.conf" in files or files["e/f/c.conf"] == "new c\n"
    assert bench.files() == {
        "a.conf": "new a\n",
        "d/b.conf": "new b\n",
        "e/f/c.conf": "new c\n",
        "way/x": "x\n",
    }


def test_pending_post_commands_survive_a_kill(bench: Any) -> None:
    arrange = arranged(bench)
    (bench.source / "way" / "x").unlink()
    post = [{"*.conf": "sh -c 'echo done >> $0'"}]
    seen = kill_at_each_step(bench, arrange, post=post)
    assert len(seen) >= 8
    for files in seen:
        assert files["a.conf"] in ("old a\n", "new a\ndone\n")
    assert {path: text for path, text in bench.files().items() if text.endswith("done\n")}.keys() == {
        "a.conf",
        "d/b.conf",
        "e/f/c.conf",
    }


def test_interrupted_removal_is_completed(bench: Any) -> None:
    def arrange() -> None:
        bench.apply()

    arranged(bench)
    seen = kill_at_each_step(bench, arrange, ensure="absent")
    assert len(seen) >= 8
    assert not bench.target.exists()


@pytest.mark.parametrize("step", ["replace_file", "make_directory"])
def test_full_disk_is_a_failure_and_the_next_run_continues(
    bench: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    bench.template("d/a.conf", "a\n")

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    scaffold = bench.scaffold()
    actual = scaffold.look()
    with monkeypatch.context() as patched:
        patched.setattr(LocalSystem, step, full)
        with pytest.raises(OSError, match="No space left"):
            scaffold.change(scaffold.differences(actual), actual)
    bench.apply()
    assert bench.files() == {"d/a.conf": "a\n"}
