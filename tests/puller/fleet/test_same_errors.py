"""Which errors are the same one."""

import time

import pytest

from foundation.problems import Location, ProblemCode
from puller.fleet.same_errors import general, general_problem, key_of
from tests.puller.problems import failure


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("connection to 10.0.0.7:5432 refused", "connection to 10.0.0.9:5432 refused"),
        ("pid 48213 is gone", "pid 9931 is gone"),
        ("web1.example.com is away", "web1 is away"),
        ("since 2026-05-04T03:02:01.123Z", "since 2026-06-01 10:00:00+02:00"),
        ("took 1.5 s", "took 20 ms"),
        ("/tmp/abc123/x is gone", "/var/tmp/zz is gone"),
        ("sha256 is 9f2c41be9f2c41be", "sha256 is 00000000000a"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-e89b-12d3-a456-426614174fff"),
        ("a\n  b", "a b"),
    ],
)
def test_what_is_of_one_host_or_moment_is_taken_out(one: str, other: str) -> None:
    assert general(one, "web1.example.com") == general(other, "web1.example.com")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit status 1", "exit status 2"),
        ("wanted nginx 1.22", "wanted nginx 1.24"),
        ("/etc/a differs", "/etc/b differs"),
        ("mode is 0644", "owner is 0644"),
    ],
)
def test_what_means_something_stays(one: str, other: str) -> None:
    assert general(one, "web1.example.com") != general(other, "web1.example.com")


def test_a_short_name_of_a_host_is_no_word_to_take_out() -> None:
    assert general("a db is down", "db") == "a db is down"
    assert general("my-web1 is not web1", "web1.example.com") == "my-web1 is not <host>"


def test_it_is_bounded_and_quick_whatever_a_host_says() -> None:
    began = time.monotonic()
    for text in ("a" * 10**6, "1:" * 10**6, "1." * 10**6, "f" * 10**6, "/tmp/" * 10**5, "1234" * 10**5):
        assert len(general(text, "web1.example.com")) <= 1001
    assert time.monotonic() - began < 5


def test_a_key_is_of_bundle_resource_and_problem() -> None:
    keys = {
        key_of("a", "b", failure("c")),
        key_of("ab", "", failure("c")),
        key_of("a", "bc", failure("")),
        key_of("", "a", failure("bc")),
        key_of("a", "b", failure("c", ProblemCode.STOPPED)),
        key_of("a", "b", failure("c", property="mode")),
        key_of("a", "b", failure("c", location=Location("f", 1))),
        key_of("a", "b", failure("x", name="c")),
    }
    assert len(keys) == 8
    assert key_of("a", "b", failure("c")) == key_of("a", "b", failure("c"))
    assert len(key_of("a", "\ud800", failure("c"))) == 16


def test_problems_with_one_name_are_equal_in_all_words() -> None:
    one = failure("exit status 7: connection refused", name="web", hint="wait")
    other = failure("exit status 28: timed out", name="web")
    assert key_of("a", "b", one) == key_of("a", "b", other)


def test_values_of_a_host_leave_each_text_of_a_problem() -> None:
    problem = general_problem(
        failure("10.0.0.7 is away", name="web1.example.com:443", location=Location("/tmp/a", 1)),
        "web1.example.com",
    )
    assert (problem.message, problem.name) == ("<address> is away", "<host>:443")
    assert problem.location == Location("<temporary file>", 1)
