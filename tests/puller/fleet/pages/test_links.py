import itertools
import re

from puller.fleet.pages import environment

HOSTILE = [
    "", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "A", "a", "a.", "a.html", "x" * 300, "x" * 301,
    "javascript:alert(1)", "<script>", '"onload=', "a b", "a?b", "a#b", "a%2fb", "\0", "\n", "\u2028",
    "é", "\udc80", "a~b", "file#/etc/a", "file#/etc/A", "file#-etc-a", "-rf",
]  # fmt: skip


def test_file_name_is_safe_for_any_text() -> None:
    for text in HOSTILE:
        name = environment.file_name(text)
        assert re.fullmatch(r"[a-z0-9][a-z0-9._+~-]*", name), text
        assert len(name) <= 81
        assert not name.endswith((".", ".html"))


def test_file_names_are_unique_ignoring_case() -> None:
    for item, other in itertools.combinations(HOSTILE, 2):
        assert environment.file_name(item).lower() != environment.file_name(other).lower()


def test_a_plain_name_stays_as_it_is() -> None:
    assert environment.host_page("web1.example.com") == "hosts/web1.example.com.html"
