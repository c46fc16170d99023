"""Bundles that belong together: published, steered, halted and reverted in one signed step, in one order of hosts."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bundles.errors import FormatError, PublishError
from puller.cli.publisher.site import site

NAMES = ("app", "app-conf")


def run(*arguments: str, ok: bool = True) -> Result:
    """Run ``puller site …``. Puller's errors appear as on the command line."""
    result = CliRunner().invoke(site, arguments, catch_exceptions=False)
    assert (result.exit_code == 0) is ok, result.output
    return result


def write(text: str) -> None:
    for name in NAMES:
        Path(name).mkdir(exist_ok=True)
        Path(name, "manifest.yaml").write_text("resources: []\n")
        Path(name, "text").write_text(f"{text}\n")


@pytest.fixture(autouse=True)
def _a_site_with_both(new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULLER_PASSPHRASE", raising=False)
    shutil.copytree(new_site, "site")
    write("old")
    run("publish", "site", *NAMES, "--version", "1.0.0")
    write("new")


def rollouts() -> list[dict[str, Any]]:
    """Return the rollout of each bundle from the JSON output."""
    listed = json.loads(run("list", "site", "--format", "json").output)["releases"]
    return [each["rollout"] for each in listed]


def timestamp() -> int:
    return int(json.loads(Path("site/public/metadata/timestamp.json").read_bytes())["signed"]["version"])


def test_wave_is_published_halted_and_rolled_back_together() -> None:
    run("publish", "site", *NAMES, "--version", "1.1.0", "--percent", "10", "--wave", "shop-7")
    assert rollouts() == [{"percent": 10, "before": "1.0.0", "wave": "shop-7"}] * 2
    before = timestamp()
    output = run("rollout", "site", *NAMES, "--percent", "50").output
    assert (
        "app 1.1.0 is in channel stable, for 50 % of the hosts in wave shop-7; other hosts run 1.0.0"
        in output
    )
    assert "app-conf 1.1.0 is in channel stable, for 50 % of the hosts in wave shop-7" in output
    assert output.count("puller site push") == 1
    assert rollouts() == [{"percent": 50, "before": "1.0.0", "wave": "shop-7"}] * 2
    output = run("halt", "site", *NAMES).output
    assert "Resume:     puller site rollout site app app-conf --channel stable --resume" in output
    assert rollouts() == [{"percent": 50, "before": "1.0.0", "wave": "shop-7", "halted": True}] * 2
    run("back", "site", *NAMES)
    assert rollouts() == [None, None]
    assert timestamp() == before + 3


def test_a_wave_that_grows_by_itself_keeps_its_name() -> None:
    run("publish", "site", *NAMES, "--version", "1.1.0", "--over", "24h", "--wave", "shop-7")
    run("rollout", "site", *NAMES, "--over", "12h")
    assert [rollout["wave"] for rollout in rollouts()] == ["shop-7", "shop-7"]
    assert rollouts()[0] == rollouts()[1]


def test_wave_with_an_unsteerable_bundle_stays() -> None:
    run("publish", "site", "app", "--version", "1.1.0", "--percent", "10", "--wave", "shop-7")
    before = rollouts()
    for command in (("rollout", "--percent", "50"), ("halt",), ("back",)):
        with pytest.raises(PublishError, match=r"app-conf 1\.0\.0: "):
            run(command[0], "site", *NAMES, *command[1:])
    assert rollouts() == before


def test_a_bundle_that_is_named_twice_is_steered_once() -> None:
    run("publish", "site", "app", "--version", "1.1.0", "--percent", "10")
    output = run("rollout", "site", "app", "app", "--percent", "50").output
    assert output.count("app 1.1.0 is in channel stable") == 1


def test_a_wave_needs_a_rollout_and_a_proper_name() -> None:
    output = run("publish", "site", "app", "--version", "1.1.0", "--wave", "x", ok=False).output
    assert "--wave needs --percent or --over" in output
    with pytest.raises(FormatError, match=r"^wave: is 'The First', expected"):
        run("publish", "site", "app", "--version", "1.1.0", "--percent", "1", "--wave", "The First")
    assert rollouts() == [None, None]
