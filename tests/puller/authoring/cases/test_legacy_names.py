"""Legacy names of facts in cases: the machine of a case has every legacy fact that a manifest can use on a host."""

from pathlib import Path

import pytest

from puller.cli import main


def test_a_case_has_the_legacy_names_of_its_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "manifest.yaml").write_text(
        "resources:\n"
        '  - file: [{/etc/a: {content: "{{ facts.osfamily }} {{ facts.ipaddress_eth0 }}", owner: root, group: root, '
        'mode: "0644"}}]\n'
    )
    (tmp_path / "tests" / "one.yaml").write_text(
        "os: rocky-9\n"
        "facts: {networking: {interfaces: {eth0: {ip: 192.0.2.7}}}}\n"
        'expect: {file#/etc/a: {content: "RedHat 192.0.2.7"}}\n'
    )
    with pytest.raises(SystemExit) as caught:
        main(["test", str(tmp_path)])
    assert caught.value.code == 0, capsys.readouterr().out
