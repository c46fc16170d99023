"""Only git commands that contact the remote get its credentials, and only in a tree of the expected owner."""

import os
import re
from pathlib import Path

import pytest

from puller.errors import ResourceError
from tests.puller.resources.checkouts.conftest import Place
from tests.puller.resources.checkouts.test_over_the_network import SECRET, Backend, url_of, web
from tests.support.git_remotes import Remote, give

__all__ = ["web"]  # a fixture

NETWORK = {"clone", "fetch", "ls-remote"}
NOBODY = 65534


def given_credentials(place: Place) -> set[str]:
    """Return the git commands that had credentials in their environment."""
    pairs = zip(place.started, place.commands, strict=False)
    return {name for name, command in pairs if "GIT_CONFIG_VALUE_0" in command.environment}


@pytest.mark.everything
@pytest.mark.attack("secrets.checkout")
def test_only_network_commands_get_credentials(place: Place, remote: Remote, web: type[Backend]) -> None:
    url = url_of(web, f"joe:{SECRET}@")
    commands: set[str] = set()

    def act(**properties: object) -> None:
        place.apply(url=url, **properties)
        commands.update(place.started)
        assert given_credentials(place) == NETWORK & {*place.started}

    act(revision="v1")
    remote.commit("three", tag="v3")
    act(revision="v3")
    (place.path / "file").write_text("mine")
    act(revision="v3", force=True)
    act(revision="main", ensure="latest")
    act(ensure="absent")
    assert commands >= {*NETWORK, "status", "checkout", "reset", "rev-list", "ls-files"}


@pytest.mark.attack("checkout.owner")
@pytest.mark.root
@pytest.mark.parametrize("owner", [None, "root", "www-data"])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.representatives(1)
def test_a_swapped_repository_gets_no_credentials(
    place: Place, remote: Remote, web: type[Backend], open_to_all: Path, owner: str | None, force: bool
) -> None:
    place.path, url = open_to_all / "app", url_of(web, f"joe:{SECRET}@")
    declared = {"url": url, "revision": "main", "ensure": "latest", "force": force}
    declared |= {} if owner is None else {"owner": owner}
    place.apply(**declared)
    leak = open_to_all / "leak"
    leak.mkdir()
    leak.chmod(0o777)
    place.git("config", "filter.evil.clean", f"env >> {leak}/environment; cat")
    (place.path / ".git/info").mkdir(exist_ok=True)
    (place.path / ".git/info/attributes").write_text("* filter=evil\n")
    give(place.path, NOBODY)
    os.utime(place.path / "file", (1, 1))
    remote.commit("three")
    web.seen.clear()
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="owner"):
            act(**declared)
    assert web.seen == []
    environment = (leak / "environment").read_text() if (leak / "environment").exists() else ""
    assert "GIT_CONFIG_VALUE" not in environment
    assert (environment == "") is (owner is not None)


@pytest.mark.everything
@pytest.mark.attack("checkout.owner")
@pytest.mark.root
@pytest.mark.parametrize("noop", [True, False])
def test_a_directory_of_a_user_gets_no_credentials(
    place: Place, web: type[Backend], open_to_all: Path, noop: bool
) -> None:
    place.path, url = open_to_all / "app", url_of(web, f"joe:{SECRET}@")
    place.path.mkdir()
    give(place.path, NOBODY)
    with pytest.raises(ResourceError, match=re.escape("declare owner: nobody")):
        (place.predict if noop else place.apply)(url=url, revision="v1")
    assert web.seen == []
    place.apply(url=url, revision="v1", owner="nobody")
    assert web.seen
