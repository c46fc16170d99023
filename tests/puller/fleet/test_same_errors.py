"""Errors that count as the same error."""

import time

from foundation.problems import Location, ProblemCode
from puller.fleet.host_document import general_problem, key_of, without_host
from tests.puller.problems import failure

MESSAGES = [
    "connection to 10.0.0.7:5432 refused",
    "pid 48213 is gone",
    "took 1.5 s",
    "exit status 2",
    "sha256 is 9f2c41be9f2c41be",
]


def test_messages_decide_nothing() -> None:
    assert len({key_of("web", "exec#a", failure(message)) for message in MESSAGES}) == 1


def test_a_short_name_of_a_host_is_no_word_to_take_out() -> None:
    assert without_host("a db is down", "db") == "a db is down"
    assert without_host("my-web1 is not web1", "web1.example.com") == "my-web1 is not <host>"


def test_grouping_is_bounded_for_any_host_text() -> None:
    began = time.monotonic()
    for text in ("a" * 10**6, "1:" * 10**6, "1." * 10**6, "f" * 10**6, "/tmp/" * 10**5, "1234" * 10**5):
        assert len(without_host(text, "web1.example.com")) <= 1001
    assert time.monotonic() - began < 5


def test_a_key_is_of_bundle_resource_and_problem() -> None:
    keys = {
        key_of("a", "b", failure("c")),
        key_of("ab", "", failure("c")),
        key_of("a", "bc", failure("")),
        key_of("", "a", failure("bc")),
        key_of("a", "b", failure("c", ProblemCode.STOPPED)),
        key_of("a", "b", failure("c", property="mode")),
        key_of("a", "b", failure("c", subject="file#/etc/motd")),
        key_of("a", "b", failure("x", name="c")),
    }
    assert len(keys) == 8
    assert key_of("a", "b", failure("c")) == key_of("a", "b", failure("d", location=Location("f", 1)))
    assert len(key_of("a", "\ud800", failure("c"))) == 16


def test_the_name_of_a_host_leaves_each_text_of_a_problem() -> None:
    problem = failure("web1 is away", name="web1.example.com:443", location=Location("/srv/web1/a", 1))
    general = general_problem(problem, "web1.example.com")
    assert (general.message, general.name) == ("<host> is away", "<host>:443")
    assert general.location == Location("/srv/<host>/a", 1)
