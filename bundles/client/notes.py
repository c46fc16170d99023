"""Notes of a refresh: sentences for users, in two kinds.

* A plain ``str`` is a warning that requires an action.
* A `RoutineNote` reports an expected event that hosts cannot fix: another mirror has helped for some days, or the
  publisher has rotated keys. As warnings, such notes would affect the monitoring of the whole fleet at once.
"""


class RoutineNote(str):
    """A note that needs no action."""

    __slots__ = ()
