"""``bundle.json``: one encoding for each description."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bundles.errors import FormatError
from bundles.format.description import BundleDescription, FileEntry, FileMode
from bundles.format.fields import Identity, MemberPath, parse_identity
from tests.support.rows import each_row

CASES = yaml.load(
    (Path(__file__).parents[2] / "cases" / "bundles" / "description.yaml").read_text(encoding="utf-8"),
    yaml.CSafeLoader,
)
DIGEST = hashlib.sha256(b"").hexdigest()
ENTRY = FileEntry(FileMode.PLAIN, DIGEST, 0)
SIMPLE = BundleDescription("web", "1.4.0", {MemberPath("manifest.yaml"): ENTRY})
TEXT = (
    f'{{"files":{{"manifest.yaml":{{"mode":"0644","sha256":"{DIGEST}","size":0}}}},'
    '"format":1,"name":"web","version":"1.4.0"}'
)


def test_description_is_written_as_sorted_json_in_a_line() -> None:
    assert SIMPLE.to_bytes().decode() == TEXT


def test_a_description_is_read_back_as_it_was() -> None:
    assert BundleDescription.parse(TEXT.encode()) == SIMPLE


paths = st.sampled_from(["a", "b/c", "b/d", "größe", 'say "hi"', "z.sh"]).map(MemberPath)
entries = st.builds(
    FileEntry,
    st.sampled_from(FileMode),
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.integers(0, 2**33 - 1),
)


@given(st.dictionaries(paths, entries))
def test_parse_undoes_to_bytes(files: dict[MemberPath, FileEntry]) -> None:
    description = BundleDescription("web", "1", {**files, MemberPath("manifest.yaml"): ENTRY})
    assert BundleDescription.parse(description.to_bytes()) == description


def test_the_order_of_files_does_not_matter_to_the_bytes() -> None:
    names = ["manifest.yaml", "b", "a/b", "a.b", "ä"]
    there = BundleDescription("web", "1", {MemberPath(name): ENTRY for name in names})
    back = BundleDescription("web", "1", {MemberPath(name): ENTRY for name in reversed(names)})
    assert there.to_bytes() == back.to_bytes()


def test_files_cannot_be_changed_behind_the_checks() -> None:
    with pytest.raises(TypeError):
        SIMPLE.files[MemberPath("x")] = ENTRY  # type: ignore[index] # that it cannot be done is the test


@each_row("case", CASES, ids=lambda case: case["case"])
def test_any_other_text_is_refused(case: dict[str, str]) -> None:
    old, by = (case[key].replace("@sha256@", DIGEST) for key in ("old", "by"))
    assert old in TEXT
    with pytest.raises(FormatError) as caught:
        BundleDescription.parse(TEXT.replace(old, by).encode())
    assert case["says"] in str(caught.value)
    assert str(caught.value).startswith("bundle.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bundle.json: Expecting value"),
        ("[]", "bundle.json: is a JSON list, expected an object"),
        ("[" * 100_000, "bundle.json: is nested more than 64 deep"),
        ('{"a":' * 100_000, "bundle.json: is nested more than 64 deep"),
        (TEXT.replace(":0", ":" + "9" * 100_000), "bundle.json: the number 99999999999999999999… is larger"),
        (TEXT.replace('"web"', f'"{"w" * 65}"'), "bundle.json: name: is 'wwwww"),
    ],
    ids=["empty", "a list", "deep lists", "deep objects", "a number of many digits", "a long name"],
)
def test_invalid_descriptions_are_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        BundleDescription.parse(text.encode())
    assert str(caught.value).startswith(message)


def test_the_message_names_file_and_field() -> None:
    with pytest.raises(FormatError) as caught:
        BundleDescription.parse(TEXT.replace('"size":0', '"size":"0"').encode())
    assert str(caught.value) == "bundle.json: files['manifest.yaml'].size: Expected `int`, got `str`"


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(FormatError, match="is not UTF-8 text"):
        BundleDescription.parse(TEXT.encode("utf-16"))


def test_names_that_differ_in_case_only_are_refused() -> None:
    document = json.loads(TEXT)
    document["files"]["Manifest.yaml"] = document["files"]["manifest.yaml"]
    with pytest.raises(FormatError, match="cannot exist together"):
        BundleDescription.parse(json.dumps(document).encode())


def test_name_and_version_can_be_read_without_the_files() -> None:
    assert parse_identity(TEXT.encode()) == Identity("web", "1.4.0")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"name":"web"}', b'{"name":"../x","version":"1"}', b"\0" * 100]
)
def test_name_and_version_of_a_damaged_file_are_an_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_identity(data)


@pytest.mark.parametrize(
    ("bits", "mode"),
    [
        (0o000, FileMode.PLAIN),
        (0o600, FileMode.PLAIN),
        (0o655, FileMode.PLAIN),
        (0o100, FileMode.EXECUTABLE),
        (0o6755, FileMode.EXECUTABLE),
    ],
)
def test_only_the_owners_execute_bit_is_kept(bits: int, mode: FileMode) -> None:
    assert FileMode.of(bits) is mode
