"""The version that a host falls back to."""

import errno
from pathlib import Path

import pytest

from bundles.store.store import Store
from puller.run.policy.holds import Quarantine
from puller.state import Directories
from tests.support.stories import Host, Publisher

MANIFEST = """\
resources:
  - exec:
      - fails: {command: "false VERSION"}
"""
"""Never passes, so no version is the last good one."""


@pytest.mark.timeout(60)
def test_fallback_that_cannot_be_begun_is_tried_once(
    host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.0.0", "1.1.0"):
        publisher.publish(version, MANIFEST)
        host.run()
    directories = Directories(host.state, Path(host.settings["run_directory"]))
    store = Store(directories.bundles)
    current, previous = store.current("web"), store.previous("web")
    assert current is not None
    assert previous is not None
    Quarantine.load(directories, pytest.fail).add("web", current.version, current.sha256, "killed after this")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "a link")

    with monkeypatch.context() as patched:
        patched.setattr("os.symlink", fail)
        assert host.run().status == 15
    host.run()
    assert store.current("web") == previous
