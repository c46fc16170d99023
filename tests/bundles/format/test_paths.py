"""Names in bundles: valid names, and names that exclude each other."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.errors import FormatError
from bundles.format.fields import MOST_ENTRIES, MemberPath, directories_of, folded
from tests.support.rows import each_row


@each_row(
    "name",
    [
        "manifest.yaml",
        "templates/motd.j2",
        "a..b",
        "..a",
        "a..",
        "...",
        ".hidden/.x",
        "with space",
        "-rf",
        "~",
        "größe/日本語",
        "ab:/x",
        "x" * 255,
        "/".join(["d"] * 32),
        "/".join(["x" * 203] * 5) + "/end",
    ],
)
def test_a_plain_relative_name_is_taken_as_it_is(name: str) -> None:
    assert str(MemberPath.parse(name)) == name
    assert MemberPath.parse(name.encode()) == MemberPath(name)


@each_row(
    ("name", "message"),
    [
        ("", "'': the name is empty"),
        ("/etc/x", "'/etc/x': the name is absolute"),
        ("/", "'/': the name is absolute"),
        ("//x", "'//x': the name is absolute"),
        (".", "'.': the name contains the component '.'"),
        ("./x", "'./x': the name contains the component '.'"),
        ("..", "'..': the name contains the component '..'"),
        ("../x", "'../x': the name contains the component '..'"),
        ("a/../b", "'a/../b': the name contains the component '..'"),
        ("a/..", "'a/..': the name contains the component '..'"),
        ("a//b", "'a//b': the name contains the component ''"),
        ("a/", "'a/': the name contains the component ''"),
        ("a\\b", r"'a\\b': the name contains a backslash"),
        ("C:\\x", r"'C:\\x': the name contains a backslash"),
        ("C:/x", "'C:/x': the name starts with a drive letter"),
        ("a:b", "'a:b': the name starts with a drive letter"),
        ("a\0b", r"'a\x00b': the name contains the control character U+0000"),
        ("a\nb", r"'a\nb': the name contains the control character U+000A"),
        ("a\x1b[2Jb", r"'a\x1b[2Jb': the name contains the control character U+001B"),
        ("a\x7f", r"'a\x7f': the name contains the control character U+007F"),
        ("a\x85", r"'a\x85': the name contains the control character U+0085"),
        ("a\u2028b", r"'a\u2028b': the name contains the control character U+2028"),
        ("a\u202egnp.sh", r"'a\u202egnp.sh': the name contains the control character U+202E"),
        ("a\udcff", r"'a\udcff': the name is not UTF-8"),
        (b"a\xff", r"'a\\xff': the name is not UTF-8"),
        (b"\xc0\xae\xc0\xae/x", r"'\\xc0\\xae\\xc0\\xae/x': the name is not UTF-8"),
        ("é" * 128, f"'{'é' * 128}': a component of the name has 256 bytes, at most 255 are allowed"),
        (
            "/".join(["x"] * 33),
            f"'{'/'.join(['x'] * 33)}': the name is 33 levels deep, at most 32 are allowed",
        ),
        ("x/" * 600, f"'{'x/' * 100}…': the name has 1200 bytes, at most 1024 are allowed"),
    ],
)
def test_a_name_that_could_mean_something_else_is_refused(name: str | bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        MemberPath.parse(name)
    assert str(caught.value) == message


def test_there_is_no_way_around_parse() -> None:
    with pytest.raises(FormatError, match="contains the component"):
        MemberPath("../x")


names = st.one_of(
    st.text(), st.lists(st.sampled_from(["..", ".", "", "a", "\0", "~", "C:", "/", "\\"])).map("/".join)
)


@given(names)
def test_accepted_paths_stay_below_the_root(name: str) -> None:
    try:
        path = MemberPath.parse(name)
    except FormatError:
        return
    assert os.path.normpath(os.path.join("/root", str(path))) == f"/root/{path}"
    assert MemberPath.parse(str(path).encode()) == path


@given(st.binary())
def test_bytes_are_taken_only_as_they_would_be_written_again(name: bytes) -> None:
    try:
        path = MemberPath.parse(name)
    except FormatError:
        return
    assert os.fsencode(str(path)) == name


def test_directories_follow_from_files() -> None:
    paths = [MemberPath("a/b/c"), MemberPath("a/d"), MemberPath("e")]
    assert directories_of(paths) == {"a", "a/b"}


@each_row(
    ("one", "other"),
    [
        ("motd", "MOTD"),
        ("etc/motd", "ETC/passwd"),
        ("straße", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("\u212b", "\u00e5"),  # the Ångström sign and the letter å
        ("a", "a/b"),
        ("A/b", "a"),
        ("same", "same"),
    ],
)
def test_names_equal_on_some_file_system_are_refused(one: str, other: str) -> None:
    for pair in ([one, other], [other, one]):
        with pytest.raises(FormatError, match="cannot exist together"):
            directories_of(map(MemberPath, pair))


def test_entries_are_counted_with_their_directories() -> None:
    files = [MemberPath(f"a/b/{number}") for number in range(MOST_ENTRIES - 2)]
    assert directories_of(files) == {"a", "a/b"}
    with pytest.raises(FormatError, match=f"files: more than {MOST_ENTRIES} files and directories"):
        directories_of([*files, MemberPath("c")])


def test_the_message_about_two_names_shows_both() -> None:
    with pytest.raises(FormatError) as caught:
        directories_of([MemberPath("etc/motd"), MemberPath("ETC/x")])
    assert str(caught.value) == (
        "'ETC': the directory 'ETC' and the directory 'etc' cannot exist together on every file system"
    )


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_folding_once_is_enough(text: str) -> None:
    assert folded(folded(text)) == folded(text)
