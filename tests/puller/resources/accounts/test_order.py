"""The implied order of users and groups, and declarations that contradict each other."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import yaml

from puller.errors import ManifestError
from puller.manifest.manifest import Manifest

Load = Callable[..., Manifest]


def order(load: Load, *resources: dict[str, dict[str, Any]]) -> list[str]:
    manifest = load(yaml.safe_dump({"resources": [*resources]}))
    return [str(manifest.declarations[index].reference) for index in manifest.order]


def user(name: str, **properties: Any) -> dict[str, dict[str, Any]]:
    return {"user": {"name": name, **properties}}


def group(name: str, **properties: Any) -> dict[str, dict[str, Any]]:
    return {"group": {"name": name, **properties}}


def comes_first(first: str, second: str, references: Iterable[str]) -> bool:
    results = [*references]
    return results.index(first) < results.index(second)


def test_groups_come_before_users_wherever_they_stand(load: Load) -> None:
    result = order(load, user("a", groups=["h"]), group("g"), user("b"), group("h", gid=5001), group("a"))
    assert result == ["group#g", "group#h", "group#a", "user#a", "user#b"]


def test_users_who_go_come_before_groups_that_go(load: Load) -> None:
    result = order(load, group("g", ensure="absent"), user("a", ensure="absent"), user("b"))
    assert comes_first("user#a", "group#g", result)


def test_group_with_a_declared_member_follows_the_user(load: Load) -> None:
    result = order(load, group("g", members=["a", "daemon"]), group("h"), user("b", group="g"), user("a"))
    assert result == ["group#h", "user#a", "group#g", "user#b"]


def test_a_user_who_names_a_group_that_lists_them_comes_after_it(load: Load) -> None:
    result = order(load, user("a", groups=["g"]), group("g", members=["a", "daemon"]))
    assert result == ["group#g", "user#a"]


def test_declared_order_wins(load: Load) -> None:
    result = order(load, user("a"), group("g", require=["user#a"]), group("h"))
    assert comes_first("user#a", "group#g", result)
    result = order(load, user("a", ensure="absent", after=["group#g"]), group("g", ensure="absent"))
    assert result == ["group#g", "user#a"]


def test_a_thousand_users_and_groups_are_not_a_million_of_pairs(load: Load) -> None:
    users, groups = [user(f"u{n}") for n in range(300)], [group(f"g{n}") for n in range(300)]
    manifest = load(yaml.safe_dump({"resources": [*users, *groups]}))
    assert sorted(manifest.order[:300]) == [*range(300, 600)]


CONTRADICTIONS = [
    (
        group("g", members=["b"], membership="inclusive"),
        user("a", groups=["g"]),
        "groups has 'g', whose inclusive members do not have 'a': group#g at",
    ),
    (
        group("g", members=["a"]),
        user("a", groups=["h"], membership="inclusive"),
        "inclusive groups do not have 'g', whose members have 'a': group#g at",
    ),
    (
        group("g", members=["a"]),
        user("a", ensure="absent"),
        "ensure is absent, and the members of a group have 'a'",
    ),
    (group("g", ensure="absent"), user("a", groups=["g"]), "is to be in 'g', which is to be absent"),
    (group("g", ensure="absent"), user("a", group="g"), "is to be in 'g', which is to be absent"),
]


@pytest.mark.parametrize(("one", "other", "sentence"), CONTRADICTIONS)
def test_mutual_undoing_is_an_error_of_the_manifest(
    load: Load, one: dict[str, Any], other: dict[str, Any], sentence: str
) -> None:
    for resources in ([one, other], [other, one]):
        with pytest.raises(ManifestError) as failure:
            load(yaml.safe_dump({"resources": resources}))
        assert sentence in str(failure.value)


AGREEMENTS = [
    (group("g", members=["a"], membership="inclusive"), user("a", groups=["g"], membership="inclusive")),
    (group("g", members=["b"]), user("a", groups=["g"])),
    (group("g", members=["b"], membership="inclusive"), user("a", group="g", groups=["g"])),
    (group("g", members=["a"]), user("a", group="g", groups=[], membership="inclusive")),
    (group("a", members=["a"]), user("a", groups=[], membership="inclusive")),
    (group("g", gid=5001, members=["a"]), user("a", group=5001, groups=[], membership="inclusive")),
    (group("a", ensure="absent"), user("a")),
]


@pytest.mark.parametrize(("one", "other"), AGREEMENTS)
def test_compatible_declarations_are_no_error(load: Load, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert len(load(yaml.safe_dump({"resources": [one, other]})).declarations) == 2


def test_unresolvable_declaration_orders_and_contradicts_nothing(load: Load) -> None:
    result = order(
        load,
        user("a", groups=["{{ lookup('facts.nothing') }}"]),
        group("g", members="{{ lookup('facts.nothing') }}", membership="inclusive"),
        user("b", groups=["g"]),
    )
    assert len(result) == 3
