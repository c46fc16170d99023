"""A tree of templates becomes a tree of files: order, partials, render and write."""

from collections.abc import Mapping
from typing import Any

import pytest

from puller.templates.rendering import load_engine, render_tree, walk
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import FunctionError, LimitError, Limits, TemplateError
from tests.support.rows import each_row


def rendered(files: Mapping[str, str], *, skip_empty: bool = False, **data: Any) -> dict[str, str]:
    return render_tree(files, load_engine("jet"), TemplateScope(data=data), skip_empty=skip_empty)


def failure(files: Mapping[str, str], *, skip_empty: bool = False) -> str:
    with pytest.raises(TemplateError) as failed:
        rendered(files, skip_empty=skip_empty)
    return str(failed.value)


# The walk


def test_files_are_sorted_by_directory_and_name() -> None:
    assert list(walk(["b", "a/z", "a.txt", "a/b/c", "a-b"])) == [
        ("a", False),
        ("a/b", False),
        ("a/b/c", True),
        ("a/z", True),
        ("a-b", True),
        ("a.txt", True),
        ("b", True),
    ]


@each_row(
    ("paths", "walked"),
    [
        (["_partials/a", "b"], ["b"]),
        (["d/_partials/a", "d/_partials/e/f", "d/b"], ["d", "d/b"]),
        (["d/_partials/a"], ["d"]),
        (["my_partials/a", "_partials2/b"], ["_partials2", "_partials2/b", "my_partials", "my_partials/a"]),
        (["_partials", "a", "d/b"], []),
        (["A", "_partials", "z/y"], ["A"]),
        (["d/_partials", "d/z", "d/zz/y", "e"], ["d", "e"]),
        (["d/_partials", "_partials", "e"], []),
        (["d/_partials", "d2/x"], ["d", "d2", "d2/x"]),
    ],
)
def test_partials_are_omitted_up_to_a_file_of_that_name(paths: list[str], walked: list[str]) -> None:
    assert [path for path, _ in walk(paths)] == walked


def test_broken_unused_partial_does_not_matter() -> None:
    assert rendered({"a": "A", "_partials/broken": "[[ if ]]"}) == {"a": "A"}


# render


@pytest.mark.parametrize("path", ["_partials/p", "/_partials/p", "./_partials/p", "x/../_partials//p"])
def test_render_takes_a_path_from_the_root_of_the_source(path: str) -> None:
    files = {"d/a": f'<[[ render("{path}", 1) ]]>', "_partials/p": "[[ . ]]"}
    assert rendered(files) == {"d/a": "<1>"}


def test_a_file_that_is_rendered_itself_can_also_be_a_partial() -> None:
    assert rendered({"a": '[[ render("b", .) ]]', "b": "[[ data.n ]]"}, n=1) == {"a": "1", "b": "1"}


def test_partials_can_render_partials() -> None:
    files = {
        "a": '[[ render("_partials/x", .) ]]',
        "_partials/x": '([[ render("_partials/y", .) ]])',
        "_partials/y": "Y",
    }
    assert rendered(files) == {"a": "(Y)"}


@each_row(
    ("call", "message"),
    [
        ('render("_partials/none", .)', "render: _partials/none is not in the source"),
        ('render("../outside", .)', "render: ../outside is not inside the source"),
        ('render("_partials/../../x", .)', "render: _partials/../../x is not inside the source"),
        ('render("_partials", .)', "render: _partials is a directory of the source"),
        ('render("", .)', "render: / is a directory of the source"),
        ("render(5, .)", "render: the path in the source is not a string"),
        ('render("_partials/p", data.nope)', "render: requires a value"),
        ('render("_partials/p")', "render: cannot be called with 1 argument"),
        ('render("_partials/bad", .)', "render: _partials/bad:2:4: nope is not defined"),
    ],
)
def test_a_render_that_fails_fails_the_file_that_calls_it(call: str, message: str) -> None:
    files = {"a": f"x [[ {call} ]]", "_partials/p": "", "_partials/bad": "\n[[ nope ]]"}
    assert failure(files) == f"a:1:6: {message}"


def test_endless_mutual_partials_stop() -> None:
    files = {"a": '[[ render("_partials/p", .) ]]', "_partials/p": '[[ render("_partials/p", .) ]]'}
    with pytest.raises(LimitError, match="more than 10 levels deep"):
        render_tree(files, load_engine("jet"), TemplateScope(), limits=Limits(depth=10))


def test_limits_apply_to_each_file() -> None:
    files = {f"f{n}": '[[ repeat("x", 6000) ]]' for n in range(5)}
    assert len(render_tree(files, load_engine("jet"), TemplateScope(), limits=Limits(characters=20_000))) == 5


# write


def test_write_makes_a_further_file() -> None:
    files = {"d/a": '[[ write("d/b", "B") ]][[ write("/top", "T") ]][[ write("d/../e", "E") ]]A'}
    assert rendered(files) == {"d/a": "A", "d/b": "B", "top": "T", "e": "E"}


def test_last_written_file_wins() -> None:
    assert rendered({"a": '[[ write("b", "from a") ]][[ write("a", "x") ]]A', "b": "B"}) == {
        "a": "A",
        "b": "B",
    }
    assert rendered({"b": "B", "c": '[[ write("b", "from c") ]]'}) == {"b": "from c", "c": ""}


def test_write_needs_a_directory_that_exists_by_then() -> None:
    assert rendered({"d/_partials/p": "", "e": '[[ write("d/x", "") ]]'}) == {"d/x": "", "e": ""}
    assert (
        failure({"a": '[[ write("d/x", "") ]]', "d/b": ""})
        == "a:1:4: write: directory d is missing in the target"
    )


def test_a_file_cannot_be_written_where_a_directory_comes_to_be() -> None:
    message = failure({"a": '[[ write("d", "") ]]', "d/x": ""})
    assert message == "d:1:1: is a directory of the source, but a template has written a file there"


@each_row(
    ("call", "message"),
    [
        ('write("../x", "")', "write: ../x is not inside the target"),
        ('write("d/../../x", "")', "write: d/../../x is not inside the target"),
        ('write("..", "")', "write: .. is not inside the target"),
        ('write("", "")', "write: / is a directory of the target"),
        ('write("d", "")', "write: d is a directory of the target"),
        ('write("d/", "")', "write: d is a directory of the target"),
        ('write("x", 5)', "write: the text for x is not a string"),
        ('write("x", json(1))', "write: the text for x is not a string"),
        (r'write("x\x00", "")', "write: the path in the target has a NUL in it"),
        ("write(5, 5)", "write: the path in the target is not a string"),
    ],
)
def test_a_write_that_fails_fails_the_file_that_calls_it(call: str, message: str) -> None:
    assert failure({"d/a": f"[[ {call} ]]"}) == f"d/a:1:4: {message}"


# Empty files, scope, functions


def test_blank_files_are_left_out_when_that_is_asked_for() -> None:
    files = {"a": "\n[[ if data.on ]]x[[ end ]] \n", "b": "B", "c": ""}
    assert rendered(files, on=False) == {"a": " \n", "b": "B", "c": ""}
    assert rendered(files, skip_empty=True, on=False) == {"b": "B"}


def test_blank_partial_fails_a_jet_file() -> None:
    files = {"a": 'x[[ render("_partials/p", .) ]]', "_partials/p": " \n"}
    assert rendered(files) == {"a": "x"}
    assert (
        failure(files, skip_empty=True)
        == "a:1:5: render: _partials/p is blank, and blank files are skipped here"
    )


def test_files_share_data_assignments_but_no_variables() -> None:
    files = {"a": "[[ data.n = 2 ]][[ v := 1 ]]", "b": "[[ data.n ]][[ isset(v) ]]"}
    assert rendered(files, n=1) == {"a": "", "b": "2false"}


def test_functions_of_the_caller_reach_partials_too() -> None:
    def lookup(key: str, *default: Any) -> Any:
        if key == "data.x":
            return "found"
        if not default:
            raise FunctionError(f"there is no {key}")
        return default[0]

    files = {
        "a": '[[ render("_partials/p", 1) ]] [[ lookup("data.y", 5) ]]',
        "_partials/p": '[[ lookup("data.x") ]]',
    }
    assert render_tree(files, load_engine("jet"), TemplateScope(), functions={"lookup": lookup}) == {
        "a": "found 5"
    }


def test_scope_hides_capitalised_names() -> None:
    scope = TemplateScope({"h": 1}, {"d": 2}, {"e": 3})
    assert (scope["Facts"], scope["Data"], scope["Environ"]) == ({"h": 1}, {"d": 2}, {"e": 3})
    assert list(scope) == ["facts", "data", "environ"]
    with pytest.raises(KeyError):
        scope["Nope"]
    assert TemplateScope() == {"facts": {}, "data": {}, "environ": {}}


def test_a_scope_may_be_nested_to_any_depth() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    assert len(TemplateScope(data=deep)["data"]) == 1


def test_keys_of_a_scope_are_strings_and_its_integers_fit() -> None:
    scope = TemplateScope(data={80: "http", True: "yes", None: "nil", 1.5: [{2: "two"}], "big": 10**400})
    assert scope["data"] == {
        "80": "http",
        "true": "yes",
        "null": "nil",
        "1.5": [{"2": "two"}],
        "big": 10**400,
    }


# Engines


def test_unknown_engine_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match="engine is 'mako', expected one of go, jet, jinja"):
        load_engine("mako")
