"""YAML text gives plain values, or an error with file, line and column."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from hiera import parsing
from hiera.errors import DocumentError, HieraError, LimitError
from hiera.parsing import Places, load_yaml, locate, original
from tests.support.rows import each_row

CASES = yaml.load((Path(__file__).parents[2] / "cases/hiera/yamltext.yaml").read_text(), yaml.CSafeLoader)


def cases(*, broken: bool) -> list[Any]:
    """Return the invalid or the valid texts. Some texts are a case of ``tests/attacks.yaml``."""
    return [
        pytest.param(
            case, id=case["text"], marks=[pytest.mark.attack(case["attack"])] if "attack" in case else []
        )
        for case in CASES
        if ("error" in case) is broken
    ]


KEYS = st.text(max_size=5) | st.integers()
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("case", cases(broken=False))
def test_a_text_becomes_a_value(case: dict[str, Any]) -> None:
    value = load_yaml(case["text"], "f")
    assert (value, json.dumps(value)) == (case["value"], json.dumps(case["value"]))


@pytest.mark.parametrize("case", cases(broken=True))
def test_a_broken_text_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(DocumentError) as caught:
        load_yaml(case["text"], "f")
    assert str(caught.value) == case["error"]


@given(VALUES)
def test_yaml_round_trip(value: object) -> None:
    text = yaml.safe_dump(value)
    assert load_yaml(text, "f") == load_yaml(text.encode(), "f") == value


@given(st.dictionaries(st.text("aé/\\\"'\n\t: #"), VALUES.map(lambda value: json.loads(json.dumps(value)))))
def test_json_is_yaml(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    # In two respects JSON is not YAML 1.1: some control characters, and an exponent without a point.
    if text.isprintable() and not re.search(r"\de[-+]?\d", text):
        assert load_yaml(text, "f") == value


@given(st.text(alphabet="ab01 :-{}[],&*!|>'\"\n#%@\t<?~._\\é", max_size=60))
@example("*a : b")
@example("? |\n a\n: b")
@example("&a &b c")
def test_any_text_is_a_value_or_an_error_of_ours(text: str) -> None:
    try:
        load_yaml(text, "f")
    except HieraError as error:
        assert str(error).startswith("f:")


@given(st.text(alphabet="ab01 :-{}[],&*'\"\n#yno._~", max_size=40))
def test_yaml_equals_pyyaml_or_is_refused(text: str) -> None:
    try:
        value = load_yaml(text, "f")
    except HieraError:
        return
    assert value == yaml.load(text, yaml.CSafeLoader)


def test_text_that_is_not_utf8_is_refused_with_its_line() -> None:
    with pytest.raises(DocumentError, match=r"^f:2: is not UTF-8 text$"):
        load_yaml(b"a: 1\nb: \xff", "f")
    with pytest.raises(DocumentError, match=r"^f:1: is not UTF-8 text$"):
        load_yaml("a: '\udc80'", "f")


@pytest.mark.attack("input.large")
def test_a_text_longer_than_the_limit_is_not_read() -> None:
    assert load_yaml("a: bcd", "f", limit=6) == {"a": "bcd"}
    with pytest.raises(LimitError, match="f: is longer than the 5 characters that are read"):
        load_yaml("a: bcd", "f", limit=5)


@pytest.mark.attack("input.nesting")
@pytest.mark.parametrize("text", ["[" * 101 + "]" * 101, "{a: " * 101 + "}" * 101, "- " * 101, "[" * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(LimitError, match="is nested more than 100 deep"):
        load_yaml(text, "f")


def test_nesting_up_to_the_limit_is_read() -> None:
    assert load_yaml("[" * 100 + "]" * 100, "f")


@pytest.mark.attack("input.alias-bomb")
def test_an_alias_bomb_is_refused_before_it_is_built() -> None:
    levels = [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(LimitError, match=r"^f:7:\d+: aliases make this more than 1000000 values$"):
        load_yaml("\n".join(["a0: &a0 [x]", *levels]), "f")


@pytest.mark.crash
def test_so_many_values_that_they_fill_the_memory_are_refused() -> None:
    with pytest.raises(LimitError, match=r"^f:1:\d+: more than 1000000 values are not read$"):
        load_yaml(f"[{'[],' * 1_000_001}]", "f")


@pytest.mark.parametrize("item", ["[]", "{}", "x", "''", "&a 1", "{a: 1}"])
def test_every_kind_of_value_counts(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "VALUES_LIMIT", 1000)
    with pytest.raises(LimitError, match=r"^f:1:\d+: more than 1000 values are not read$"):
        load_yaml(f"[{f'{item},' * 1001}]", "f")


def test_empty_aliases_count_as_values() -> None:
    with pytest.raises(LimitError, match="aliases make this more than 1000000 values"):
        load_yaml(f"a: &a [{'[],' * 2000}]\nb: [{'*a,' * 1000}]", "f")


@pytest.mark.attack("input.alias-bomb")
def test_aliases_of_a_long_text_are_a_bomb_too() -> None:
    with pytest.raises(LimitError, match="aliases make this longer"):
        load_yaml(f"a: &a {'x' * 100_000}\nb: [{','.join(['*a'] * 1000)}]", "f")


@pytest.mark.attack("input.alias-bomb", "input.nesting")
def test_aliases_that_nest_too_deep_are_refused() -> None:
    chain = [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 200)]
    with pytest.raises(LimitError, match="nested more than 100 deep"):
        load_yaml("\n".join(["a0: &a0 [x]", *chain]), "f")


def test_an_aliased_value_is_shared() -> None:
    value = load_yaml("a: &x [1]\nb: *x", "f")
    assert value["a"] is value["b"]


@pytest.mark.parametrize("text", ["9" * 2000, "1" + ":59" * 2000, "0x" + "f" * 2000, "0." + "9" * 2000])
def test_unreasonable_numbers_are_refused(text: str) -> None:
    with pytest.raises(DocumentError, match=r"^f:1:4: .* is not a usable (int|float): quote it$"):
        load_yaml(f"a: {text}", "f")


MANIFEST = """\
data:
  port: 0080
  common: &common {owner: root}
resources:
  - file:
      - /etc/motd:
          <<: *common
          mode: 0644
      - /etc/issue: {mode: "0600"}
  - package: [nginx, {curl: {ensure: 5.10}}]
"""


@each_row(
    ("path", "place"),
    [
        ((), (1, 1)),
        (("data",), (1, 1)),
        (("data", "port"), (2, 3)),
        (("resources", 0), (5, 5)),
        (("resources", 0, "file", 0, "/etc/motd", "mode"), (8, 11)),
        (("resources", 0, "file", 0, "/etc/motd", "owner"), (3, 20)),
        (("resources", 0, "file", 0, "/etc/motd", "group"), (6, 9)),
        (("resources", 1, "package", 1, "curl", "ensure"), (10, 30)),
        (("resources", 7, "package"), (4, 1)),
    ],
)
def test_a_path_has_a_place(path: tuple[str | int, ...], place: tuple[int, int]) -> None:
    assert locate(MANIFEST, path) == Places(MANIFEST).locate(path) == place


@each_row(
    ("path", "text"),
    [
        (("data", "port"), "0080"),
        (("resources", 0, "file", 0, "/etc/motd", "mode"), "0644"),
        (("resources", 0, "file", 1, "/etc/issue", "mode"), "0600"),
        (("resources", 1, "package", 1, "curl", "ensure"), "5.10"),
        (("resources", 0, "file", 0, "/etc/motd", "owner"), "root"),
        (("resources", 0), None),
        (("nope",), None),
    ],
)
def test_a_scalar_is_known_as_it_was_written(path: tuple[str | int, ...], text: str | None) -> None:
    assert original(MANIFEST, path) == text


def test_a_text_in_which_an_anchor_is_given_again_has_places() -> None:
    text = "a: &x {b: 1}\nc: &x\n  d: 0644\ne: *x\n"
    assert load_yaml(text, "f")["e"] == {"d": 420}
    assert (locate(text, ("c", "d")), original(text, ("e", "d"))) == ((3, 3), "0644")


def test_an_empty_text_has_a_place_too() -> None:
    assert locate("", ("a", 0)) == (1, 1)


# -- custom tags ------------------------------------------------------------------------------


def _refusing(value: Any) -> Any:
    raise ValueError(f"wants nothing like {value}")


TAGS = {"!same": lambda value: ("same", value), "!refusing": _refusing}


@each_row(
    ("text", "value"),
    [
        ("!same 5", ("same", 5)),
        ("!same '5'", ("same", "5")),
        ("!same a b", ("same", "a b")),
        ("!same", ("same", None)),
        ("!same [1, !same x]", ("same", [1, ("same", "x")])),
        ("!same {a: yes}", ("same", {"a": True})),
        ("!same |\n  a\n  b\n", ("same", "a\nb\n")),
        ("a: &b !same 5\nc: *b", {"a": ("same", 5), "c": ("same", 5)}),
        ("!same !!str 5", None),
    ],
)
def test_custom_tags_are_built_by_the_caller(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(DocumentError):
            load_yaml(text, "x", tags=TAGS)
        return
    assert load_yaml(text, "x", tags=TAGS) == value
    with pytest.raises(DocumentError, match=r"unsupported tag\. Quote text that begins with !"):
        load_yaml(text, "x")


def test_replace_tag_names_the_key_to_use() -> None:
    with pytest.raises(DocumentError, match=r"unsupported tag !replace\. List the key in replace"):
        load_yaml("data: {ports: !replace {https: 443}}", "x")


def test_refused_and_unknown_tags_name_their_location() -> None:
    with pytest.raises(DocumentError, match=r"^x:2:4: !refusing wants nothing like 5$"):
        load_yaml("a: 1\nb: !refusing 5", "x", tags=TAGS)
    with pytest.raises(DocumentError, match=r"Known tags: !same, !refusing$"):
        load_yaml("b: !other 5", "x", tags=TAGS)
    with pytest.raises(DocumentError, match=r"!!python/name:os\.system is not supported"):
        load_yaml("b: !!python/name:os.system", "x", tags=TAGS)
