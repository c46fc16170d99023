"""The decision about each object that a version on trial has changed: one table for all resource types.

An object is a path, or a resource that paths do not describe (a package, a user, a mount, a command that was run). The
table compares three of its states: before the trial, made by the trial, and declared now by all bundles of the host.
``Now`` compares the current state with the first two, to detect changes by other programs and people.

================  ==========================================================================================
ending            meaning
================  ==========================================================================================
passed            the version has passed its trial: nothing is reverted
given up          the version before it is applied again, after a failed trial or a rollback by hand
replaced          a newer version is applied: changes that it does not declare are reverted
================  ==========================================================================================

================  ==========================================================================================
action            meaning
================  ==========================================================================================
forget            no action now or later
hold              a declared resource determines it: keep the record while another bundle is on trial
restore           restore the state before the trial, before the declared resources are applied
merge             edit the file: remove the changes of the trial, and keep later changes by others
remove            remove it before the declared resources are applied
remove after      remove it after the resources that may replace it have succeeded
report            it cannot be undone, or was changed by others since: it stays, and is listed once
================  ==========================================================================================
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import product
from typing import NamedTuple


class Before(StrEnum):
    """The state before the trial."""

    ABSENT = "absent"
    PRESENT = "present"
    LEAVING = "leaving"
    """Present, and removed by the trial because its bundle no longer declared it."""
    UNKNOWN = "unknown"
    """Present, without a copy to restore it."""


class Now(StrEnum):
    """The current state, compared with the states before and after the trial."""

    AS_BEFORE = "as before"
    AS_TRIAL = "as the trial left it"
    GONE = "absent since the trial removed it"
    EDITED = "a text that another hand has edited since"
    FOREIGN = "changed by another hand, and nothing can be merged"


class Declared(StrEnum):
    """The role of declared resources for the object."""

    NOTHING = "nothing"
    PART = "part"
    """A resource at the path or below it determines only a part: attributes, edits, a parent."""
    WHOLE = "whole"
    """Applying a declared resource restores it completely."""
    FILLED = "filled"
    """It is below a directory that a declared resource fills."""
    PURGED = "purged"
    """It is below a directory from which a declared resource removes undeclared files."""


class Ending(StrEnum):
    """The end of the trial."""

    PASSED = "passed"
    GIVEN_UP = "given up"
    REPLACED = "replaced"


class Action(StrEnum):
    """The action for one object."""

    FORGET = "forget"
    HOLD = "hold"
    RESTORE = "restore"
    MERGE = "merge"
    REMOVE = "remove"
    REMOVE_AFTER = "remove after"
    REPORT = "report"


class Rule(NamedTuple):
    """One row. It applies if each given state matches. The first matching row decides."""

    action: Action
    ending: Ending | None = None
    before: Before | None = None
    now: Now | None = None
    declared: Declared | None = None


RULES = (
    Rule(Action.FORGET, ending=Ending.PASSED),
    # Declared resources determine it.
    Rule(Action.HOLD, declared=Declared.WHOLE),
    Rule(Action.HOLD, declared=Declared.PURGED),
    # Removed leftovers stay absent: the newer version does not declare them either, or creates them anew.
    Rule(Action.FORGET, ending=Ending.REPLACED, before=Before.LEAVING),
    Rule(Action.FORGET, now=Now.AS_BEFORE),
    # The newer version fills the same directory. Its receipt lists the files that it has created there.
    Rule(Action.RESTORE, Ending.REPLACED, Before.PRESENT, Now.GONE, Declared.FILLED),
    Rule(Action.HOLD, ending=Ending.REPLACED, declared=Declared.FILLED),
    # Of a text with several edits, only those of the trial are removed.
    Rule(Action.MERGE, now=Now.EDITED, before=Before.ABSENT),
    Rule(Action.MERGE, now=Now.EDITED, before=Before.PRESENT),
    Rule(Action.MERGE, now=Now.EDITED, before=Before.LEAVING),
    # Created by the trial.
    Rule(Action.HOLD, before=Before.ABSENT, declared=Declared.PART),
    Rule(Action.REPORT, before=Before.ABSENT, now=Now.FOREIGN),
    Rule(Action.REMOVE, ending=Ending.GIVEN_UP, before=Before.ABSENT),
    Rule(Action.REMOVE_AFTER, ending=Ending.REPLACED, before=Before.ABSENT),
    # Existed before the trial.
    Rule(Action.FORGET, now=Now.FOREIGN, declared=Declared.PART),
    Rule(Action.REPORT, now=Now.FOREIGN),
    Rule(Action.REPORT, ending=Ending.GIVEN_UP, before=Before.UNKNOWN),
    Rule(Action.FORGET, ending=Ending.REPLACED, before=Before.UNKNOWN),
    Rule(Action.RESTORE),
)


def _matches(rule: Rule, states: Iterable[StrEnum]) -> bool:
    return all(given in (None, state) for given, state in zip(rule[1:], states, strict=True))


_TABLE = {
    states: next(rule.action for rule in RULES if _matches(rule, states))
    for states in product(Ending, Before, Now, Declared)
}


def decide(ending: Ending, before: Before, now: Now, declared: Declared) -> Action:
    """Return the action for an object in these states."""
    return _TABLE[ending, before, now, declared]
