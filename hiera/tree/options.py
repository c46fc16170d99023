"""``lookup_options``: how a key is to be merged and converted, as the data itself says it.

* The entry of the exact key wins over patterns; of those (they begin with ``^``) the first that matches wins, in the
  order of the merged options, where the lowest level's come first. Entries are never combined.
* Options in a module are about that module's keys only.
"""

import re
from collections.abc import Mapping
from typing import Any

from hiera import regex
from hiera.errors import LookupFailure
from hiera.tree.context.absent import ABSENT, Absent
from hiera.tree.ruby import regexp, values

NAME = "lookup_options"


class LookupOptions:
    """Merged options, ready to be asked."""

    def __init__(self, options: Mapping[Any, Any] | None) -> None:
        self._exact: dict[str, Any] = {}
        self._patterns: list[re.Pattern[str]] = []
        self._values: list[Any] = []
        for name, value in (options or {}).items():
            if not isinstance(name, str):
                raise LookupFailure(
                    NAME, f"the key {values.inspect(name)} is no text; in quotes it would be one"
                )
            if name.startswith("^"):
                self._patterns.append(regexp.compiled(name))
                self._values.append(value)
            else:
                self._exact[name] = value

    def entry(self, root: str) -> Any:
        """The options for the key ``root``; null when there are none."""
        exact = self._exact.get(root)
        if exact is not None:
            return exact
        number = regex.find_first(self._patterns, root)
        return None if number is None else self._values[number]

    def option(self, root: str, name: str) -> Any:
        """The option ``name`` (``merge`` or ``convert_to``) for the key ``root``, or null; raises ``LookupFailure``."""
        entry = self.entry(root)
        if isinstance(entry, Mapping):
            return entry.get(name)
        if isinstance(entry, str):  # a text is asked for a part of itself, and has none that means anything
            return name if name in entry else None
        if entry is None or entry is False:
            return None
        what = f"the options are {values.inspect(entry)}, wanted a mapping with 'merge' or 'convert_to'"
        raise LookupFailure(f"{NAME}: {root}", what)


def verified(options: Any | Absent, module: str | None) -> Mapping[Any, Any] | None:
    """The ``lookup_options`` of one layer, checked; ``None`` for null or nothing. Raises ``LookupFailure``."""
    if options is None or options is ABSENT:
        return None
    if not isinstance(options, Mapping):
        raise LookupFailure("", f"value of {NAME} must be a hash")
    for name in options if module else ():
        _verify_own(name, module)
    return options


def _verify_own(name: Any, module: str | None) -> None:
    if not isinstance(name, str):
        raise LookupFailure(NAME, f"the key {values.inspect(name)} is no text; in quotes it would be one")
    if name.startswith((f"{module}::", f"^{module}::")):
        return
    if name.startswith("^"):
        what = f"all {NAME} patterns must match a key starting with module name '{module}'"
    else:
        what = f"all {NAME} keys must start with module name '{module}'"
    raise LookupFailure("", f"{what}: '{name}' does not")
