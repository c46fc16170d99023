"""Puller gives the recorded answers of Puppet 7.23."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hiera.errors import HieraError, KeyNotFound
from hiera.tree.interpolation import verify_complete
from hiera.tree.locations import Texts
from hiera.tree.lookup import Tree
from hiera.tree.ruby_values import printable
from tests.support.rows import each_row

RECORD = json.loads((Path(__file__).parents[2] / "cases/hiera5/puppet-7.23.json").read_text())
CASES = {case["name"]: case for case in RECORD["cases"]}

# Data functions in Ruby or Puppet, and HOCON: documented as unsupported, with an error that names the function.
NOT_RUN = {
    "function/data-dig/a",
    "function/data-dig/a.b.0",
    "function/data-dig/z",
    "function/data-hash/a",
    "function/data-hash/i",
    "function/data-hash/z",
    "function/lookup-key/cooked",
    "function/lookup-key/z",
    "hocon/substitution",
}

# All other errors have Puppet's words. These messages come from inside Ruby, or Puller's messages have more detail.
OUR_WORDS = {
    "file/invalid-utf8": "at line 1 column 7: the text is not UTF-8",
    "file/unknown-anchor": "Unknown alias: nope at line 1 column 4",
    "file/utf16": "at line 1 column 1: the text is not UTF-8",
    "function/returns-non-hash": "Unable to find 'data_hash' function named 'fn::bad'",
    "json/nan": "unexpected token at 'NaN'",
    "keytypes-merge/unique": "The first element of the merge has wrong type",
    "keytypes/hb": "expects Puppet::LookupValue, got the mapping key true",
    "keytypes/hb.true": "expects Puppet::LookupValue, got the mapping key true",
    "keytypes/hon": "expects Puppet::LookupValue, got the mapping key true",
    "location/mapped-int": "mapped_paths requires a text, a list or a mapping, and 'memory_mb' is 2048",
    "location/path-empty-after-interpolation": "/env/data is a directory, expected a file",
    "lookup-options/invalid-regex": "not a regular expression that can be used: /^k(/",
    "merge-deep-sorted/types": "comparison of Integer with String failed",
    "trusted/no-facts": "No facts available for target node: facts are empty",
}


def bytes_of(content: Any) -> bytes:
    return base64.b64decode(content["base64"]) if isinstance(content, dict) else str(content).encode()


def texts(case: Mapping[str, Any]) -> Texts:
    places = (("/env", case["files"]), ("/conf", case.get("global_files", {})))
    return Texts({f"{root}/{path}": bytes_of(text) for root, files in places for path, text in files.items()})


def question(case: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the names and the arguments of ``Tree.lookup``."""
    if "call" in case:
        return called(case["call"])
    arguments = {name: case[name] for name in ("merge", "default") if name in case}
    if "type" in case:
        arguments["value_type"] = case["type"]
    return case.get("keys") or [case["key"]], arguments


def called(call: list[Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the same for a call of Puppet's function, with a mapping or with name, type, strategy and default."""
    first = call[0]
    if isinstance(first, dict):
        arguments = dict(first)
        names = arguments.pop("name")
        renamed = {"default_values_hash": "default_values", "default_value": "default"}
        return as_list(names), {renamed.get(name, name): value for name, value in arguments.items()}
    row = dict(zip(("value_type", "merge", "default"), call[1:], strict=False))
    if row.get("value_type"):
        row["value_type"] = row["value_type"].removeprefix("\0type:")
    return as_list(first), row


def as_list(names: Any) -> list[str]:
    return names if isinstance(names, list) else [names]


def answer(case: Mapping[str, Any]) -> Any:
    facts = RECORD["facts"][case["facts"]]
    verify_complete(facts)
    tree = Tree(facts, environment="/env", global_config="/conf/hiera.yaml", documents=texts(case))
    names, arguments = question(case)
    return json.loads(json.dumps(printable(tree.lookup(*names, **arguments))))


def test_there_are_as_many_cases_as_were_recorded() -> None:
    assert (len(RECORD["cases"]), len(CASES), len(NOT_RUN)) == (556, 556, 9)
    assert CASES.keys() >= NOT_RUN
    assert OUR_WORDS.keys() <= CASES.keys()


@each_row("name", CASES)
def test_case(name: str) -> None:
    expected = CASES[name]["expected"]
    if name in NOT_RUN:
        with pytest.raises(
            HieraError, match=r"function named '(fn::\w+|hocon_data)' .*: functions .* are not run"
        ):
            answer(CASES[name])
    elif "error" in expected:
        with pytest.raises(HieraError) as caught:
            answer(CASES[name])
        assert not isinstance(caught.value, KeyNotFound)
        words = expected["error"].replace("Evaluation Error: Error while evaluating a Function Call, ", "")
        if expected["error_kind"] != "crash" or name in OUR_WORDS:
            assert OUR_WORDS.get(name, words.removesuffix(" (file:")) in str(caught.value)
    elif not expected["found"]:
        with pytest.raises(KeyNotFound):
            answer(CASES[name])
    else:
        value = answer(CASES[name])
        assert value == expected["value"]
        assert type(value) is type(expected["value"])  # Python treats 1 and true as equal
