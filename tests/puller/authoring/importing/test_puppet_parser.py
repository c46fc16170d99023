"""The lexer and parser of the Puppet language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.authoring.importing.puppet.language.lexer import SyntaxProblem
from puller.authoring.importing.puppet.language.puppet_parser import Parser, parse
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    Assignment,
    Binary,
    Call,
    Case,
    Chain,
    ClassDefinition,
    Collector,
    Define,
    HashLiteral,
    If,
    ListLiteral,
    Literal,
    Node,
    NodeDefinition,
    ResourceDeclaration,
    ResourceDefaults,
    ResourceOverride,
    Selector,
    Text,
    Unary,
    Variable,
)
from tests.support.rows import each_row


def one(text: str) -> Node:
    [statement] = parse(text)
    return statement


def shape(node: Node) -> str:
    """Return an expression with a pair of parentheses for each operator."""
    match node:
        case Binary():
            return f"({shape(node.left)} {node.operator} {shape(node.right)})"
        case Unary():
            return f"({node.operator}{shape(node.operand)})"
        case Variable():
            return f"${node.name}"
        case Literal():
            return repr(node.value)
        case Access():
            return f"{shape(node.target)}[{', '.join(map(shape, node.keys))}]"
        case Call():
            return f"{node.name}({', '.join(map(shape, node.arguments))})"
        case Text():
            return (
                f'"{"".join(part if isinstance(part, str) else f"<{shape(part)}>" for part in node.parts)}"'
            )
        case ListLiteral():
            return f"[{', '.join(map(shape, node.items))}]"
        case HashLiteral():
            return f"{{{', '.join(f'{shape(key)}: {shape(value)}' for key, value in node.pairs)}}}"
    return type(node).__name__


@each_row(
    ("source", "expected"),
    [
        ("$a + 1 * 2", "($a + (1 * 2))"),
        ("$a - 1 - 2", "(($a - 1) - 2)"),
        ("!$a and $b or $c", "(((!$a) and $b) or $c)"),
        ("$a in ['x'] == true", "(($a in ['x']) == True)"),
        ("$a =~ $b and $c", "(($a =~ $b) and $c)"),
        ("$facts['os']['family']", "$facts['os']['family']"),
        ("$::os::x", "$os::x"),
        ("$a.keys.join(',')", "join(keys($a), ',')"),
        ("merge($a, b => 1)", "merge($a, {'b': 1})"),
        ("'it''s'.length", None),
        (r"'a\'b\\c\n'", repr(r"a'b\c\n")),
        (r'"a\tb\$c"', r"'a\tb$c'"),
        ("\"a ${b} $c/${d['e']}\"", "\"a <$b> <$c>/<$d['e']>\""),
        ('"${facts["os"]["name"]}"', "\"<$facts['os']['name']>\""),
        ('"${x.join("}")}"', "\"<join($x, '}')>\""),
        ('"${$a + 1}"', '"<($a + 1)>"'),
        ("\"${lookup('x')}\"", "\"<lookup('x')>\""),
        ("0x1F", "31"),
        ("0644", "420"),
        ("1.5", "1.5"),
        ("-1", "(-1)"),
        ("{a => 1, 'b' => [1, 2,],}", "{'a': 1, 'b': [1, 2]}"),
        ("$a / 2 / 3", "(($a / 2) / 3)"),
        ("$x =~ /a\\/b/", "($x =~ Regex)"),
        ("undef", "None"),
        ("apache2-utils", "'apache2-utils'"),
    ],
)
def test_expression(source: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(SyntaxProblem):
            Parser(source).expression()
    else:
        assert shape(Parser(source).expression()) == expected


def test_heredoc_removes_its_margin() -> None:
    node = one('$a = @("END"/L)\n    port ${x}\n      joined \\\n    line\n    | END\n')

    assert isinstance(node, Assignment)
    assert shape(node.value) == '"port <$x>\n  joined line\n"'


def test_heredoc_without_quotes_is_literal() -> None:
    node = one("file { '/x': content => @(EOT), mode => '0644' }\n  cost: $5 ${x}\n  |- EOT\n")

    assert isinstance(node, ResourceDeclaration)
    content, mode = node.bodies[0].attributes
    assert (shape(content.value), shape(mode.value)) == ("'cost: $5 ${x}'", "'0644'")


def test_class_has_parameters_parent_and_body() -> None:
    node = one("class a::b (String $x, Optional[Integer[0, 5]] $y = undef,) inherits a::params { include c }")

    assert isinstance(node, ClassDefinition)
    assert (node.name, node.parent, [item.name for item in node.parameters]) == (
        "a::b",
        "a::params",
        ["x", "y"],
    )
    assert isinstance(node.body[0], Call)


def test_resource_has_several_bodies() -> None:
    node = one("package { ['a', 'b']: ensure => present; 'c': * => $more, ensure => absent }")

    assert isinstance(node, ResourceDeclaration)
    assert [shape(body.title) for body in node.bodies] == ["['a', 'b']", "'c'"]
    assert [item.name for item in node.bodies[1].attributes] == ["*", "ensure"]


@each_row(
    ("source", "kind"),
    [
        ("File { owner => root }", ResourceDefaults),
        ("File['/x'] { mode => '0600' }", ResourceOverride),
        ("Package <| tag == 'x' |> { ensure => latest }", Collector),
        ("@@file { '/x': }", ResourceDeclaration),
        ("node /^web/, default { }", NodeDefinition),
        ("define a::b ($x) { }", Define),
        ("case $x { 'a', /b/: { } default: { } }", Case),
        ("if $a { } elsif $b { } else { }", If),
        ("$x = $y ? { 'a' => 1, default => 2 }", Assignment),
        ("package { 'a': } -> file { '/x': } ~> Service['a']", Chain),
        ("each($a) |$x| { notice $x }", Call),
        ("$a.each |Integer $i, $x| { }", Call),
    ],
)
def test_statement(source: str, kind: type[Node]) -> None:
    assert isinstance(one(source), kind)


def test_selector_belongs_to_the_last_operand() -> None:
    node = Parser("'a' + $x ? { default => 1 }").expression()

    assert isinstance(node, Binary)
    assert isinstance(node.right, Selector)


def test_problem_has_the_line() -> None:
    with pytest.raises(SyntaxProblem, match=r"line 3: .* instead of 'mode'"):
        parse("file { '/x':\n  ensure => file\n  mode => '0644',\n}\n")


@each_row(
    "source",
    [
        "[" * 10_000,
        "!" * 10_000 + "$a",
        "$x = " + "a + " * 10_000 + "1",
        "if $a {" * 10_000,
        "$a" + "[0]" * 10_000,
        '"${' * 10_000,
        "if 1 {} else " * 10_000,
        "f(" * 10_000,
        "/*",
        "'",
        "@(X)\n",
    ],
)
def test_hostile_source_is_a_syntax_problem(source: str) -> None:
    with pytest.raises(SyntaxProblem):
        parse(source)


@given(
    st.lists(
        st.sampled_from(
            [
                *'{}()[]:,|.=?@/\n \0#$\\é"1',
                "$a",
                "'x'",
                '"${',
                "=>",
                "->",
                "<|",
                "|>",
                "file",
                "File",
                "class",
                "if",
            ]
        )
    ).map("".join)
)
def test_any_text_is_parsed_or_a_syntax_problem(source: str) -> None:
    try:
        parse(source)
    except SyntaxProblem as problem:
        assert problem.line >= 1
