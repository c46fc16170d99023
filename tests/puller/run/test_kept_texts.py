"""The values of a host's texts, kept: the next run reads none of them again, and whatever happens changes no result."""

from __future__ import annotations

import marshal
import os
from typing import TYPE_CHECKING

import pytest

from hiera.sealing import names_of, seal
from hiera.text import kept_values, yaml_reading
from hiera.text.yaml_text import SIZE_LIMIT, load
from puller.run.kept_results import kept_of_configuration
from puller.state.kept_file import KeptFile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Host, Publisher

MANIFEST = """
data: {greeting: hello}
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "{{ data.greeting }} VERSION\\n", mode: "0644"}
"""


@pytest.fixture
def kept(host: Host, publisher: Publisher) -> Host:
    """A host whose first run has made its state, and whose second has kept the value of its configuration, too."""
    publisher.publish("1.0.0", MANIFEST, files={})
    for _ in range(2):
        assert host.run().status == 0
    return host


def refuse_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no text be read from now on."""

    def refuse(text: str, source: str, *rest: object) -> None:
        raise AssertionError(f"{source} is read")

    monkeypatch.setattr(yaml_reading, "read", refuse)


def test_the_next_run_reads_no_text(kept: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_reading(monkeypatch)
    (kept.machine / "motd").unlink()
    assert kept.run().status == 0
    assert (kept.machine / "motd").exists()


def test_a_version_and_the_way_back_are_what_their_texts_say(kept: Host, publisher: Publisher) -> None:
    motd = kept.machine / "motd"
    other = MANIFEST.replace("hello", "good day").replace("0644", "0600")
    for version, manifest, wanted, mode in [
        ("1.1.0", other, "good day 1.1.0\n", 0o600),
        ("1.2.0", MANIFEST, "hello 1.2.0\n", 0o644),
        ("1.3.0", other, "good day 1.3.0\n", 0o600),
    ]:
        publisher.publish(version, manifest, files={})
        for _ in range(2):
            assert kept.run().status == 0
            assert motd.read_text() == wanted
            assert motd.stat().st_mode & 0o777 == mode
    assert kept.puller("rollback", "web").status == 0
    assert motd.read_text() == "hello 1.2.0\n"


def test_a_password_is_in_no_file_that_is_kept(kept: Host) -> None:
    data = kept.state.parent / "host-data.yaml"
    data.write_text("data: {password: topsecret}\n")
    data.chmod(0o600)
    kept.configure(host_data=str(data))
    assert kept.run().status == 0
    assert kept.run().status == 0
    assert not [
        path for path in kept.state.rglob("*") if path.is_file() and b"topsecret" in path.read_bytes()
    ]


def test_a_dry_run_keeps_nothing(kept: Host) -> None:
    for path in (kept.state / "kept").iterdir():
        path.unlink()
    assert kept.run("--noop").status == 0
    assert list((kept.state / "kept").iterdir()) == []


@pytest.mark.parametrize("harm", ["in the way", "open to others", "damage"])
def test_harm_to_what_is_kept_changes_nothing(kept: Host, harm: str) -> None:
    texts = kept.state / "kept/texts"
    if harm == "damage":
        texts.write_bytes(texts.read_bytes()[:-1] + b"\0")
    elif harm == "open to others":
        texts.chmod(0o666)
    else:
        texts.unlink()
        texts.parent.rmdir()
        texts.parent.write_text("")
    (kept.machine / "motd").unlink()
    assert kept.run().status == 0
    assert (kept.machine / "motd").exists()


def test_a_configuration_that_comes_by_a_pipe_is_left_to_its_reader(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "config.yaml")
    usual = kept_of_configuration(str(tmp_path / "none.yaml"))
    assert kept_of_configuration(str(pipe)) == usual


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("site: x\nstate_directory: /srv/puller\n", "/srv/puller/kept"),
        ("state_directory: /srv/puller # ours\n", "/srv/puller/kept"),
        ("state_directory: '/srv/puller'\n", None),
        ("state_directory: relative\n", None),
        ("", None),
    ],
)
def test_the_place_is_found_without_reading_the_configuration(
    tmp_path: Path, text: str, place: str | None
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    usual = kept_of_configuration(str(tmp_path / "none.yaml"))
    assert str(kept_of_configuration(str(tmp_path / "config.yaml"))) == (place or str(usual))


@pytest.mark.parametrize("opened", ["texts", "."])
def test_values_that_others_could_have_written_are_not_believed(kept: Host, opened: str) -> None:
    """Whoever can write as this user can do this, and everything else; nobody else can."""
    place, motd = kept.state / "kept", kept.machine / "motd"
    _poison(place / "texts", next(kept.state.glob("bundles/web/*/manifest.yaml")), "hello", "evil")
    motd.unlink()
    assert kept.run().status == 0
    assert motd.read_text() == "evil 1.0.0\n"
    motd.unlink()
    (place / opened).chmod(0o777)
    assert kept.run().status == 0
    assert motd.read_text() == "hello 1.0.0\n"


def _poison(path: Path, manifest: Path, word: str, other: str) -> None:
    """Keep for the text of a manifest the value of another."""
    text = manifest.read_bytes()
    name, key = names_of(b"%d\0%s" % (SIZE_LIMIT, text))
    value = load(text.replace(word.encode(), other.encode()), "")
    maker = kept_values._maker()
    assert maker is not None
    file = KeptFile(path, maker)
    assert file.find(name) is not None
    file.keep(name, seal(marshal.dumps(value), key))
    file.save()
    file.close()
