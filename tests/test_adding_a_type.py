"""``docs/adding-a-type.md``: the type of the page, installed as a distribution of its own, does what the page says."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

PAGE = (Path(__file__).parents[1] / "docs" / "adding-a-type.md").read_text()
BLOCKS = {
    name: text for _, name, text in re.findall(r"```(toml|python|yaml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
}
Puller = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory as an installer leaves it: the module, and what the distribution says about itself."""
    directory = tmp_path / "site-packages"
    project = tomllib.loads(BLOCKS["pyproject.toml"])["project"]
    about = directory / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (directory / "puller_link.py").write_text(BLOCKS["puller_link.py"])
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (about / "entry_points.txt").write_text(entry_points(project["entry-points"]))
    return directory


def entry_points(groups: Mapping[str, Mapping[str, str]]) -> str:
    sections = (
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
        for group, points in groups.items()
    )
    return "\n\n".join(sections) + "\n"


@pytest.fixture
def puller(installed: Path, tmp_path: Path) -> Puller:
    """Run ``puller`` with the distribution on its path."""
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "puller", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Where the page's manifest has its links, and the manifest with the paths of it."""
    directory = tmp_path / "app"
    (directory / "releases" / "1.4.0").mkdir(parents=True)
    (directory / "config").write_text("x")
    text = BLOCKS["manifest.yaml"].replace("/srv/app", str(directory))
    (tmp_path / "manifest.yaml").write_text(
        text.replace("systemctl reload app", f"touch {directory}/reloaded")
    )
    return directory


APPLY = ("apply", "manifest.yaml", "--state-directory", "state", "-v")


def test_the_manifest_of_the_page_converges_and_is_stable(puller: Puller, app: Path) -> None:
    dry = puller(*APPLY, "--noop")
    assert dry.stdout.count("Would have made the link") == 2, dry.stdout + dry.stderr
    assert not (app / "current").exists()
    first = puller(*APPLY)
    assert first.returncode == 0, first.stdout + first.stderr
    assert os.readlink(app / "current") == "releases/1.4.0"
    assert os.path.samefile(app / "config.bak", app / "config")
    assert (app / "reloaded").exists()
    assert "provider=symbolic" in first.stdout
    assert "provider=hard" in first.stdout
    assert "3 resources, 3 stable" in puller(*APPLY).stdout


def test_the_engine_treats_it_as_its_own(puller: Puller, app: Path) -> None:
    (app / "current").write_text("a file in the way")
    failed = puller(*APPLY)
    assert failed.returncode == 6
    assert f"{app}/current is not a link; remove it first" in failed.stdout


def test_it_is_looped_over_as_our_own_types_are(puller: Puller, app: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(f"""\
data: {{links: {{first: config, second: releases}}}}
resources:
  - link:
      - for: name, target in data.links
        "{app}/{{{{ name }}}}": {{target: "{{{{ target }}}}"}}
""")
    ended = puller(*APPLY)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [os.readlink(app / name) for name in ("first", "second")] == ["config", "releases"]
    schema = json.loads(puller("schema", "manifest").stdout)
    assert schema["$defs"]["link"]["anyOf"][0]["items"]["properties"] == {"for": {"$ref": "#/$defs/for"}}


MISTAKES = [
    ("target: releases/1.4.0", "tarset: x", 13, "tarset is not a property of link (did you mean 'target'?)"),
    ("target: releases/1.4.0", "ensure: gone", 13, "ensure is 'gone', wanted present or absent"),
    ("provider: hard", "provider: soft", 6, "provider is 'soft', wanted one of symbolic, hard"),
    ("- link:", "- lnk:", 13, "unknown resource type 'lnk' (did you mean 'link'?)"),
]


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(("right", "wrong", "status", "message"), MISTAKES)
def test_mistakes_are_said_as_for_our_own_types(
    puller: Puller, tmp_path: Path, right: str, wrong: str, status: int, message: str
) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace(right, wrong))
    ended = puller(*APPLY)
    assert message in ended.stdout + ended.stderr
    assert ended.returncode == status


def test_two_declarations_agree_as_those_of_our_own_types_do(
    puller: Puller, app: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.yaml"
    text = manifest.read_text()
    manifest.write_text(
        text + f"  - link:\n      - {app}/current: {{alias: again, target: releases/1.4.0}}\n"
    )
    assert "3 resources, 0 stable, 2 changed, 1 refreshed" in puller(*APPLY).stdout
    manifest.write_text(text + f"  - link:\n      - {app}/current: {{target: releases/1.3.0}}\n")
    ended = puller(*APPLY)
    assert ended.returncode == 13
    what = "the two do not agree: target is 'releases/1.3.0' here and 'releases/1.4.0' there"
    assert what in ended.stdout + ended.stderr


def test_a_type_finds_files_of_the_bundle_as_ours_do(puller: Puller, installed: Path, tmp_path: Path) -> None:
    """``context.files.find``, in a child and with a library."""
    module = installed / "puller_link.py"
    find = "self.context.files.find(self.properties.target)"
    module.write_text(module.read_text().replace("self.properties.target", find))
    links = {"a": "x", "b": "../files/y", "c": "bundle:files/y", "d": "common:z"}
    entries = "".join(
        f"      - {tmp_path}/{name}: {{target: '{target}'}}\n" for name, target in links.items()
    )
    for name, text in {
        "manifest.yaml": "libraries: {common: libraries/common}\nresources: [{apply: {name: roles/a.yaml}}]\n",
        "roles/a.yaml": f"resources:\n  - link:\n{entries}      - {tmp_path}/e: {{target: ../../out}}\n",
        "libraries/common/library.yaml": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    ended = puller(*APPLY)
    assert f"{tmp_path}/e failed" in ended.stdout
    assert "../../out is outside of the bundle" in ended.stdout
    led = {name: os.path.relpath(os.readlink(tmp_path / name), tmp_path) for name in links}
    assert led == {"a": "roles/x", "b": "files/y", "c": "files/y", "d": "libraries/common/z"}


def test_a_provider_that_cannot_work_here_is_the_failure_of_its_resource(
    puller: Puller, installed: Path, app: Path
) -> None:
    module = installed / "puller_link.py"
    module.write_text(module.read_text().replace('== "Linux"', '== "Plan9"'))
    ended = puller(*APPLY)
    assert "provider hard cannot be used on this machine" in ended.stdout
    assert os.path.islink(app / "current")


def test_without_a_name_the_best_available_provider_takes_over(
    puller: Puller, installed: Path, app: Path
) -> None:
    module = installed / "puller_link.py"
    named = '    providers = ("symbolic",)\n'
    never = "\n    @classmethod\n    def available(cls, facts: Any) -> bool:\n        return False\n"
    module.write_text(module.read_text().replace(named, named + never))
    (app / "file").write_text("x")
    ended = puller("ensure", "link", f"{app}/other", "--target", f"{app}/file")
    assert "provider=hard" in ended.stdout, ended.stdout + ended.stderr
    assert os.path.samefile(app / "other", app / "file")


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("module", "status", "message"),
    [
        ("import nothing_of_this_name", 78, "cannot be loaded: No module named 'nothing_of_this_name'"),
        ("Link = HardLink = 5", 78, "puller.resources link (puller_link:Link) is not a subclass of Resource"),
    ],
)
def test_a_distribution_that_is_broken_is_named(
    puller: Puller, installed: Path, module: str, status: int, message: str
) -> None:
    (installed / "puller_link.py").write_text(module)
    ended = puller(*APPLY)
    assert (ended.returncode, "Traceback" in ended.stderr) == (status, False)
    assert message in ended.stderr


def test_a_provider_must_be_of_its_type(puller: Puller, installed: Path, app: Path) -> None:
    with (installed / "puller_link.py").open("a") as stream:
        stream.write("\n\nclass HardLink:\n    pass\n")
    ended = puller(*APPLY)
    assert "puller.providers link.hard (puller_link:HardLink) is not a subclass of Link" in ended.stdout
    assert os.path.islink(app / "current")


def test_the_commands_know_the_type(puller: Puller, app: Path) -> None:
    helped = puller("ensure", "link", "--help").stdout
    assert re.search(r"--target TEXT +Where it leads\.", helped)
    assert puller("ensure", "link", f"{app}/new", "--target", "config").returncode == 0
    state = yaml.load(puller("state", "link", f"{app}/new").stdout, yaml.CSafeLoader)
    assert (state["kind"], state["target"]) == ("present", "config")
    schema = json.loads(puller("schema", "manifest").stdout)
    assert "target" in schema["$defs"]["LinkProperties"]["properties"]
