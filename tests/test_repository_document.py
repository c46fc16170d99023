"""``docs/repository.md``: its commands print the shown output, and it names all keys."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.authoring.cases.contexts import MachineEntry

PAGE = (Path(__file__).parents[1] / "docs/repository.md").read_text()
FILES = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
(SESSION,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)


def test_the_commands_of_the_page_print_its_output(
    execute: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, text in FILES.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    commands = re.findall(r"^\$ puller (.*)\n((?:(?!\$ ).*\n)*)", SESSION, re.MULTILINE)
    assert len(commands) == 2
    for line, output in commands:
        assert execute(*line.split()) == (0, output)


def test_the_page_names_all_keys() -> None:
    rows = PAGE.partition("## Which file")[0]
    assert re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE) == list(MachineEntry.__struct_fields__)
