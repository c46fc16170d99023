"""The commands of ``docs/secrets.md`` about encrypted files print the shown output."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from hiera.sops.identities import is_recipient, new_identity
from puller.authoring.secrets.recipients import Reader
from tests.support.ssh_keys import make_ssh_key

if TYPE_CHECKING:
    from tests.support.stories import Execute

PAGE = (Path(__file__).parents[1] / "docs/secrets.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_readers_of_the_table_are_valid() -> None:
    rows = re.findall(r"^\| `([^`]+=[^`]+)` \|", PAGE[PAGE.index("| reader |") :], re.MULTILINE)
    assert len(rows) == 6
    assert all(Reader.parse(row).text == row for row in rows)


def test_commands_print_the_shown_output(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, alice = new_identity()
    (tmp_path / "key.txt").write_text(f"{identity}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOPS_AGE_KEY_FILE", "key.txt")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "editor.py").write_text("import sys\nopen(sys.argv[1], 'a').write('more: 1\\n')\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} editor.py")
    for name in ("SOPS_EDITOR", "SOPS_AGE_KEY", "SOPS_CONFIG", "PULLER_FLEET_STORE"):
        monkeypatch.delenv(name, raising=False)

    (written,) = [yaml.safe_load(block) for block in blocks("yaml") if block.startswith("people:")]
    (host,) = written["hosts"].values()
    assert is_recipient(written["people"]["alice"])
    assert is_recipient(host["recipient"])
    written["people"]["alice"] = alice
    host["recipient"] = make_ssh_key(tmp_path / "web1")
    recipients = tmp_path / "recipients.yaml"
    recipients.write_text(yaml.safe_dump(written))
    secret = tmp_path / "bundles/web/data/secrets.yaml"
    secret.parent.mkdir(parents=True)
    secret.write_text("token: hunter2\n")

    first, last = [block for block in blocks("console") if "puller secrets" in block]
    assert shown(first, execute).endswith("secrets.yaml: saved\ntoken: hunter2\nmore: 1\n")
    monkeypatch.setenv("EDITOR", "/bin/false")
    secret_text = secret.read_text()
    assert "hunter2" not in secret_text
    written["hosts"] = {}
    written["files"][0]["readers"] = ["person=alice"]
    recipients.write_text(yaml.safe_dump(written))
    assert shown(last, execute) == "    more\n"


def shown(block: str, execute: Execute) -> str:
    """Run the commands of a block, compare their output with the shown output, and return the rest."""
    rest = ""
    for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, expected = command.partition("\n")
        status, output = execute(*shlex.split(line)[1:])
        assert status == 0, output
        assert output.startswith(expected), output
        rest += output[len(expected) :]
    return rest
