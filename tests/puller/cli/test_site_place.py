"""The site of ``puller site``: DIR, else ``$PULLER_SITE``, else ``./site``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.stories import Execute


@pytest.fixture(autouse=True)
def _place(new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute) -> None:
    """Make the site ``site`` and the bundle ``web`` in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULLER_SITE", raising=False)
    shutil.copytree(new_site, "site")
    Path("web").mkdir()
    Path("web/manifest.yaml").write_text("resources: []\n")
    assert execute("site", "publish", "web", "--version", "1.0.0")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "verify",
        "refresh",
        "history web",
        "keys list",
        "root show",
        "publish web --version 1.1.0",
        "publish web web --version 1.0.0 --noop --name web",
        "promote web --from stable --to canary",
        "halt web --noop",
        "back web --version 1.0.0",
        "withdraw web --channel stable",
        "rotate timestamp --no-passphrase",
        "threshold targets 1",
        "push www",
        "prune --noop",
        "data --withdraw none",
    ],
)
def test_dir_defaults_to_the_directory_site(words: str, execute: Execute) -> None:
    """Compare each command with and without DIR in equal copies of the site."""
    name, *remainder = words.split()
    if name in ("keys", "root"):
        name, *remainder = (f"{name} {remainder[0]}", *remainder[1:])
    outputs = []
    for directory in ([], ["site"]):
        shutil.copytree("site", "copy")
        outputs.append(execute("site", *name.split(), *directory, *remainder))
        shutil.rmtree("site")
        shutil.rmtree("www", ignore_errors=True)
        Path("copy").rename("site")
    statuses = [status for status, _ in outputs]
    assert statuses[0] == statuses[1]
    assert "is not a site" not in outputs[0][1]


def test_variable_names_the_default_site(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, execute: Execute
) -> None:
    Path("site").rename("elsewhere")
    assert execute("site", "list") == (64, "puller: site: is not a site; `puller site init` creates one\n")
    monkeypatch.setenv("PULLER_SITE", str(tmp_path / "elsewhere"))
    status, output = execute("site", "history", "web")
    assert (status, "web     1.0.0" in output) == (0, True)
    # DIR overrides the variable.
    assert "missing: is not a site" in execute("site", "list", "missing")[1]


def test_a_bundle_named_like_a_directory_is_no_site(execute: Execute) -> None:
    """The directory ``web`` is a bundle here, and also the name of the bundle in the site."""
    status, output = execute("site", "history", "web")
    assert (status, "web     1.0.0" in output) == (0, True)


def test_init_makes_the_default_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute
) -> None:
    monkeypatch.setenv("PULLER_SITE", str(tmp_path / "second"))
    assert execute("site", "init", "--no-passphrase")[0] == 0
    assert execute("site", "list")[0] == 0
    assert execute("site", "init", "third", "--no-passphrase")[0] == 0
    assert Path("third/public").is_dir()
