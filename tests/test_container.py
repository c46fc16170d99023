"""The Dockerfile: accepted by its linter, with a fixed base, checked files and an ordinary user."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.mark.everything
@pytest.mark.skipif(not (ROOT / ".venv/bin/hadolint").exists(), reason="needs hadolint, of the extra check")
def test_linter_accepts_the_dockerfile() -> None:
    done = subprocess.run([ROOT / ".ci/check", "container"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_base_is_fixed_by_its_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases[1:] == ["base", "base"]
    assert re.fullmatch(r"debian:trixie-slim@sha256:[0-9a-f]{64}", bases[0])


def test_pip_installs_only_files_with_known_hashes() -> None:
    joined = DOCKERFILE.replace("\\\n", "")
    commands = re.findall(r"bin/pip\sinstall ([^&\n]*)", joined)
    assert len(commands) == 2
    assert all("--require-hashes" in command or "--no-index" in command for command in commands)
    assert "sha256sum --check --strict ./*.whl.sha256" in joined
    locks = set(re.findall(r"--requirement (\S+)", joined))
    assert locks == {"requirements.lock", "requirements-fleet.lock", "requirements-s3.lock"}
    assert all((ROOT / "packaging" / name).exists() for name in locks)


def test_image_runs_as_an_ordinary_user() -> None:
    users = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert users == ["10001"]
    assert not re.search(r"^(ARG|ENV) .*(PASSPHRASE|SECRET|TOKEN|PASSWORD)", DOCKERFILE, re.MULTILINE)


def test_context_has_only_the_wheel_and_the_locks() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert all(line.startswith("!") for line in lines[1:])
