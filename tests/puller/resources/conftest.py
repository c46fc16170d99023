"""Single resources with properties as in a manifest, applied to this machine below a temporary directory."""

import grp
import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.manifest.problems import decode
from puller.resources.base import Context, Resource, ResourceType
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import System

OWNER = pwd.getpwuid(os.geteuid()).pw_name
GROUP = grp.getgrgid(os.getegid()).gr_name


@pytest.fixture
def ours() -> dict[str, str]:
    """Return the owner, group and mode that every user may give a file."""
    return {"owner": OWNER, "group": GROUP, "mode": "0644"}


def no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


Make = Callable[..., Resource[Any, Any]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes a resource with checked properties: ``make(File, properties, noop=…, data=…)``."""

    def build(
        resource_type: ResourceType,
        properties: Mapping[str, Any],
        *,
        noop: bool = False,
        data: Mapping[str, Any] | None = None,
        fetch: Callable[[str], bytes] = no_network,
        uncertain: bool = False,
        log: Callable[[str], None] = lambda line: None,
    ) -> Resource[Any, Any]:
        system: System = NoopSystem() if noop else LocalSystem()
        decoded = decode(resource_type, resource_type.accept(dict(properties)))
        for error in resource_type.problems(decoded):
            raise error
        context = Context(
            system,
            BundleFiles.of(tmp_path),
            Scope({}, data or {}),
            fetch,
            {},
            lambda type_name: [str(properties["name"])],
            noop=noop,
            uncertain=lambda path, apart_from="": uncertain,
            log=log,
        )
        return resource_type(decoded, context)

    return build


@pytest.fixture
def converge() -> Callable[[Resource[Any, Any]], list[str]]:
    """Return a function that applies a resource and returns its first differences."""

    def run(resource: Resource[Any, Any]) -> list[str]:
        actual = resource.look()
        differences = resource.differences(actual)
        if differences:
            resource.change(differences, actual)
            assert not resource.differences(resource.look())
        return [str(difference) for difference in differences]

    return run
