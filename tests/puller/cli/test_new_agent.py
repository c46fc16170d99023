"""``puller bundle new --agent``: each host installs the package for its system, in the bundle's version."""

from pathlib import Path

import pytest

from hiera import parsing
from tests.support.stories import Execute

NAMES = (
    "puller_1.10-1+deb12_amd64.deb",
    "puller_1.10-1+deb13_amd64.deb",
    "puller-1.10-1.x86_64.rpm",
)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for three packages, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        begin = b"\xed\xab\xee\xdb" if name.endswith("rpm") else b"!<arch>\n"
        (tmp_path / name).write_bytes(begin + name.encode())
    return [word for name in NAMES for word in ("--agent", name)]


def test_the_bundle_is_valid_and_passes_its_tests(packages: list[str], execute: Execute) -> None:
    status, output = execute("bundle", "new", "agent", *packages)
    assert (status, output) == (0, "agent: a bundle that upgrades Puller. Next: puller test agent\n")
    assert {path.name for path in Path("agent/files").iterdir()} == set(NAMES)
    assert Path("agent/files", NAMES[0]).read_bytes() == Path(NAMES[0]).read_bytes()
    status, output = execute("test", "agent")
    assert (status, "3 cases: 3 passed" in output) == (0, True), output
    status, output = execute("lint", "agent")
    assert (status, "0 errors, 0 warnings" in output) == (0, True), output
    assert execute("bundle", "build", "agent", "--version", "1.10.0")[0] == 0


def test_a_machine_gets_its_package_or_fails(packages: list[str], execute: Execute) -> None:
    assert execute("bundle", "new", "agent", *packages)[0] == 0
    for system, ensure, source in (
        ("debian-12", "1.10-1+deb12", NAMES[0]),
        ("debian-13", "1.10-1+deb13", NAMES[1]),
        ("rhel-9", "1.10-1", NAMES[2]),
    ):
        assert execute("facts", "--of", system, "--save", f"{system}.json")[0] == 0
        status, output = execute("render", "agent", "--no-system-facts", "--facts", f"{system}.json")
        assert status == 0, output
        properties = parsing.load_yaml(output, "")["resources"][0]["package"][0]["puller"]
        assert (properties["ensure"], properties["source"]) == (ensure, f"files/{source}")
        assert '"puller, version 1.10"' in properties["health_checks"][0]["command"]
    assert execute("facts", "--of", "ubuntu-24.04", "--save", "ubuntu.json")[0] == 0
    status, output = execute("apply", "agent", "--noop", "--no-system-facts", "--facts", "ubuntu.json")
    assert status == 4
    assert "package#puller" in output


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nginx_1.10-1+deb12_amd64.deb", b"!<arch>\n", "is not named as a package of Puller is"),
        ("puller_1.11-1+deb11_amd64.deb", b"!<arch>\n", "is of Puller 1.11, and puller_1.10-1+deb12_amd64.deb of 1.10"),
        ("puller_1.10-2+deb12_amd64.deb", b"!<arch>\n", "is for the same machines as puller_1.10-1+deb12_amd64.deb"),
        ("puller_1.10-1+deb11_amd64.deb", b"<html>", "is no .deb package"),
        ("puller_1.10-1+deb11_amd64.deb", None, "cannot be read: No such file"),
    ],
)  # fmt: skip
def test_invalid_agent_package_is_refused(
    packages: list[str], execute: Execute, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    status, output = execute("bundle", "new", "agent", *packages, "--agent", name)
    assert status == 64
    assert f"puller: {name}: {said}" in output
    assert not Path("agent").exists()
