"""Errors of Jet templates: place, cause and suggestion."""

from typing import Any

import pytest

from puller.templates.jet.jet_engine import JetEngine
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import Budget, FunctionError, LimitError, Limits, TemplateError
from tests.support.rows import each_row

DATA: dict[str, Any] = {
    "port": 80,
    "name": "web",
    "null": None,
    "list": [1, {"a": 1}],
    "server": {"host": "h", "hostname": "h1"},
}


def failure(text: str, **functions: Any) -> TemplateError:
    with pytest.raises(TemplateError) as failed:
        JetEngine().compile("a.conf", text).render(TemplateScope({"hostname": "web01"}, DATA, {}), functions)
    return failed.value


@each_row(
    ("text", "message"),
    [
        # unknown names and keys
        ("[[ prot ]]", "1:4: prot is not defined"),
        ("a\n  [[ dta.port ]]", "2:6: dta is not defined (did you mean 'data'?)"),
        ("[[ uper(1) ]]", "1:4: uper is not defined (did you mean 'upper'?)"),
        ("[[ port := 1 ]]\n[[ prot ]]", "2:4: prot is not defined (did you mean 'port'?)"),
        ("[[ data.servr.host ]]", "1:9: data.servr.host: unknown key 'servr' (did you mean 'server'?)"),
        ("[[ data.name.x ]]", "1:14: unknown name 'x' in a string: only a map has keys"),
        ("[[ data.null.x ]]", "1:14: unknown name 'x' in nil: only a map has keys"),
        ("[[ .data.port ]]", "1:5: facts, data and environ are names: write data, not .data"),
        (
            "[[ range data.list ]]\n[[ .a ]][[ end ]]",
            "2:5: unknown name 'a' in an integer: only a map has keys",
        ),
        ("[[ range data.list[1:] ]]\n[[ .b ]][[ end ]]", "2:5: .b: unknown key 'b'"),
        ("[[ nme = 1 ]]", "1:4: cannot assign to nme: it is not declared, nme := … does that"),
        ("[[ yield foo() ]]", "1:4: unknown block 'foo'"),
        (
            "[[ block food() ]][[ end ]][[ yield foo() ]]",
            "1:31: unknown block 'foo' (did you mean 'food'?)",
        ),
        ('[[ include "x.jet" ]]', "1:4: unknown template x.jet"),
        # values of the wrong type
        ("[[ data.list[5] ]]", "1:13: index out of range: 5"),
        ('[[ data.list["x"] ]]', "1:13: a string is not an index: a list or string is indexed by number"),
        ("[[ data.server[1] ]]", "1:15: a number cannot be a key: keys are strings"),
        ("[[ data.port[0] ]]", "1:13: an integer has no items"),
        ("[[ data.list[2:1] ]]", "1:13: slice bounds out of range [2:1] with length 2"),
        ('[[ "a" < 1 ]]', "1:8: the left side is a string; only numbers have an order"),
        ('[[ "a" * 1 ]]', "1:8: the left side is a string, not a number"),
        ('[[ 1 + "x" ]]', '1:6: strconv.ParseFloat: parsing "x": invalid syntax'),
        ("[[ 1 + data.list ]]", "1:6: a list cannot be converted to a number"),
        ("[[ data.port / 0 ]]", "1:14: division by zero"),
        ("[[ data.nope + 1 ]]", "1:14: the left side is missing"),
        ("[[ range data.port ]][[ end ]]", "1:10: cannot range over data.port: it is an integer"),
        ("[[ range data.nope ]][[ end ]]", "1:10: cannot range over data.nope: the value is missing"),
        (
            "[[ range data.list ]][[ . + 1 ]][[ end ]]",
            "1:25: the item . has no type here, give it a name: range i, item := …",
        ),
        (
            "[[ m := map() ]][[ m.x = m ]][[ m ]]",
            "1:33: the value is nested more than 200 levels deep, or holds itself",
        ),
        # calls
        ("[[ upper(5) ]]", "1:4: upper: requires a string, not a number"),
        ('[[ repeat("a", "b") ]]', "1:4: repeat: requires a number, not a string"),
        ("[[ upper() ]]", "1:4: upper: takes 1 argument, not 0"),
        ("[[ upper(data.nope) ]]", "1:4: upper: requires a value"),
        ("[[ data.nope | upper ]]", "1:16: upper: requires a value"),
        ("[[ data.port(1) ]]", "1:4: data.port cannot be called here: it is an integer, not a function"),
        ("[[ x := raw(1) ]]", "1:9: raw cannot be called here: a writer prints and does not return a value"),
        ('[[ "a" | raw | upper ]]', "1:16: a writer such as raw must be the last of a pipeline"),
        ("[[ upper ]]", "1:4: upper is a function: it cannot be printed, only called"),
        ("[[ range ints(3, 1) ]][[ end ]]", "1:10: ints: from (3) must be smaller than to (1)"),
        ("[[ block b(x) ]][[ end ]]", "1:4: block b: the parameter x requires a value or a default"),
        # invalid syntax
        ("[[ if data.x ]]\nx", "1:4: if is not closed with end"),
        ("[[ range data.x ]][[ if . ]]x[[ end ]]", "1:4: range is not closed with end"),
        ("a\n[[ data.x", "2:1: the action is not closed with ]]"),
        ("[[ end ]]", "1:4: found end outside of any block"),
        ("[[ ]]", "1:4: found ]], expected a value"),
        ("[[ 1 + ]]", "1:8: found ]], expected a value"),
        ("[[ 1 2 ]]", "1:6: found 2, expected | or the end of the action"),
        ("[[ if ]]", "1:7: found ]], expected a value"),
        ("[[ else := 1 ]]", "1:9: found :=, expected the end of else"),
        ("[[ x := if ]]", "1:9: found the keyword if, expected a value"),
        ("[[ a # b ]]", "1:6: '#' means nothing here"),
        ('[[ a"b" ]]', "1:5: '\"' cannot follow a"),
        ("[[ 12abc ]]", "1:4: 12a is not a number"),
        ("[[ 08 ]]", "1:4: 08 is not a valid number: wrong digits, or more than 64 bits"),
        ('[[ "\\q" ]]', '1:4: "\\q" is not a valid string: invalid syntax'),
        ('[[ "abc ]]', "1:4: the string requires a closing quote on its line"),
        ("[[ `abc ]]", "1:4: the raw string requires a closing backquote"),
        ("[[ 'ab' ]]", "1:4: 'ab' is not a valid char: invalid syntax"),
        ("{* [[ 1 ]]", "1:1: the comment is not closed with *}"),
        ("[[ upper(1 ]]", "1:12: ]] ends the action, but a parenthesis is still open"),
        (
            "[[ data.m[data.l[0]] ]]",
            "1:19: found ]], expected the closing bracket; two in a row end the action, write ] ]",
        ),
        ("[[ data.l[] ]]", "1:11: found ], expected a value"),
        (
            "[[ data.l[1 ]]",
            "1:13: found ]], expected the closing bracket; two in a row end the action, write ] ]",
        ),
        ("[[ 1) ]]", "1:5: the opening parenthesis is missing"),
        ("[[ 5 := 6 ]]", "1:4: cannot assign to 5"),
        ("[[ data.x := 6 ]]", "1:4: cannot declare data.x: only a name can be declared"),
        ("[[ a, b = 1 ]]", "1:4: cannot assign 1 values to 2 targets"),
        ('x[[ import "a" ]]', "1:5: import must come before everything else in a template"),
        ('[[ import "a" ]]', "1:11: unknown template a"),
        ("[[ extends 5 ]]", "1:12: the path of a template must be a string"),
        ('[[ "a".b ]]', '1:7: "a" has no fields'),
    ],
)
def test_failure_names_location_and_cause(text: str, message: str) -> None:
    assert str(failure(text)) == f"a.conf:{message}"


def test_the_excerpt_puts_a_caret_below_the_place() -> None:
    error = failure("first\n\tport = [[ data.server.hots.x ]]\r\nlast")
    assert (error.line, error.column, error.source_line) == (2, 24, "\tport = [[ data.server.hots.x ]]")
    assert error.excerpt() == "\tport = [[ data.server.hots.x ]]\n\t                      ^"


def test_an_error_in_a_function_of_the_caller_names_the_function() -> None:
    def lookup(path: str) -> str:
        raise FunctionError(f"there is no {path}")

    assert (
        str(failure('x\n[[ lookup("data.x") ]]', lookup=lookup)) == "a.conf:2:4: lookup: there is no data.x"
    )


def test_wrong_argument_count_of_a_host_function() -> None:
    assert (
        str(failure("[[ f(1, 2) ]]", f=lambda item: item))
        == "a.conf:1:4: f: cannot be called with 2 arguments"
    )


def test_a_defect_in_a_function_of_the_caller_is_not_hidden() -> None:
    def broken(_: object) -> str:
        return len(5)  # type: ignore[arg-type,return-value]  # the defect

    with pytest.raises(TypeError):
        JetEngine().compile("t", "[[ f(1) ]]").render(TemplateScope(), {"f": broken})


def test_the_cause_of_an_error_is_kept() -> None:
    def lookup(_: str) -> str:
        raise FunctionError("no")

    assert isinstance(failure('[[ lookup("x") ]]', lookup=lookup).__cause__, FunctionError)


# Limits


def limited(text: str, limits: Limits) -> LimitError:
    with pytest.raises(LimitError) as failed:
        JetEngine().compile("t", text).render(TemplateScope(), budget=Budget(limits, Clock()))
    return failed.value


class Clock:
    """A clock that advances by a second for each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize(
    "loop",
    [
        "[[ range ints(0, 1000000000) ]][[ end ]]",
        "[[ range ints(0, 1000000000) ]]x[[ end ]]",
        "[[ range ints(0, 1000000000) ]][[ try ]][[ nope ]][[ catch ]][[ end ]][[ end ]]",
        "[[ try ]][[ range ints(0, 1000000000) ]][[ end ]][[ catch ]][[ end ]]",
        "[[ range ints(0, 100000) ]][[ range ints(0, 100000) ]][[ end ]][[ end ]]",
    ],
)
def test_a_loop_without_end_stops_at_the_time_limit(loop: str) -> None:
    error = limited(loop, Limits(seconds=5))
    assert error.message == "the template runs for more than 5 seconds"
    assert error.line == 1


@each_row(
    "text",
    [
        '[[ repeat("x", 1000000000000) ]]',
        '[[ s := "x" ]][[ range ints(0, 100) ]][[ s = s + s ]][[ end ]]',
        '[[ s := repeat("x", 10000) ]][[ replace(s, "x", s, -1) ]]',
        '[[ split(repeat(",", 50000), ",") ]]',
        "[[ range ints(0, 1000000) ]]0123456789[[ end ]]",
        '[[ range ints(0, 1000) ]][[ repeat("x", 4000) ]][[ end ]]',
        '[[ s := repeat("x", 50000) ]]' + "[[ s ]]" * 5,
        '[[ s := repeat("x", 4000) ]]' + "[[ upper(s) ]]" * 300,
        '[[ s := repeat("x", 4000) ]][[ range ints(0, 1000) ]][[ s ]][[ s ]][[ s ]][[ end ]]',
        '[[ range i, s := slice(repeat("x", 99999), repeat("x", 99)) ]][[ s ]][[ s ]][[ end ]]',
        '[[ s := repeat("x", 50000) ]][[ l := slice(s, s, s) ]][[ l ]]',
        '[[ s := repeat("x", 50000) ]][[ l := slice(s, s, s) ]][[ json(l) ]]',
        "[[ block b(n=1) ]][[ range ints(0, 100000) ]]xx[[ end ]][[ end ]]",
    ],
)
def test_gigantic_text_is_refused_before_it_is_built(text: str) -> None:
    error = limited(text, Limits(seconds=10_000_000, characters=100_000))
    assert error.message == "the template makes more than 100000 characters of text"


@pytest.mark.parametrize(
    "text",
    [
        "[[ block b() ]][[ yield b() ]][[ end ]]",
        "[[ block b() ]][[ yield b() content ]][[ yield content ]][[ end ]][[ end ]]",
        "[[ block a() ]][[ yield c() ]][[ end ]][[ block c() ]][[ yield a() ]][[ end ]]",
    ],
)
def test_endless_mutual_blocks_stop_at_the_depth_limit(text: str) -> None:
    error = limited(text, Limits(seconds=10_000_000, depth=20))
    assert error.message == "templates and blocks call one another more than 20 levels deep"


@pytest.mark.parametrize(
    "text",
    [
        "[[ " + "(" * 5000 + "1" + ")" * 5000 + " ]]",
        "[[ " + "!" * 5000 + "1 ]]",
        "[[ " + "1 + " * 5000 + "1 ]]",
        "[[ if 1 ]]" * 5000 + "[[ end ]]" * 5000,
        "[[ if 1 ]]" + "[[ else if 1 ]]" * 5000 + "[[ end ]]",
    ],
)
def test_a_template_nested_too_deeply_is_refused(text: str) -> None:
    assert "nested too deeply" in str(failure(text))


@each_row(
    ("opening", "closing"),
    [
        ("(1 + ", ")"),
        ("(1 == ", ")"),
        ("!(", ")"),
        ("(1 ? ", " : 0)"),
        ("(", " ? 1 : 0)"),
        ("slice(", ")"),
        ("upper(", ")"),
        ("upper(1 ? slice(", ") : 0)"),
        ("data.m[", " ]"),
        ("isset(data.m[", " ])"),
        ("data.m[1:", " ]"),
    ],
)
def test_compiling_takes_no_longer_for_each_level_of_nesting(opening: str, closing: str) -> None:
    depth = 25  # with twice the time for each level, this would take minutes
    JetEngine().compile("t", f"[[ {opening * depth}1{closing * depth} ]]")


@pytest.mark.parametrize(
    "text", ["[[ data.n ]]", "[[ n := data.n ]][[ n ]]", "[[ range data.l ]][[ .n ]][[ end ]]"]
)
def test_number_with_too_many_digits_is_an_error(text: str) -> None:
    numbers = {"n": 10**5000}
    with pytest.raises(TemplateError, match=r"^t:1:\d+: .*digits"):
        JetEngine().compile("t", text).render(TemplateScope(data={**numbers, "l": [numbers]}))


@pytest.mark.parametrize("number", [2**30, 2**31, 2**62, 2**63 - 1, -(2**63), -(2**40)])
def test_any_number_is_printed(number: int) -> None:
    text = "[[ data.n ]] [[ n := data.n ]][[ n ]] [[ range data.l ]][[ .n ]] [[ . ]][[ end ]]"
    scope = TemplateScope(data={"n": number, "l": [{"n": number}]})
    assert JetEngine().compile("t", text).render(scope) == f"{number} {number} {number} map[n:{number}]"


def test_try_does_not_catch_a_limit() -> None:
    text = "[[ block b() ]][[ try ]][[ yield b() ]][[ catch ]]caught[[ end ]][[ end ]]"
    assert "levels deep" in limited(text, Limits(seconds=10_000_000)).message


def test_a_block_that_fails_leaves_the_depth_as_it_was() -> None:
    text = "[[ block b() ]][[ nope ]][[ end ]]"
    many = f"[[ try ]]{text}[[ end ]][[ range ints(0, 50) ]][[ try ]][[ yield b() ]][[ end ]][[ end ]]ok"
    assert JetEngine().compile("t", many).render(TemplateScope(), budget=Budget(Limits(depth=3))) == "ok"
