"""``docs/facts.md`` and ``docs/fact-list.md`` have generated tables. ``PULLER_WRITE_DOCS=1`` writes them."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from puller.facts.fact_tree import LEGACY_INTERFACE_PATHS, LEGACY_PATHS, gather
from puller.facts.given_facts import facts_of, known_systems
from puller.facts.machine import Machine
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs

CASES = Path(__file__).parents[2] / "cases" / "facts"
PAGE = Path(__file__).parents[3] / "docs" / "facts.md"
LIST = PAGE.with_name("fact-list.md")
COMPARISON = yaml.load((CASES / "facter.yaml").read_text(), yaml.CSafeLoader)

# Places with names from the machine, and their placeholders.
NAMED = {
    ("disks",): "DISK",
    ("mountpoints",): "PATH",
    ("networking", "interfaces"): "NAME",
    ("partitions",): "DEVICE",
    ("ssh",): "ALGORITHM",
}


def rows(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield path and value of every fact, with placeholders for names from the machine."""
    for name, value in tree.items():
        path = (*above, NAMED.get(above, name))
        if isinstance(value, dict) and value:
            yield from rows(value, path)
        else:
            yield ".".join(path), value


def agreement(path: str) -> str:
    """Return the result of the comparison with Facter for a fact."""
    if any(fnmatchcase(path, pattern) for pattern in COMPARISON["ours"]):
        return "only here"
    sentences = (
        sentence for pattern, sentence in COMPARISON["differs"].items() if fnmatchcase(path, pattern)
    )
    return next(sentences, "yes")


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table_of_facts(debian: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of all facts of the recorded machines, with the values of the Debian machine."""
    values = {path: "" for other in others for path, _ in rows(other)}
    values |= {path: f"`{cell_text(value)}`" for path, value in rows(debian)}
    lines = [row("fact", "on a Debian 12", "as Facter"), row("---", "---", "---")]
    lines += [row(f"`{path}`", values[path], agreement(path)) for path in sorted(values)]
    return "\n".join(lines)


def cell_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table_of_legacy_names() -> str:
    lines = [row("legacy name", "fact"), row("---", "---")]
    for name, path in sorted(LEGACY_PATHS.items()):
        lines.append(row(f"`{name}`", f"`{path}`" + (", in MiB" if name.endswith("_mb") else "")))
    for name, part in sorted(LEGACY_INTERFACE_PATHS.items()):
        lines.append(row(f"`{name}_NAME`", f"`networking.interfaces.NAME.{part}`"))
    lines.append(row("`interfaces`", "names in `networking.interfaces`, with commas between them"))
    return "\n".join(lines)


def table_of_what_only_facter_has() -> str:
    lines = [row("fact of Facter", "reason"), row("---", "---")]
    lines += [row(f"`{name}`", reason) for name, reason in sorted(COMPARISON["theirs"].items())]
    return "\n".join(lines)


def table_of_systems() -> str:
    """Return a table of known systems, and whether their release files and kernel are from a real one."""
    lines = [row("system", "release", "kernel", "source"), row("---", "---", "---", "---")]
    for name in known_systems():
        facts = facts_of(name)
        source = "a real tree" if name.startswith("debian-") else "written by hand"
        is_called = f"{facts['os']['distro']['description']}, {facts['os']['release']['full']}"
        lines.append(row(f"`{name}`", is_called, f"`{facts['kernelrelease']}`", source))
    return "\n".join(lines)


def with_table(page: str, name: str, table: str) -> str:
    """Return the page with a new table between the marks of this name."""
    pattern = re.compile(f"(<!-- {name}: generated -->\n).*?(\n<!-- end -->)", re.DOTALL)
    replaced, count = pattern.subn(lambda result: result[1] + table + result[2], page)
    assert count == 1, f"{count} places for the table {name!r}"
    return replaced


def test_documented_tables_match_the_code(
    record: Callable[..., Machine],
) -> None:
    agent = {"puller": {"version": "1.4.0", "bundle": {"name": "web", "version": "2.1.0"}}}
    machines = {
        file.stem: gather(
            machine=record(yaml.load(file.read_text(), yaml.CSafeLoader), file.stem),
            custom_directories=(),
            agent=agent,
        ).as_dict()
        for file in sorted((CASES / "machines").glob("*.yaml"))
    }

    facts = table_of_facts(machines.pop("debian-12"), machines.values())
    fact_list = with_table(LIST.read_text(), "facts", facts)
    fact_list = with_table(fact_list, "legacy", table_of_legacy_names())
    fact_list = with_table(fact_list, "facter", table_of_what_only_facter_has())
    for page, text in (
        (PAGE, with_table(PAGE.read_text(), "systems", table_of_systems())),
        (LIST, fact_list),
    ):
        if os.environ.get("PULLER_WRITE_DOCS"):
            page.write_text(text)
        assert page.read_text() == text, "run PULLER_WRITE_DOCS=1 pytest tests/puller/facts/test_docs.py"


def test_the_bundle_of_the_page_has_the_fact_that_it_asks_for(tmp_path: Path) -> None:
    script, manifest = re.findall(r"```(?:sh|yaml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "facts.d").mkdir()
    (tmp_path / "facts.d" / "cgroups.sh").write_text(script)
    (tmp_path / "facts.d" / "cgroups.sh").chmod(0o755)
    (tmp_path / "manifest.yaml").write_text(manifest)

    inputs = Inputs(gather(custom_directories=()), {})
    (declaration,) = load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", inputs).declarations
    assert declaration.shown()["content"] in ("cgroups = v1\n", "cgroups = v2\n")
    assert declaration.failure == ""
