"""Data providers of Puppet 4, as Puppet 7 still reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hiera.errors import HieraError, KeyNotFound
from hiera.tree.locations import Texts
from hiera.tree.lookup import Tree

DATA = {
    "/env/data/common.yaml": "key: of the environment\nm::other: of the environment\n",
    "/env/modules/m/data/common.yaml": "m::key: of the module\n",
}
VERSION_4 = "version: 4\nhierarchy: [{name: one, backend: yaml, path: common}]\n"
VERSION_5 = "version: 5\n"


class Asked:
    """A tree of files, and its warnings."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.warnings: list[str] = []
        self.tree = Tree(
            {"role": "web"},
            environment="/env",
            documents=Texts({**DATA, **files}),
            warn=lambda problem: self.warnings.append(str(problem)),
        )

    def lookup(self, key: str) -> Any:
        return self.tree.lookup(key, default=None)


def environment(provider: str, **files: str) -> Asked:
    text = f"modulepath = modules\nenvironment_data_provider = {provider}\n"
    return Asked({"/env/environment.conf": text, **files})


def module(metadata: str, **files: str) -> Asked:
    return Asked({"/env/hiera.yaml": VERSION_5, "/env/modules/m/metadata.json": metadata, **files})


def test_provider_hiera_applies_defaults_without_hiera_yaml() -> None:
    requested = environment("hiera")
    assert requested.lookup("key") == "of the environment"
    assert requested.tree.holders() == {"key": [("Environment", "Common", "/env/data/common.yaml")]} | {
        "m::other": [("Environment", "Common", "/env/data/common.yaml")]
    }
    assert requested.warnings == [
        "/env/environment.conf: environment_data_provider 'hiera' is deprecated. "
        "Use a 'hiera.yaml' of version 5"
    ]


def test_without_provider_and_hiera_yaml_there_is_no_data() -> None:
    requested = Asked({})
    assert (requested.lookup("key"), requested.warnings) == (None, [])
    commented = Asked({"/env/environment.conf": "# environment_data_provider = hiera\n"})
    assert (commented.lookup("key"), commented.warnings) == (None, [])


def test_provider_none_disables_hiera_yaml_of_version_4_only() -> None:
    files = {"/env/hiera.yaml": VERSION_4}
    assert environment("hiera", **files).lookup("key") == "of the environment"
    assert environment("none", **files).lookup("key") is None
    requested = environment("'none'", **{"/env/hiera.yaml": VERSION_5})
    assert requested.lookup("key") == "of the environment"
    assert requested.warnings == [
        "/env/environment.conf: environment_data_provider 'none' is ignored, because a 'hiera.yaml' of version 5 exists"
    ]


def test_a_module_says_it_in_its_metadata() -> None:
    requested = module('{"name": "x-m", "data_provider": "hiera"}')
    assert requested.lookup("m::key") == "of the module"
    assert ('Module "m"', "Common", "/env/modules/m/data/common.yaml") in requested.tree.holders()["m::key"]
    assert requested.warnings == [
        "/env/modules/m/metadata.json: data_provider 'hiera' is deprecated. Use a 'hiera.yaml' of version 5"
    ]
    assert module('{"name": "x-m"}').lookup("m::key") is None
    files = {"/env/modules/m/hiera.yaml": VERSION_5}
    assert module('{"data_provider": "none"}', **files).lookup("m::key") == "of the module"


@pytest.mark.parametrize(
    "metadata", ["{", "[" * 100_000, "\ud800".encode("utf-16", "surrogatepass").decode("latin-1")]
)
def test_unreadable_metadata_cause_a_warning(metadata: str) -> None:
    requested = module(metadata, **{"/env/modules/m/hiera.yaml": VERSION_5})
    assert requested.lookup("m::key") == "of the module"
    assert requested.warnings[0].startswith(
        "/env/modules/m/metadata.json: is not JSON, so a data_provider in it"
    )


@pytest.mark.parametrize(
    ("asked", "key", "message"),
    [
        (environment("function"), "key", "'environment::data' (file: /env/environment.conf"),
        (environment("nope"), "key", "Environment 'env', cannot find environment_data_provider 'nope'"),
        (module('{"data_provider": "function"}'), "m::key", "'m::data' (file: /env/modules/m/metadata.json"),
        (module('{"data_provider": 3}'), "m::key", "Module 'm', cannot find data_provider '3'"),
    ],
    ids=["function", "unknown", "module function", "module unknown"],
)
def test_a_provider_that_is_not_read_is_an_error_that_names_it(asked: Asked, key: str, message: str) -> None:
    for _ in range(2):
        with pytest.raises(HieraError) as error:
            asked.tree.lookup(key)
        assert message in str(error.value)
        assert not isinstance(error.value, KeyNotFound)


def test_a_key_of_no_module_does_not_ask_the_modules_provider() -> None:
    assert module('{"data_provider": "function"}').lookup("key") == "of the environment"
