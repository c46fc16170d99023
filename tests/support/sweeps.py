"""The type of the fixture ``sweep``, which interrupts each step of an action."""

from collections.abc import Callable

Sweep = Callable[[Callable[[int], bool]], int]
