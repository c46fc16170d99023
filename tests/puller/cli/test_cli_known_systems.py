"""``puller facts --of``, ``--save`` and ``--anonymous``, and ``--os`` of the commands that read a bundle."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from puller.cli import main
from puller.facts.fact_tree import BUILT_IN
from puller.facts.given_facts import facts_of, given_facts, known_systems

Run = Callable[..., str]

MANIFEST = """\
resources:
  - file:
      - /etc/of: {content: "{{ facts.os.name }} {{ facts.osfamily }}\\n", owner: root, group: root, mode: "0644"}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command and return its output, or its errors if a status other than 0 is expected."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        output, errors = capsys.readouterr()
        assert caught.value.code == status, errors
        return errors if status else output

    return run


def test_facts_of_a_known_system_are_shown_in_every_form(run: Run) -> None:
    assert json.loads(run("facts", "--of", "debian-12", "--format", "json")) == facts_of("debian-12")
    assert yaml.load(run("facts", "--of", "rocky-9"), yaml.CSafeLoader) == facts_of("rocky-9")
    assert run("facts", "--of", "debian-13", "os.release.major") == "13\n"
    assert run("facts", "--of", "debian-13", "osfamily") == "Debian\n"
    assert "osfamily: RedHat" in run("facts", "--of", "rhel-9", "--legacy")
    assert run("facts", "--of", "debian-12", "--fact", "os.family=Own", "os.family") == "Own\n"


def test_an_unknown_system_is_answered_with_those_that_there_are(run: Run, tmp_path: Path) -> None:
    assert "(did you mean 'debian-12'?)" in run("facts", "--of", "debian12", status=64)
    answer = run("facts", "--of", "plan9", status=64)
    assert sum(name in answer for name in known_systems()) == 5
    assert f"and {len(known_systems()) - 5} more)" in answer
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    assert "did you mean 'rocky-9'" in run("render", ".", "--os", "rocky9", status=64)


def test_custom_facts_do_not_leak_into_known_systems(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "facts.d"
    directory.mkdir(mode=0o755)
    (directory / "role.txt").write_text("role=web\n")

    assert run("facts", "--facts-dir", str(directory), "role") == "web\n"
    run("facts", "--facts-dir", str(directory), "--of", "debian-12", "role", status=1)


@pytest.mark.parametrize("command", [("render", "web"), ("lint", "web"), ("explain", "file#/etc/of", "web")])
def test_a_bundle_is_looked_at_for_a_known_system(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.yaml").write_text(MANIFEST)

    output = run(*command, "--os", "fedora-43")
    assert "Fedora RedHat" in output or command[0] == "lint"


def test_a_machine_is_not_changed_by_the_facts_of_another(run: Run) -> None:
    assert "Unknown option `--os`" in run("apply", ".", "--os", "debian-12", status=64)


def test_saved_facts_are_read_by_the_option_for_facts(run: Run, tmp_path: Path) -> None:
    for name in ("host.json", "host.yaml", "host"):
        run("facts", "--of", "ubuntu-24.04", "--fact", "role=web", "--save", name)
        read = given_facts({"facts_files": [str(tmp_path / name)], "fact_pairs": []})
        assert read == facts_of("ubuntu-24.04") | {"role": "web"}
    assert stat.S_IMODE((tmp_path / "host.json").stat().st_mode) == 0o600


def test_facts_of_this_machine_can_be_saved(run: Run, tmp_path: Path) -> None:
    run("facts", "--save", "host.json")

    assert json.loads((tmp_path / "host.json").read_text())["kernel"] == "Linux"


def test_saving_refuses_unreadable_names(run: Run, tmp_path: Path) -> None:
    assert run("facts", "--save", "host.txt", status=64) == (
        "puller: --output host.txt: a *.txt file holds text only, expected *.json or *.yaml\n"
    )
    assert "--output no/host.json: No such file or directory" in run(
        "facts", "--save", "no/host.json", status=64
    )
    halves = [{f"{half}{n}": "x" * 1000 for n in range(600)} for half in "ab"]
    for half in (0, 1):
        (tmp_path / f"{half}.json").write_text(json.dumps(halves[half]))
    longer = ("facts", "--of", "debian-12", "--facts", "0.json", "--facts", "1.json", "--save", "host.json")
    assert "more than the 1048576 that are read" in run(*longer, status=64)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.json", "1.json"]


def test_options_about_all_facts_are_refused_for_one(run: Run) -> None:
    assert "not for one PATH" in run("facts", "--save", "a.json", "os", status=64)
    assert "not for one PATH" in run("facts", "--anonymous", "os", status=64)
    assert "--keep is for --anonymous" in run("facts", "--keep", "role", status=64)
    assert "--keep rle: no custom fact of this name (did you mean 'role'?)" in run(
        "facts", "--anonymous", "--fact", "role=web", "--keep", "rle", status=64
    )


def test_custom_facts_are_left_out_unless_they_are_named(run: Run) -> None:
    about = ("facts", "--anonymous", "--fact", "role=web", "--fact", "owner=jane", "--format", "json")
    assert json.loads(run(*about)).keys() <= BUILT_IN.keys()
    retained = json.loads(run(*about, "--keep", "role"))
    assert retained["role"] == "web"
    assert "owner" not in retained
