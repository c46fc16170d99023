"""Files of kernel parameters: how their lines are read, and edits that keep all other text."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.errors import ResourceError
from puller.resources.kernel import sysctl_files
from puller.resources.kernel.sysctl_files import (
    Edit,
    edited,
    normalized,
    parse,
    problem_of_key,
    same_words,
    set_before,
)
from puller.resources.read_once import EditedFile
from puller.system.local import LocalSystem
from tests.support.rows import each_row

N = 1_000_000
"""The length of a long line."""

FILE = """\
# Kept by hand.
; so is this
net.ipv4.ip_forward=0

  -net/ipv4/tcp_syncookies \t=  1\t
net.ipv4.conf.*.rp_filter = 2
-net.ipv4.conf.eth0.rp_filter
kernel.core_pattern = |/bin/false %P = %u
vm.swappiness = 10
vm.swappiness = 20
no setting
"""


def test_any_line_format_is_read() -> None:
    assert parse(FILE) == {
        "net/ipv4/ip_forward": "0",
        "net/ipv4/tcp_syncookies": "1",
        "net/ipv4/conf/*/rp_filter": "2",
        "kernel/core_pattern": "|/bin/false %P = %u",
        "vm/swappiness": "20",
    }


@each_row(
    ("edit", "before", "after"),
    [
        (Edit("net.ipv4.ip_forward", "1"), "net.ipv4.ip_forward=0\n", "net.ipv4.ip_forward=1\n"),
        (
            Edit("net.ipv4.tcp_syncookies", "0"),
            "  -net/ipv4/tcp_syncookies \t=  1\t\n",
            "  -net/ipv4/tcp_syncookies \t=  0\t\n",
        ),
        (Edit("vm.swappiness", "5"), "vm.swappiness = 20\nno", "vm.swappiness = 5\nno"),
        (Edit("vm.swappiness", None), "vm.swappiness = 10\nvm.swappiness = 20\n", ""),
        (Edit("net/ipv4/ip_forward", None), "net.ipv4.ip_forward=0\n", ""),
        (
            Edit("net.ipv4.conf.eth0.rp_filter", None),
            "-net.ipv4.conf.eth0.rp_filter\n",
            "-net.ipv4.conf.eth0.rp_filter\n",
        ),
        (Edit("kernel.panic", "5"), "no setting\n", "no setting\nkernel.panic = 5\n"),
    ],
)
def test_edit_changes_a_single_line(edit: Edit, before: str, after: str) -> None:
    assert edited(FILE, [edit]) == FILE.replace(before, after)


@each_row(
    ("text", "wanted"),
    [
        ("", "a.b = 1\n"),
        ("# no end", "# no end\na.b = 1\n"),
        ("c.d = 1\f\n\x1c", "c.d = 1\f\n\x1c\na.b = 1\n"),
        ("a.b=\n", "a.b=1\n"),
        ("a.b = 7", "a.b = 1"),
        ("a.b = 7\r\n", "a.b = 1\r\n"),
        ("#a.b = 7\n", "#a.b = 7\na.b = 1\n"),
    ],
)
def test_a_line_is_added_or_changed_in_any_file(text: str, wanted: str) -> None:
    assert edited(text, [Edit("a.b", "1")]) == wanted
    assert edited(wanted, [Edit("a.b", "1")]) == wanted


def test_a_key_that_is_removed_and_set_again_stands_at_the_end() -> None:
    text = "a.b = 1\nc.d = 2"
    assert edited(text, [Edit("a.b", None), Edit("a.b", "3")]) == "c.d = 2\na.b = 3\n"
    assert edited(text, [Edit("c.d", None), Edit("e.f", "3")]) == "a.b = 1\ne.f = 3\n"


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.ipv4.ip_forward", "net/ipv4/ip_forward"),
        ("net/ipv4/ip_forward", "net/ipv4/ip_forward"),
        ("net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ("net/ipv4/conf/eth0.100/rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ("abi", "abi"),
    ],
)
def test_key_has_a_single_path_in_any_spelling(key: str, path: str) -> None:
    assert normalized(key) == path
    assert problem_of_key(key) is None


@pytest.mark.attack("data-names.kernel")
@pytest.mark.parametrize(
    "key",
    [
        *("", "-net.ipv4.x", "#a.b", ";a", "a b", "a=b", "net.ipv4.conf.*.x", "a?", "a[b]", "a\nb", "a\0b"),
        *("a..b", ".a", "a.", "../etc/passwd", "a/../b", "a.//.b", "/etc/passwd", "a/./b", "..", "a./.b"),
    ],
)
def test_escaping_and_multi_line_keys_are_refused(key: str) -> None:
    assert problem_of_key(key)


def test_values_are_compared_by_words() -> None:
    assert same_words("32768\t60999", "32768 60999")
    assert same_words("", " ")
    assert not same_words(None, "")
    assert not same_words("1 2", "12")


def test_resetting_parameter_is_set_first() -> None:
    assert [*set_before("net/ipv4/conf/eth0/rp_filter")] == [
        "net/ipv4/ip_forward",
        "net/ipv4/conf/all/forwarding",
        "net/ipv4/conf/all/rp_filter",
    ]
    assert [*set_before("net/ipv4/ip_forward")] == [*set_before("vm/swappiness")] == []
    assert "net/ipv6/conf/all/forwarding" not in [*set_before("net/ipv6/conf/all/forwarding")]


def write(path: Path) -> None:
    EditedFile(str(path), parse).write(LocalSystem(), lambda text: edited(text, [Edit("a.b", "2")]))


def test_bytes_that_are_no_text_and_the_mode_stay(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_bytes(b"# \xff\na.b = 1\n")
    path.chmod(0o440)
    write(path)
    assert path.read_bytes() == b"# \xff\na.b = 2\n"
    assert path.stat().st_mode & 0o7777 == 0o440


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "sysctl.conf").write_text("a.b = 1\n")
    link = tmp_path / "99-sysctl.conf"
    link.symlink_to("sysctl.conf")
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "sysctl.conf").read_text() == "a.b = 2\n"


@pytest.mark.parametrize("kind", ["directory", "fifo", "link to nothing"])
def test_special_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.conf"
    makers = {"directory": path.mkdir, "fifo": lambda: os.mkfifo(path)}
    makers.get(kind, lambda: path.symlink_to("nothing"))()
    with pytest.raises(ResourceError, match="expected a file"):
        write(path)


_AS_A_PATTERN = re.compile(
    r"(?P<start>\s*-?\s*)(?P<key>[^\s=#;-][^=]*?)(?P<between>\s*=[^\S\n]*)(?P<value>[^\n]*?)(?P<end>\s*)"
)
"""The parser of a line as a regular expression, which takes quadratic time on long lines."""


@given(st.text("ab=-#; \t\r\f\x1c", max_size=12), st.sampled_from(["", "\n"]))
def test_a_line_has_the_parts_that_a_pattern_would_find(line: str, end: str) -> None:
    match = _AS_A_PATTERN.fullmatch(line + end)
    expected = None if match is None else match.groups()
    assert sysctl_files._Line.find(line + end) == expected


@pytest.mark.attack("edits.pattern")
@pytest.mark.parametrize(
    "line",
    ["a" + " " * N, " " * N, "a = b" + " " * N + "c", "-" * N, "a" * N, " " * N + "-" + " " * N],
    ids=["blanks after a key", "blanks", "blanks in a value", "dashes", "letters", "a dash among blanks"],
)
def test_a_long_line_takes_no_longer_than_it_has_characters(line: str) -> None:
    """Quadratic time would mean hours, and the test would exceed its timeout."""
    text = f"{line}\na.b = 1\n"
    assert parse(text)["a/b"] == "1"
    assert edited(text, [Edit("a.b", "2")]) == f"{line}\na.b = 2\n"
