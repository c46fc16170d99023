"""The declarations of the items of a loop.

* Items of one name are declarations of one resource, and must agree.
* A loop that cannot be evaluated on this machine is one declaration with that failure.
* Properties that all items share are checked also for a loop without items.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from foundation.problems import Problem, ProblemCode, replaced
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, has_expression
from hiera.expressions.repeated import Repeated
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration, Home
from puller.manifest.declare import declare, declare_unlooped
from puller.manifest.entries import FOR, Entry
from puller.manifest.loops import Item, Loop, LoopScopes
from puller.manifest.manifest import Inputs
from puller.manifest.problems import Problems
from puller.system import signals

if TYPE_CHECKING:
    from puller.manifest.masking import Mask

_FUNCTIONS = frozenset(("cycler", "dict", "joiner", "namespace", "range"))
"""Functions of templates outside of their scope."""


def unrolled(
    entry: Entry, loop: Loop, problems: Problems, home: Home, inputs: Inputs, mask: "Mask | None"
) -> Iterator[Declaration]:
    """Yield the declarations of a loop, in the order of its items.

    1. Reject names that hide other names.
    2. Evaluate the list or mapping. If that fails, one failed declaration represents all items.
    3. Check the entry of a loop without items.
    4. Declare each item like an entry. Items with the same name are one resource, and must agree.
    """
    # 1. Names.
    loop = _without_hidden_names(entry, loop, problems, home)
    # 2. Items.
    scope = home.scope
    if inputs.watch is not None:
        scope = inputs.watch(problems.source, (*entry.path, FOR), home.scope, scope, home.files)
    why: tuple[Problem, ...]
    try:
        items, why = loop.items(scope, home.files) if loop.clauses else [], ()
    except ResourceError as error:
        items, why = [], tuple(replaced(problem, property=FOR) for problem in error.problems)
    # 3. Loop without items.
    if not items and (declaration := declare_unlooped(entry, problems, home, why)) is not None:
        if why or not loop.clauses:
            yield declaration
        else:
            declaration.check()
    texts, scopes = _texts(entry, loop, scope), LoopScopes(home.scope, loop, home.files)
    for number, values in enumerate(items):
        signals.check()
        item = Item(loop, values, number, home.scope, home.files)
        # 4. Item.
        first = Entry(entry.type_name, dict(entry.properties), entry.path, item=item, label=entry.label)
        declaration = declare(first, problems, home, inputs, mask, scopes.of(values), texts)
        if declaration is not None:
            yield declaration


def _without_hidden_names(entry: Entry, loop: Loop, problems: Problems, home: Home) -> Loop:
    """Return the loop, or a loop without clauses if one of its names hides another name. Record that problem."""
    hidden = next((name for name in loop.names if name in home.scope.names or name in _FUNCTIONS), None)
    if hidden is None:
        return loop
    sentence = f"for has the name {hidden}, which already has another meaning, so choose another name"
    problems.add((*entry.path, FOR), sentence, str(loop.reference), ProblemCode.INVALID_LOOP, property=FOR)
    return Loop.of((), loop.reference)


def _texts(entry: Entry, loop: Loop, scope: Scope) -> dict[str, Repeated]:
    """Return the parsed texts of an entry that have expressions. Invalid texts are left out."""
    texts = {}
    for value in entry.properties.values():
        if isinstance(value, str) and has_expression(value):
            with suppress(HieraError):
                texts[value] = Repeated(value, scope, loop.names)
    return texts
