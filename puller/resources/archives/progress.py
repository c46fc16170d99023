"""A progress bar for a download, when somebody is looking."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from puller.resources.archives.download import Progress


@contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """A bar on the terminal that stderr is; ``None`` when it is none. It appears once the size is known."""
    if not sys.stderr.isatty():
        yield None
        return
    import click

    bars: list[Any] = []

    def show(have: int, of: int | None) -> None:
        if of and not bars:  # before the size is known a bar has no length
            bars.append(click.progressbar(length=of, label=label, file=sys.stderr).__enter__())
        for bar in bars:
            bar.update(have - bar.pos)

    try:
        yield show
    finally:
        for bar in bars:
            bar.__exit__(None, None, None)
