"""Trees of files across versions of a bundle: purging with several bundles, rollback, and removal."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.support.stories import Host, Publisher

TOP = """\
removed: absent
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/health":
          content: "CODE\\n"
          health_checks: [{name: app, command: "sh -c 'exit $(cat {{ facts.machine }}/health)'"}]
"""
TREE = """\
      - "{{ facts.machine }}/tree": {ensure: directory, source: tree, recurse: true, purge: PURGE, force: true}
"""
LOCAL = """\
      - "{{ facts.machine }}/tree/local": {content: "local\\n"}
"""
FIRST = {"tree/a": b"a\n", "tree/d/b": b"b\n", "tree/kind": b"a file\n"}
SECOND = {"tree/a": b"A\n", "tree/e/f": b"f\n", "tree/kind/now": b"a directory\n"}


def story(code: int, *parts: str, purge: bool = False) -> str:
    return TOP.replace("CODE", str(code)) + "".join(parts).replace("PURGE", str(purge).lower())


def picture(root: Path) -> dict[str, tuple[int, bytes]]:
    result = {}
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        content = os.readlink(path).encode() if stat.S_ISLNK(mode) else b""
        result[str(path.relative_to(root))] = (mode, path.read_bytes() if stat.S_ISREG(mode) else content)
    return result


def files_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


@pytest.mark.parametrize("purge", [True, False])
def test_abandoned_version_leaves_the_tree_unchanged(purge: bool, host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", story(0, TREE, purge=False), files=FIRST)
    assert host.run().status == 0
    tree = host.machine / "tree"
    (tree / "theirs").mkdir(mode=0o700)
    (tree / "theirs/file").write_text("by hand\n")
    (tree / "theirs/link").symlink_to("nowhere")
    (tree / "a").chmod(0o644)
    before = picture(host.machine)
    publisher.publish("2.0.0", story(2, TREE, LOCAL, purge=purge), files=SECOND)
    outcome = host.run()
    assert outcome.status == 7, outcome.output
    assert picture(host.machine) == before
    assert host.run().status == 20
    assert set(host.states().values()) == {"stable"}


@pytest.mark.everything
def test_tree_made_by_an_abandoned_version_is_removed(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    before = picture(host.machine)
    publisher.publish("2.0.0", story(2, TREE), files=FIRST)
    assert host.run().status == 7
    assert picture(host.machine) == before
    assert not (host.state / "trees").exists()


def test_leftover_tree_removes_its_files(host: Host, publisher: Publisher) -> None:
    tree = host.machine / "tree"
    tree.mkdir(parents=True)
    (tree / "a").write_text("by hand\n")
    publisher.publish("1.0.0", story(0, TREE), files=FIRST)
    assert host.run().status == 0
    publisher.publish("1.1.0", story(0, TREE), files={"tree/a": b"a\n", "tree/c": b"c\n"})
    assert host.run().status == 0
    assert files_in(tree) == ["a", "c"]
    (tree / "theirs").touch()
    publisher.publish("2.0.0", story(0))
    assert host.run().status == 0
    assert files_in(tree) == ["a", "theirs"]


def test_resource_of_another_bundle_is_not_purged(host: Host, publisher: Publisher) -> None:
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    publisher.publish("1.0.0", story(0, TREE, purge=True), files=FIRST)
    publisher.publish("1.0.0", story(0, LOCAL), name="base")
    (host.machine / "tree").mkdir(parents=True)
    (host.machine / "tree/old").touch()
    for _ in range(2):
        outcome = host.run()
        assert outcome.status == 0, outcome.output
        assert files_in(host.machine / "tree") == ["a", "d/b", "kind", "local"]
    assert set(host.states().values()) == {"stable"}


@pytest.mark.parametrize("how", ["is not configured any more", "is rejected"])
@pytest.mark.parametrize("resource", ["a file", "a tree", "an edited file", "a link", "a scaffold"])
@pytest.mark.representatives(1)
def test_resource_of_an_absent_bundle_is_not_purged(
    how: str, resource: str, host: Host, publisher: Publisher
) -> None:
    place = "{{ facts.machine }}/tree"
    declared = {
        "a file": LOCAL,
        "a tree": f'      - "{place}/own": {{ensure: directory, source: tree, recurse: true}}\n',
        "an edited file": f'  - line:\n      - local: {{path: "{place}/local", line: its, create: true}}\n',
        "a link": f'  - link:\n      - "{place}/local": {{target: /etc/hostname}}\n',
        "a scaffold": f'  - scaffold:\n      - "{place}/own": {{source: tree}}\n',
    }[resource]
    facts = json.loads((host.state.parent / "facts.d/story.json").read_text())
    (host.state.parent / "facts.d/story.json").write_text(json.dumps({**facts, "other": "other"}))
    either = '      - "{{ facts.machine }}/{{ facts.other }}": {content: "not what the other says"}\n'
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    publisher.publish("1.0.0", story(0, TREE, purge=True), files=FIRST)
    publisher.publish("1.0.0", story(0, either, declared), name="base", files={"tree/inner/its": b"its\n"})
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    before = files_in(host.machine / "tree")
    assert len(before) == 4
    if how == "is rejected":
        (host.state.parent / "facts.d/story.json").write_text(json.dumps({**facts, "other": "health"}))
    else:
        host.configure(bundles=[{"name": "web"}])
    (host.machine / "tree/old").touch()
    for words in ([], ["--noop"], ["--only", "file#*tree"], []):
        outcome = host.run(*words)
        assert ("is rejected" in outcome.output) is (how == "is rejected"), outcome.output
        assert files_in(host.machine / "tree") == before
    host.configure(bundles=[{"name": "web"}])
    assert host.puller("forget", "base").status == 0
    host.run()
    assert files_in(host.machine / "tree") == ["a", "d/b", "kind"]


@pytest.mark.parametrize("first", ["the link", "the tree"])
@pytest.mark.parametrize("leads_to", ["a directory", "nothing"])
def test_declared_link_inside_a_tree_is_not_followed(
    first: str, leads_to: str, host: Host, publisher: Publisher
) -> None:
    link = '  - link:\n      - "{{ facts.machine }}/tree/d": {target: "{{ facts.machine }}/elsewhere"}\n'
    (host.machine / "tree").mkdir(parents=True)
    if leads_to == "a directory":
        (host.machine / "elsewhere").mkdir()
    owned = TREE.replace(
        "{ensure", '{owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644", ensure'
    )
    both = (TREE, link) if first == "the tree" else (link, "  - file:\n", owned)
    publisher.publish("1.0.0", story(0, *both, purge=True), files=FIRST)
    for state in ("changed", "stable"):
        outcome = host.run()
        assert outcome.status == 0, outcome.output
        assert host.states()["file#tree"] == state
        assert host.states()["link#tree/d"] == state
    assert (host.machine / "tree/d").is_symlink()
    assert not (host.machine / "elsewhere/b").exists()


def test_unmanaged_resource_is_purged(host: Host, publisher: Publisher) -> None:
    conditional = LOCAL.replace("}\n", ", control: {if: 'false'}}\n")
    publisher.publish("1.0.0", story(0, TREE, LOCAL, purge=True), files=FIRST)
    assert host.run().status == 0
    assert "local" in files_in(host.machine / "tree")
    publisher.publish("2.0.0", story(0, TREE, conditional, purge=True), files=FIRST)
    assert host.run().status == 0
    assert "local" not in files_in(host.machine / "tree")


def test_nothing_is_purged_while_a_name_is_not_known(host: Host, publisher: Publisher) -> None:
    loop = '      - {for: item in facts.no_such_fact, "{{ facts.machine }}/tree/{{ item }}": {content: x}}\n'
    (host.machine / "tree").mkdir(parents=True)
    (host.machine / "tree/old").touch()
    publisher.publish("1.0.0", story(0, TREE, loop, purge=True), files=FIRST)
    outcome = host.run()
    assert "may declare further resources that depend on unknown values" in outcome.output
    assert files_in(host.machine / "tree") == ["old"]


@pytest.mark.everything
def test_leftover_below_a_purged_directory_is_delisted(host: Host, publisher: Publisher) -> None:
    sites = '      - "{{ facts.machine }}/tree": {ensure: directory, mode: "0755", purge: true}\n'
    publisher.publish("1.0.0", story(0, sites, LOCAL))
    assert host.run().status == 0
    publisher.publish("2.0.0", story(0, sites))
    assert host.run().status == 0
    assert files_in(host.machine / "tree") == []
    assert host.status()["bundles"][0].get("left_behind", []) == []
    publisher.publish("3.0.0", story(2, sites, LOCAL))
    (host.machine / "tree/theirs").write_text("by hand\n")
    before = picture(host.machine)
    assert host.run().status == 7
    del before["tree/theirs"]  # the restored version also purges the directory
    assert picture(host.machine) == before
    assert host.run("--detailed-exitcodes").status == 20
    assert picture(host.machine) == before


PLAIN = '      - "{{ facts.machine }}/tree": {ensure: directory, mode: "0755"}\n'
SCAFFOLD = '  - scaffold: [{"{{ facts.machine }}/tree": {source: tree}}]\n'


@pytest.mark.parametrize("filled", [TREE, SCAFFOLD], ids=["tree", "scaffold"])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_own_directory_leaves_with_its_later_tree(
    filled: str, is_foreign: bool, host: Host, publisher: Publisher
) -> None:
    """A directory that a plain resource created leaves with the tree that filled it, and a person's stays."""
    tree = host.machine / "tree"
    if is_foreign:
        tree.mkdir(parents=True, mode=0o755)
    for version, parts in (("1.0.0", (PLAIN,)), ("2.0.0", (filled,)), ("3.0.0", ())):
        publisher.publish(version, story(0, *parts), files=FIRST if filled in parts else {})
        outcome = host.run()
        assert outcome.status == 0, outcome.output
        assert tree.exists() is (version < "3" or is_foreign)
    if (
        not is_foreign or filled == SCAFFOLD
    ):  # otherwise the resource existed before Puller, and stays on the list
        assert files_in(host.machine) == ["health"]


def test_plain_directory_keeps_leftover_scaffold_on_the_list(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", story(0, SCAFFOLD), files=FIRST)
    publisher.publish("2.0.0", story(0, PLAIN))
    publisher.publish("3.0.0", story(0))
    for version in ("1.0.0", "2.0.0"):
        host.configure(bundles=[{"name": "web", "version": version}])
        assert host.run().status == 0
        assert files_in(host.machine / "tree") == ["a", "d/b", "kind"]
    listed = [each["reference"] for each in host.status()["bundles"][0]["left_behind"]]
    assert listed == [f"scaffold#{host.machine}/tree"]
    host.configure(bundles=[{"name": "web"}])
    assert host.run().status == 0
    assert files_in(host.machine) == ["health"]
    assert not (host.machine / "tree").exists()
