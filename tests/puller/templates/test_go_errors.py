"""Errors of templates in the Go engine, and limits for templates that would not end."""

import tracemalloc
from typing import Any

import pytest

from puller.templates.gotemplate.go_engine import GoEngine
from puller.templates.govalue import types
from puller.templates.govalue.types import MAX_ITEMS
from puller.templates.rendering import render_tree
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import Budget, LimitError, Limits, TemplateError
from tests.support.rows import each_row

DATA: dict[str, Any] = {
    "port": 80,
    "name": "web",
    "null": None,
    "list": [1, {"a": 1}],
    "server": {"host": "h"},
}


def failure(text: str, limits: Limits | None = None) -> TemplateError:
    with pytest.raises(TemplateError) as failed:
        GoEngine().compile("a.conf", text).render(
            TemplateScope({"hostname": "web01"}, DATA, {}), budget=Budget(limits) if limits else None
        )
    return failed.value


@each_row(
    ("text", "message"),
    [
        # invalid syntax
        ("a\n{{ .data.port", "2:1: unclosed action"),
        ("{{/* a", "1:3: unclosed comment"),
        ("{{ .data.max-age }}", "1:13: bad character U+002D '-'"),
        ("{{ 12abc }}", '1:4: bad number syntax: "12a"'),
        ('{{ "abc }}', "1:4: unterminated quoted string"),
        ("{{ `abc }}", "1:4: unterminated raw quoted string"),
        ("{{ 'abc }}", "1:4: unterminated character constant"),
        ("{{ $x : 1 }}", "1:7: expected :="),
        ("{{ \x00 }}", "1:4: unrecognized character in action: U+0000"),
        ("{{ if .a }}\n{{ if .b }}\n{{ end }}", "1:4: unexpected end of file: 'if' has no {{end}}"),
        ('{{ define "x" }}', "1:4: unexpected end of file: 'define' has no {{end}}"),
        (
            "{{ range . }}{{ else }}{{ else }}{{ end }}",
            "1:4: expected end of 'range', found another {{else}}",
        ),
        ('{{ block "x" . }}{{ else }}{{ end }}', "1:4: unexpected {{else}} in block clause"),
        ("{{ $a, $b := 1 }}", "1:6: too many declarations in command"),
        ("{{ range $a, 5 }}{{ end }}", "1:12: range can only initialize variables"),
        ("{{ nil.x }}", "1:7: a constant has no fields"),
        # unknown names
        ("{{ $prot }}", "1:4: undefined variable '$prot'"),
        ('{{ uper "a" }}', "1:4: unknown function uper (did you mean 'upper'?)"),
        ("{{ xyzzy }}", "1:4: unknown function xyzzy"),
        ('{{ template "nope" }}', "1:4: template 'nope' is not defined"),
        # values of the wrong type
        ("{{ .data.null.x }}", "1:4: .data.null is nil: it has no field x"),
        ("{{ .data.name.x.y }}", "1:4: .data.name is of type string: it has no field x"),
        ("{{ $s := .data.server }}{{ $s.host.x }}", "1:28: $s.host is of type string: it has no field x"),
        ("{{ (print 1).x }}", "1:5: (…) is of type string: it has no field x"),
        ("{{ range .data.list }}{{ .a }}{{ end }}", "1:26: . is of type int: it has no field a"),
        ("{{ .data.name 1 }}", "1:4: name is not a method but has arguments"),
        ("{{ upper .data.port }}", "1:10: wrong type for value; expected string; got int"),
        ("{{ upper 5 }}", "1:10: expected string; found 5"),
        ('{{ until "5" }}', '1:10: expected int; found "5"'),
        ("{{ upper nil }}", "1:10: cannot assign nil to string"),
        ("{{ .data.port | upper }}", "1:17: wrong type for value; expected string; got int"),
        (
            "{{ range .data.port }}{{ . }}{{ end }}{{ index .data.list 2 }}",
            "1:42: error calling index: index out of range: 2",
        ),
        ("{{ range .data.name }}{{ end }}", "1:4: range can't iterate over web"),
        ('{{ fail "no port" }}', "1:4: error calling fail: no port"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, message: str) -> None:
    assert str(failure(text)) == f"a.conf:{message}"


def test_the_excerpt_points_at_the_mistake() -> None:
    error = failure("listen 80;\n\tserver {{ .data.null.x }};\n")
    assert error.excerpt() == "\tserver {{ .data.null.x }};\n\t          ^"


def test_a_mistake_in_a_partial_is_reported_with_both_places() -> None:
    files = {"a.conf": '\n{{ render "_partials/p" . }}', "_partials/p": "x\n{{ index .data.list 9 }}"}
    with pytest.raises(TemplateError) as failed:
        render_tree(files, GoEngine(), TemplateScope(data=DATA))
    assert str(failed.value) == (
        "a.conf:2:4: error calling render: _partials/p:2:4: error calling index: index out of range: 9"
    )


# Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "\n{{ range 9223372036854775807 }}{{ end }}",
        "\n{{ range 100000000 }}{{ range 100000000 }}{{ end }}{{ end }}",
        '\n{{ define "a" }}{{ range 1000000 }}{{ end }}{{ end }}{{ range 1000 }}{{ template "a" }}{{ end }}',
    ],
)
def test_a_template_that_would_not_end_is_stopped(text: str) -> None:
    error = failure(text, Limits(seconds=0.2))
    assert isinstance(error, LimitError)
    assert error.line == 2
    assert error.message == "the template runs for more than 0.2 seconds"


def test_many_list_searches_stop_too() -> None:
    text = "{{ $l := chunk 1 (until 20000) }}{{ uniq $l }}"
    assert failure(text, Limits(seconds=0.2)).message == "the template runs for more than 0.2 seconds"


def test_recursion_without_end_is_stopped() -> None:
    error = failure('{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}')
    assert isinstance(error, LimitError)
    assert "more than 100 levels deep" in error.message


def test_recursion_through_many_python_frames_is_stopped_too() -> None:
    deep = (
        "{{ with 1 }}{{ range 1 }}{{ if true }}" * 8
        + '{{ template "t" $ }}'
        + "{{ end }}{{ end }}{{ end }}" * 8
    )
    error = failure(f'{{{{ define "t" }}}}{deep}{{{{ end }}}}{{{{ template "t" . }}}}')
    assert isinstance(error, LimitError)


@pytest.mark.parametrize(
    "text",
    [
        '{{ repeat 1000000000 "x" }}',
        '{{ $s := "x" }}{{ range 60 }}{{ $s = printf "%s%s" $s $s }}{{ end }}',
        '{{ $s := "x" }}{{ range 60 }}{{ $s = cat $s $s }}{{ end }}',
        '{{ $s := "xx" }}{{ range 60 }}{{ $s = replace "x" $s $s }}{{ end }}',
        '{{ $s := "xx" }}{{ range 60 }}{{ $s = regexReplaceAll "x" $s $s }}{{ end }}',
        "{{ $l := list 1 }}{{ range 60 }}{{ $l = concat $l $l }}{{ end }}",
        '{{ $s := repeat 1000000 "x" }}{{ range 1000 }}{{ $s }}{{ end }}',
        "{{ range 10000000 }}some text that is not so short{{ end }}",
        '{{ $s := repeat 9999 "x" }}' + "{{ $s }}" * 9999,
        '{{ define "t" }}some text{{ if lt . 30 }}{{ template "t" add1 . | int }}{{ template "t" add1 . | int }}'
        '{{ end }}{{ end }}{{ template "t" 0 }}',
        '{{ indent 1000000 (repeat 1000 "\\n") }}',
        '{{ wrapWith 1 (repeat 100000 "x") (repeat 10000 "y") }}',
        '{{ printf "%1000000d" 1 | repeat 1000 }}',
        "{{ randAlphaNum 1000000000 }}",
    ],
)
@pytest.mark.representatives(5)
def test_gigantic_text_stops_before_it_is_built(text: str) -> None:
    error = failure(text, Limits(characters=1_000_000))
    assert isinstance(error, LimitError)
    assert error.message == "the template makes more than 1000000 characters of text"


def test_known_text_is_counted_before_it_is_joined() -> None:
    text = "x" * 1_000_000
    template = GoEngine().compile("t", "{{ range 1000000 }}{{ $.data.text }}{{ end }}")
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="makes more than"):
            template.render(TemplateScope(data={"text": text}))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("show", "limit"),
    [
        ("{{ $l }}", MAX_ITEMS),
        ("{{ toJson $l | len }}", 10_000),
        ("{{ deepCopy $l | len }}", 10_000),
        ("{{ deepEqual $l $l }}", 10_000),
    ],
)
def test_small_value_with_a_huge_walk_is_no_problem(
    show: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(types, "MAX_ITEMS", limit)
    text = f"{{{{ $l := list 1 }}}}{{{{ range 60 }}}}{{{{ $l = list $l $l }}}}{{{{ end }}}}{show}"
    try:
        GoEngine().compile("t", text).render(None)
    except TemplateError as error:
        assert f"more than {limit} items" in error.message


def test_very_deep_nesting_is_refused_and_no_crash() -> None:
    for opening, ending in (("{{ if true }}", "{{ end }}"), ("(", ")")):
        text = opening * 5000 + ending * 5000
        assert "more than 100 levels" in failure("{{ " + text + " }}" if opening == "(" else text).message
