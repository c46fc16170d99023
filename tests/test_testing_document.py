"""``docs/testing-bundles.md``: its cases have the described results."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.authoring.cases.case_files import Case
from puller.authoring.cases.matchers import TAGS

PAGE = (Path(__file__).parents[1] / "docs/testing-bundles.md").read_text()
FILES = dict(re.findall(r"```yaml\n# (web/\S+)\n(.*?)```", PAGE, re.DOTALL))
MANIFEST = """\
data: {workers: 2}
resources:
  - package: [nginx: ]
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/app/app.conf: {content: "workers = {{ data.workers }}\\n"}
      - /etc/app/address: {content: "{{ facts.networking.ip or undef('no address') }}"}
"""


def test_the_cases_of_the_page_pass(
    execute: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, text in {**FILES, "web/manifest.yaml": MANIFEST}.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    status, output = execute("test", "web")
    assert status == 0, output
    assert "2 cases: 2 passed" in output


def test_the_page_names_all_keys_and_tags() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(Case.__struct_encode_fields__)
    assert set(re.findall(r"`(!\w+)", PAGE)) == set(TAGS)
