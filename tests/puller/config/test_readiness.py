"""``puller config check`` refuses every configuration with which ``puller run`` cannot work on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host

pytestmark = pytest.mark.root


def damage(path: str | Path) -> None:
    Path(path).write_text("damaged")


Change = Callable[["Host", Path], dict[str, Any]]


def anchor(change: Callable[[Path], object]) -> Change:
    def apply(host: Host, _: Path) -> dict[str, Any]:
        change(Path(host.settings["trust_anchor"]))
        return {}

    return apply


def file(key: str, text: str, mode: int = 0o600) -> Change:
    """Return a change that sets the key to a file with this text."""

    def apply(_: Host, place: Path) -> dict[str, Any]:
        (place / "file").write_text(text)
        (place / "file").chmod(mode)
        return {key: str(place / "file")}

    return apply


def nested(key: str, change: Change) -> Change:
    """Return a change below another key."""

    def apply(host: Host, place: Path) -> dict[str, Any]:
        return {key: {**host.settings.get(key, {}), **change(host, place)}}

    return apply


def given(**changes: Any) -> Change:
    return lambda _, place: {key: _placed(value, place) for key, value in changes.items()}


def _placed(value: Any, place: Path) -> Any:
    if isinstance(value, dict):
        return {key: _placed(item, place) for key, item in value.items()}
    if isinstance(value, list):
        return [_placed(item, place) for item in value]
    return value.replace("PLACE", str(place)) if isinstance(value, str) else value


CASES: dict[str, tuple[Change, str]] = {
    "no anchor": (anchor(os.unlink), "trust_anchor"),
    "damaged anchor": (anchor(damage), "trust_anchor"),
    "anchor of others": (anchor(lambda path: path.chmod(0o666)), "trust_anchor"),
    "anchor that is a directory": (given(trust_anchor="PLACE"), "trust_anchor"),
    "no site": (given(site="PLACE/none"), "site"),
    "name of a bundle": (given(bundles=[{"name": "Web"}]), "bundles"),
    "version of a bundle": (given(bundles=[{"name": "web", "version": "a/b"}]), "bundles"),
    "channel of a bundle": (given(bundles=[{"name": "web", "channel": "Sta ble"}]), "bundles"),
    "damaged host data": (file("host_data", "data: [\n"), "host_data"),
    "host data of others": (file("host_data", "data: {}\n", 0o666), "host_data"),
    "host data directory": (given(host_data="PLACE"), "host_data"),
    "key of others": (file("eyaml_private_key", "key", 0o666), "eyaml_private_key"),
    "no key": (given(eyaml_private_key="PLACE/none"), "eyaml_private_key"),
    "state in a file": (file("state_directory", ""), "state_directory"),
    "state below a file": (given(state_directory="/etc/hostname/state"), "state_directory"),
    "run in a file": (file("run_directory", ""), "run_directory"),
    "no textfile directory": (given(reports={"textfile": "PLACE/none/a.prom"}), "reports.textfile"),
    "textfile is a directory": (given(reports={"textfile": "PLACE"}), "reports.textfile"),
    "relative textfile": (given(reports={"textfile": "a.prom"}), "reports"),
    "no report directory": (given(reports={"to": ["PLACE/none"]}), "reports.to[0]"),
    "no user": (given(network_user="nobody-here"), "network_user"),
    "no authority": (given(http={"ca_bundle": "PLACE/none"}), "http"),
    "damaged authority": (nested("http", file("ca_bundle", "damaged")), "http"),
    "damaged certificate": (nested("http", file("client_certificate", "damaged")), "http"),
    "key without certificate": (given(http={"client_key": "PLACE/none"}), "http"),
    "no token": (given(http={"token_file": "PLACE/none"}), "http"),
    "empty token": (nested("http", file("token_file", "")), "http"),
    "token of others": (nested("http", file("token_file", "abc", 0o666)), "http"),
    "token and user": (given(http={"token_file": "/etc/hostname", "username": "a"}), "http"),
    "retries": (given(http={"retries": -1}), "http"),
    "timeout": (given(http={"read_timeout": 0}), "http"),
    "header": (given(http={"headers": {"a b": "c"}}), "http"),
    "file of site data": (given(data=["PLACE/none.yaml"]), "host_data"),
}
ENDS_WELL = (
    *("no report directory", "no key", "key of others", "no user"),
    *("no authority", "damaged authority", "damaged certificate"),
)
"""Problems that do not fail a run of this host: reports wait, and neither values nor the site use encryption."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.representatives(6)
def test_unusable_configuration_is_refused(settled: Host, tmp_path: Path, case: str) -> None:
    change, key = CASES[case]
    assert settled.puller("config", "check").status == 0
    place = tmp_path / "place"
    place.mkdir()
    settled.configure(**change(settled, place))
    checked = settled.puller("config", "check")
    assert checked.status == 78, checked.output
    assert "Traceback" not in checked.output
    assert f" {key}" in checked.output
    assert checked.output.count("puller: ") == 1, checked.output
    if case not in ENDS_WELL:
        assert settled.run().status not in (0, 2, 20)


def test_all_problems_of_a_machine_are_listed_with_their_lines(settled: Host, tmp_path: Path) -> None:
    settled.configure(
        trust_anchor=str(tmp_path / "none"), reports={"textfile": str(tmp_path / "none/puller.prom")}
    )
    checked = settled.puller("config", "check")
    assert checked.output.count("puller: ") == 2, checked.output
    lines = settled.configuration.read_text().splitlines()
    number = next(at for at, line in enumerate(lines, 1) if "trust_anchor" in line)
    assert f"config.yaml:{number}: trust_anchor: " in checked.output
    assert settled.puller("config", "check", "--file-only").status == 0


def test_a_mirror_may_be_missing_beside_another_one(settled: Host, tmp_path: Path) -> None:
    settled.configure(site=[str(settled.settings["site"]), str(tmp_path / "none")])
    assert settled.puller("config", "check").status == 0


def test_a_file_system_that_is_read_only_is_found(settled: Host, tmp_path: Path) -> None:
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "puller-test", str(point)], check=True)
    try:
        settled.configure(state_directory=str(point / "state"))
        assert "read-only file system" in settled.puller("config", "check").output
    finally:
        subprocess.run(["umount", str(point)], check=True)


def test_checking_changes_nothing(settled: Host, tmp_path: Path) -> None:
    shutil.rmtree(settled.state)
    assert settled.puller("config", "check").status == 0
    assert not settled.state.exists()
