"""Notes of a refresh: sentences for people, in two kinds.

* A plain ``str`` is a warning: somebody should act.
* A `RoutineNote` reports an event that the design expects, and that no host can mend: another mirror has helped for
  some days, or the publisher has rotated keys. As warnings, such notes would make the monitoring of a whole fleet
  yellow at once.
"""


class RoutineNote(str):
    """A note that needs no action."""

    __slots__ = ()
