"""Schedules of cron: five fields, or a word for all of them (crontab(5)).

* Accepted is what every cron in use understands alike. What one of them takes for something else in silence (Debian's
  reads ``5/15`` as ``5``, and cuts off what follows a number) is refused.
* Rules only: texts in, values and sentences out.
"""

import re

import msgspec

WORDS = frozenset(
    {"@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
"""All fields in one."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ITEM = re.compile(r"(?P<first>\*|[0-9]+|[A-Za-z]+)(?:-(?P<last>[0-9]+|[A-Za-z]+))?(?:/(?P<step>[0-9]+))?")


class _Field(msgspec.Struct, frozen=True):
    """One of the five: its name, and what may stand in it."""

    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """What a number, or a name, may be."""
        names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"wanted {self.lowest} to {self.highest}{names}"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),  # both 0 and 7 are Sunday
)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule in its one form: words with one blank between them."""

    text: str

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read a schedule; raises ``ValueError`` with what is wrong with its first wrong field."""
        fields = text.split()
        if len(fields) == 1 and fields[0].startswith("@"):
            if fields[0] not in WORDS:
                raise ValueError(f"is {text!r}, wanted one of {', '.join(sorted(WORDS))}")
        elif len(fields) != len(_FIELDS):
            raise ValueError(f"is {text!r}, wanted five fields, or a word such as @daily")
        else:
            for field, written in zip(_FIELDS, fields, strict=True):
                _check_field(field, written)
        return cls(" ".join(fields))

    @property
    def is_either_day(self) -> bool:
        """Whether it is both a day of the month and a day of the week, of which cron takes either.

        It is not where one of them begins with ``*``, whatever follows that.
        """
        fields = self.text.split()
        return len(fields) > 1 and not fields[2].startswith("*") and not fields[4].startswith("*")


def _check_field(field: _Field, written: str) -> None:
    for item in written.split(","):
        if (found := _ITEM.fullmatch(item)) is None or (found["first"] == "*" and found["last"]):
            raise ValueError(
                f"has {written!r} as its {field.name}, wanted numbers such as *, 5, 1-5, */2, 1-9/2 or 1,5"
            )
        _check_item(field, item, found["first"], found["last"], found["step"])


def _check_item(field: _Field, item: str, first: str, last: str | None, step: str | None) -> None:
    low = field.lowest if first == "*" else _number(field, first)
    high = low if last is None else _number(field, last)
    if high < low:
        of_sunday = "; Sunday is also 7" if field.names is _DAYS and high == 0 else ""
        raise ValueError(f"has {item!r} as its {field.name}, wanted the lower one first{of_sunday}")
    if step is None:
        return
    if first != "*" and last is None:
        raise ValueError(
            f"has {item!r} as its {field.name}, wanted a range before the step: {first}-{field.highest}/{step}"
        )
    if not 1 <= int(step) <= field.highest:
        raise ValueError(f"has {item!r} as its {field.name}, wanted a step of 1 to {field.highest}")


def _number(field: _Field, text: str) -> int:
    if text.isascii() and text.isdecimal():
        number = int(text) if len(text) < 4 else field.highest + 1
    elif text.lower() in field.names:
        number = field.names.index(text.lower()) + field.lowest
    else:
        number = field.highest + 1
    if not field.lowest <= number <= field.highest:
        raise ValueError(f"has {text!r} as its {field.name}, {field.wanted}")
    return number
