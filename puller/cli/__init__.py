"""The command ``puller``, and its exit status.

The steps of a command line:

1. Reset inherited signals.
2. Make the standard streams safe, so that they change neither the work nor the exit status (``streams``).
3. Start the jobs of timers without click.
4. Let click parse all other command lines. It imports only the module of the command (``command_table``).
5. Print errors as sentences on stderr, and a traceback for a bug. Each error has a documented status.
6. Flush the streams, note for the launcher that the command has ended, and exit with the status.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bundles.confined.network import Network

_OBJECTS = 1_000_000
"""New objects before Python searches for reference cycles. The default of 700 takes a tenth of a run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a documented status. Errors are sentences on stderr."""
    # A run is short and uses most of its objects until its end, so the search finds very little.
    gc.set_threshold(_OBJECTS)
    from puller.cli.streams import steady, take_note  # 1 % of an idle run with the default threshold
    from puller.system.processes import reset_inherited

    # 1. Before the first child process: if SIGCHLD is ignored, every command seems to end with exit code 0.
    reset_inherited()
    note = take_note()
    # 2. Errors are printed inside the block, so that they also wait for a slow reader.
    with steady():
        status, is_job = _status(sys.argv[1:] if arguments is None else arguments)
    # 6. The block has flushed the output.
    note.ended(status)
    # Destroying all objects at the end takes a fifth of an idle run. A caller that continues after this function
    # needs its collector.
    if arguments is None:
        gc.freeze()
        if is_job:  # jobs leave no work for the end of the process, other commands may
            os._exit(status)
    sys.exit(status)


def _status(arguments: Sequence[str]) -> tuple[int, bool]:
    """Return the exit status, and whether a job of ``find_job`` has ended."""
    try:
        # 3.
        if (job := find_job(arguments)) is not None:
            return job(), True
        # 4.
        from puller.cli.command_table import run_click  # click takes 17 % of an idle run

        return run_click(arguments), False
    except KeyboardInterrupt:  # a command without a handler of its own; jobs note signals instead
        print("puller: stopped", file=sys.stderr)
        return 130, False
    except Exception as error:  # noqa: BLE001  the outermost handler distinguishes errors and bugs
        # 5.
        from puller.cli.output import report_error  # with click, which takes 17 % of an idle run

        return report_error(error), False


def find_job(arguments: Sequence[str]) -> Callable[[], int] | None:
    """Return the job of a command line that timers start, or ``None`` to let click parse the line.

    Each of these lines has at most one option. Values that begin with a dash are left to click.
    """
    match arguments:
        case ["run"]:
            return _run()
        case ["run", "--as-user"]:
            return _run(as_user=True)
        case ["run", "--config", path] if _is_plain(path):
            return _run(path)
        case ["apply", source] if _is_plain(source):
            return _apply(source)
        case ["apply", source, "--state-directory", path] if _is_plain(source, path):
            return _apply(source, state_directory=path)
    return None


def _is_plain(*words: str) -> bool:
    return all(word and not word.startswith("-") for word in words)


def _run(config: str | None = None, *, as_user: bool = False) -> Callable[[], int]:
    network = _make_network()
    # After the fork, which costs twice as much in a larger process.
    from puller.run import jobs
    from puller.state import configuration_file

    options = jobs.RunOptions(config=configuration_file(config, as_user=as_user))
    return lambda: jobs.run(options, network)


def _make_network() -> "Network":
    from bundles.confined.network import Network  # 1 % of an idle apply, which uses no network

    network = Network()
    network.split_off()
    return network


def _apply(source: str, state_directory: str | None = None) -> Callable[[], int]:
    from puller.run import jobs  # 30 % of an idle run, and other commands do not need them

    options = jobs.ApplyOptions(source=source, state_directory=state_directory)
    return lambda: jobs.apply(options)
