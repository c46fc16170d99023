"""Groups of a generated fleet: each machine has the same result as in a preview of this machine alone."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.authoring.preview.differences import Comparison, compare
from puller.authoring.preview.groups import Machine, Preview, preview
from puller.authoring.preview.resolvers import Given, SeparateResolver, Shared
from puller.facts.fact_tree import described
from puller.manifest.manifest import ManifestSource

FILE = "owner: nobody-here, group: staff, mode: '0644'"
MANIFEST = """\
data: {{n: {n}}}
hierarchy: {{order: ['role:{{{{ lookup("facts.role", "none") }}}}']}}
overrides: {{'role:db': {{n: 9}}}}
resources:
  - file:
      - /jinja: {{FILE, template: a.j2}}
      - /go: {{FILE, template: b.tmpl}}
      - /only: {{FILE, content: '{{{{ data.n }}}}', control: {{if: "facts.os.family == 'Debian'"}}}}
      - /broken: {{FILE, content: '{broken}'}}
  - service:
      - app: {{ensure: running, require: ["file#/broken"], subscribe: ["file#/jinja"]}}
"""
TEMPLATES = {
    "a.j2": "{% if facts.os.family == 'Debian' %}{{ data.n }}{% endif %}{{ facts.role | default('-') }}\n",
    "b.tmpl": "{{ if hasKey .facts.os \"release\" }}{{ .data.n }} {{ .facts.os.release }}{{ end }}\n",
}  # fmt: skip
FACTS = st.fixed_dictionaries(
    {
        "os": st.fixed_dictionaries(
            {"family": st.sampled_from(["Debian", "RedHat"])},
            optional={"release": st.sampled_from(["12", 12, "13", None]), "uuid": st.integers()},
        ),
        "networking": st.fixed_dictionaries({"hostname": st.text("ab", max_size=3)}),
    },
    optional={"role": st.sampled_from(["db", "web", 1, True]), "ip": st.sampled_from(["192.0.2.1", ""])},
)


def side(directory: Path, n: int, broken: str) -> SeparateResolver:
    directory.mkdir()
    manifest = MANIFEST.format(n=n, broken=broken).replace("FILE", FILE)
    for name, text in {"manifest.yaml": manifest, **TEMPLATES}.items():
        (directory / name).write_text(text)
    return SeparateResolver(
        ManifestSource(directory / "manifest.yaml", "b/manifest.yaml"), Given(b"0123456789abcdef")
    )


def told(found: Preview) -> dict[str, list[Any]]:
    """Return the result for each machine, without context lines, which come from the first machine of its group."""
    of: dict[str, list[Any]] = {}
    for group in found.groups:
        for name in group.machines:
            of[name] = plain(group.comparison)
    for name in found.unchanged:
        assert name not in of, "told twice"
        of[name] = []
    return of


def plain(comparison: Comparison) -> list[Any]:
    return [
        (
            msgspec.structs.replace(change, differences=()),
            [
                (
                    msgspec.structs.replace(difference, diff=""),
                    [line for line in difference.diff.splitlines() if line[:1] in "+-"],
                )
                for difference in change.differences
            ],
        )
        for change in comparison.changes
    ]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("broken", ["{{ facts.ip }}", "x"])
@pytest.mark.hypothesis
@pytest.mark.sample(1)
def test_each_machine_of_a_fleet_gets_its_own_result(tmp_path: Path, broken: str) -> None:
    old, new = side(tmp_path / "old", 1, "x"), side(tmp_path / "new", 2, broken)

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(FACTS, min_size=1, max_size=8))
    def check(fleet: list[dict[str, Any]]) -> None:
        machines = [Machine(f"m{number}", described(facts)) for number, facts in enumerate(fleet)]
        result = preview(Shared(old), Shared(new), machines)
        alone = {machine.name: plain(compare(old(machine), new(machine))) for machine in machines}
        assert told(result) == alone
        groups = [alone[group.machines[0]] for group in result.groups]
        assert all(groups.count(one) == 1 for one in groups), "equal changes in two groups"

    check()
