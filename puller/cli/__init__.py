"""The command ``puller``: everything that a user types, and what it exits with."""

import sys
from collections.abc import Sequence

from puller.cli.quick import find_job
from puller.cli.streams import steady
from puller.system.signals import reset_inherited


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a documented status; errors are sentences on stderr."""
    reset_inherited()
    with steady():
        status = _status(sys.argv[1:] if arguments is None else arguments)
    sys.exit(status)


def _status(arguments: Sequence[str]) -> int:
    try:
        if (job := find_job(arguments)) is not None:
            return job()
        from puller.cli.commands import run_click

        return run_click(arguments)
    except KeyboardInterrupt:
        print("puller: stopped", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001  the last place where an error can be told from a bug
        return _report(error)


def _report(error: Exception) -> int:
    """Say what went wrong, and give the status for it; a bug shows its traceback."""
    from puller.reporting.exit_codes import status_of

    if (status := status_of(error)) is not None:
        from bundles.masking import mask_urls

        for line in str(error).splitlines():
            print(f"puller: {mask_urls(line)}", file=sys.stderr)
        return status
    import traceback

    traceback.print_exception(error)
    print("puller: this is a bug in Puller; please report it with the lines above", file=sys.stderr)
    return 1
