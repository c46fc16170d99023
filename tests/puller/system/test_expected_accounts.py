"""Accounts that a dry run expects, as if an earlier resource had created or removed them."""

import pwd

from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import UNKNOWN_ID


def test_an_account_that_is_expected_has_the_id_that_is_expected() -> None:
    system = NoopSystem()
    for find, kind in ((system.user_id, "user"), (system.group_id, "group")):
        assert find("nobody-here") is None
        system.expect_account(kind, "nobody-here", 3001)  # type: ignore[arg-type]  # one of both kinds
        assert find("nobody-here") == 3001
        system.expect_account(kind, "nobody-here", UNKNOWN_ID)  # type: ignore[arg-type]  # one of both kinds
        assert find("nobody-here") == UNKNOWN_ID


def test_expected_removal_covers_its_account_kind_only() -> None:
    system = NoopSystem()
    system.expect_account("user", "root", None)
    assert system.user_id("root") is None
    assert system.group_id("root") == 0
    assert system.expected_accounts("user") == {"root": None}
    assert system.expected_accounts("group") == {}


def test_real_run_expects_nothing() -> None:
    system = LocalSystem()
    system.expect_account("user", "root", None)
    assert system.user_id("root") == pwd.getpwnam("root").pw_uid
    assert system.expected_accounts("user") == {}
