"""Documents, messages, templates, examples, scripts and workflows install only known distributions."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from foundation.extras import DISTRIBUTION
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
PROJECT: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLACES = (
    "*.md", "*.toml", ".*.yaml", ".ci", ".github", "bundles", "docs", "examples", "foundation", "hiera", "packaging",
    "puller", "systemd", "tests",
)  # fmt: skip
UNREAD = {Path(__file__).name}
"""This file contains the names that it rejects."""
TOOLS = {"uv"}
"""Tools of maintainers that pyproject.toml does not list."""
OPTIONS_WITH_VALUE = {
    "-r", "-c", "--requirement", "--constraint", "--target", "--python", "--find-links", "--index-url", "--wheel-dir"
}  # fmt: skip

_WORD = r"'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"`;&|)\\]+"
_COMMAND = re.compile(
    r"\b(?:pip3?(?:[ \t]+-\S+(?:[ \t]+[\w./]+)?)*?[ \t]+(?:install|wheel|download)"
    r"|pipx[ \t]+(?:install|run|inject)|uv[ \t]+(?:pip[ \t]+install|tool[ \t]+(?:install|run)|add)|uvx)"
    rf"(?P<arguments>(?:[ \t]+(?:{_WORD}))+)"
)
_LIST = re.compile(
    r"^[#\s]*(?:requires|dependencies|install_requires|additional_dependencies)\s*[=:]\s*\[(?P<items>.*?)\]\s*$",
    re.MULTILINE | re.DOTALL,
)


def allowed() -> set[str]:
    """Return the names of the libraries and tools that pyproject.toml and the lock of the build list."""
    extras = (entry for entries in PROJECT["optional-dependencies"].values() for entry in entries)
    build = (ROOT / "packaging/requirements-build.in").read_text().splitlines()
    entries = [*PROJECT["dependencies"], *extras, *(line for line in build if not line.startswith("#"))]
    return TOOLS | {canonicalize_name(Requirement(entry).name) for entry in entries if entry}


def strangers(text: str) -> Iterator[str]:
    """Yield the distributions that a text installs or requires, and that are neither ours nor in pyproject.toml."""
    for name in (*installed(text), *required(text)):
        if canonicalize_name(name) not in allowed():
            yield name


def installed(text: str) -> Iterator[str]:
    """Yield the distributions that commands in a text fetch from an index. Skips files, directories and variables."""
    joined = re.sub(r"\\\n\s*", "", text)
    for match in _COMMAND.finditer(joined):
        words = iter(word.strip("'\"") for word in re.findall(_WORD, match["arguments"]))
        for word in words:
            if word in OPTIONS_WITH_VALUE:
                next(words, None)
            elif (
                not word.startswith(("-", ".", "/", "$", "<", ">", "…"))
                and "/" not in word
                and ".whl" not in word
            ):
                yield name_of(word)


def required(text: str) -> Iterator[str]:
    """Yield the distributions in lists of dependencies, except our own, which an installed Puller fulfils."""
    for match in _LIST.finditer(text):
        for item in re.findall(r"[\"']([^\"']+)[\"']", match["items"]) or re.findall(
            r"[^\s,#]+", match["items"]
        ):
            if (name := name_of(item)) != DISTRIBUTION:
                yield name


def name_of(requirement: str) -> str:
    try:
        return Requirement(requirement).name
    except InvalidRequirement:
        return re.split(r"[\[<>=!~;]", requirement)[0]


def texts() -> Iterator[Path]:
    for place in PLACES:
        for start in ROOT.glob(place):
            for path in (start, *start.rglob("*")):
                if path.is_file() and path.name not in UNREAD and "__pycache__" not in path.parts:
                    yield path


@pytest.mark.sources
def test_no_text_installs_a_distribution_of_a_stranger() -> None:
    places = []
    for path in texts():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        places += [f"{path.relative_to(ROOT)}: {name}" for name in strangers(text)]
    assert places == []


@each_row(
    "text",
    [
        "pip install puller",
        "run: pipx install puller\n",
        "(`pip install 'puller[fleet]'`)",
        "python3 -m pip install --upgrade 'puller>=1'",
        "pip3 install --target /x Puller",
        "pip install -r x.txt \\\n  puller",
        f"pip install {DISTRIBUTION}",
        "pip install puller_agent",
        "uvx puller lint",
        "uv tool install puller",
        "uv pip install puller",
        "pip install 'puller[{scheme.extra}]'",
        'dependencies = ["puller"]',
        "# dependencies = [\n#   'puller>=1',\n# ]",
        'requires = [\n  "puller",\n]',
        "additional_dependencies: [puller]",
    ],
)
def test_text_that_installs_a_stranger_is_refused(text: str) -> None:
    assert [*strangers(text)]


@each_row(
    "text",
    [
        "pip install '.[test]'",
        "pip install './puller[fleet]'",
        "pip install ./puller_agent-1.0.0-py3-none-any.whl",
        "pip install --require-hashes -r packaging/requirements.lock",
        "pipx install dist/puller_agent-1.0.0-py3-none-any.whl",
        "pip install 'boto3>=1.28'",
        f'dependencies = ["{DISTRIBUTION}"]',
        'requires = ["hatchling"]',
    ],
)
def test_text_with_our_files_and_known_libraries_passes(text: str) -> None:
    assert not [*strangers(text)]


def test_the_project_has_the_name_that_the_code_reads() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert not [entry for entry in allowed() if entry.startswith("puller")]
