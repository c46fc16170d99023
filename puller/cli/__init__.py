"""The command ``puller``: everything that a user types, and what it exits with.

The way of a command line:

1. Signals arrive, whatever the parent has done to them.
2. The standard streams decide neither what the command does nor what it ends with (``streams``).
3. A line of ``run`` or ``apply`` that is plainly right is read, and its job done (``quick``).
4. Every other line is read by click, which imports the one command that it names (``commands``).
5. An error is told in sentences on stderr, and has a documented status; a bug shows its traceback.
6. What the streams still keep is handed over, and the process ends with the status; the launcher learns that it does.
"""

import gc
import os
import sys
from collections.abc import Sequence

from puller.cli.launched import take_note
from puller.cli.quick import find_job
from puller.cli.streams import steady
from puller.system.signals import reset_inherited

_OBJECTS = 1_000_000
"""New objects after which Python looks for circles among them; with its default of 700, that takes a tenth of a run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a documented status; errors are sentences on stderr."""
    # A run is over soon, and most of what it makes is in use to its end: looking for what is not finds next to nothing.
    gc.set_threshold(_OBJECTS)
    # 1. Before anything can start a command: where SIGCHLD is ignored, each seems to end with exit code 0.
    reset_inherited()
    note = take_note()
    # 2. Errors are told inside of the block, so that they, too, wait for a slow reader.
    with steady():
        status, is_job = _status(sys.argv[1:] if arguments is None else arguments)
    # 6. The block has handed its output over.
    note.ended(status)
    # At its end Python would look for circles among all that there is, and take apart what the system takes back whole:
    # a fifth of a run that finds nothing to do. A process that goes on after this command would keep all circles for
    # good, with the files that they have open.
    if arguments is None:
        gc.freeze()
        if (
            is_job
        ):  # which leaves nothing to be done at the end of the process, as what other commands use may
            os._exit(status)
    sys.exit(status)


def _status(arguments: Sequence[str]) -> tuple[int, bool]:
    """What the command line ends with, and whether a job has ended by itself."""
    try:
        # 3. Without click, whose import is a sixth of a run that finds nothing to do.
        if (job := find_job(arguments)) is not None:
            return job(), True
        # 4. Everything else: help, mistakes, other commands.
        from puller.cli.commands import run_click

        return run_click(arguments), False
    except KeyboardInterrupt:  # a command without a handler of its own; jobs note signals instead
        print("puller: stopped", file=sys.stderr)
        return 130, False
    except Exception as error:  # noqa: BLE001  the last place where an error can be told from a bug
        return _report(error), False


def _report(error: Exception) -> int:
    """Say what went wrong, and give the status for it; a bug shows its traceback."""
    # 5. What has a status is for a person to mend, and nothing is gained from a traceback.
    from puller.reporting.exit_codes import status_of

    if (status := status_of(error)) is not None:
        from foundation.masking import mask_urls
        from puller.values.colour import coloured, is_wanted
        from puller.values.visible import visible

        name = coloured("puller:", "red") if is_wanted(sys.stderr) else "puller:"
        for line in str(error).splitlines():
            print(f"{name} {visible(mask_urls(line))}", file=sys.stderr)
        return status
    import traceback

    traceback.print_exception(error)
    print("puller: this is a bug in Puller; please report it with the lines above", file=sys.stderr)
    return 1
