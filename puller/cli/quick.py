"""Command lines of ``run`` and ``apply`` with valid options, parsed without click.

Importing click takes 17 % of an apply without changes, and 13 % of a run. This parser accepts only exact and complete
options. Click parses all other lines (help, abbreviations, mistakes) and reports what is wrong. A test compares the
results of both.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bundles.confined.network import Network

_FLAGS: dict[str, tuple[str, bool]] = {
    "--noop": ("noop", True),
    "--diff": ("diff", True),
    "--no-diff": ("diff", False),
    "--detailed-exitcodes": ("detailed_exitcodes", True),
    "--verbose": ("verbose", True),
    "-v": ("verbose", True),
    "--quiet": ("quiet", True),
    "-q": ("quiet", True),
    "--as-user": ("as_user", True),
}
_RUN_FLAGS = {**_FLAGS, "--offline": ("offline", True)}
_SINGLE = {
    "--config": "config",
    "--state-directory": "state_directory",
    "--private-key": "private_key",
}
_LISTS = {
    "--fact": "fact_pairs",
    "--facts": "facts_files",
    "--facts-dir": "facts_directories",
    "--data": "data_files",
    "--set": "data_pairs",
}


def find_job(arguments: Sequence[str]) -> Callable[[], int] | None:
    """The job that a command line plainly asks for; ``None`` leaves it to click.

    1. It begins with ``run`` or ``apply``, the commands that mostly find nothing to do.
    2. Every option is known, written in full, and has its value in a word of its own (``parse``).
    3. ``run`` has no argument, ``apply`` has one.
    4. Files that options name are there: click checks that too, and its sentence is the one that users know.
    5. What was found are the options of the job.
    """
    # 1.
    command, *rest = arguments or ("",)
    if command == "run":
        return _find_run(rest)
    return _find_apply(rest) if command == "apply" else None


def _find_run(arguments: Sequence[str]) -> Callable[[], int] | None:
    # 2. and 3.
    found = parse(arguments, flags=_RUN_FLAGS, single={"--config": "config"}, lists={})
    if found is None or found.pop("arguments"):
        return None
    # 5. What speaks to the network comes first: splitting it off a process that is still small is half the work.
    network = None if found.get("offline") else _make_network()
    from puller.run import jobs
    from puller.state.places import configuration_file

    config = configuration_file(found.pop("config", None), as_user=found.pop("as_user", False))
    options = jobs.RunOptions(config=config, **found)
    return lambda: jobs.run(options, network)


def _make_network() -> "Network":
    """The way to the network, with the worker of its first session."""
    from bundles.confined.network import Network

    network = Network()
    network.split_off()
    return network


def _find_apply(arguments: Sequence[str]) -> Callable[[], int] | None:
    # 2. and 3.
    found = parse(arguments, flags=_FLAGS, single=_SINGLE, lists=_LISTS)
    if found is None or len(arguments_found := found.pop("arguments")) != 1:
        return None
    # 4.
    for name in (*found.get("facts_files", ()), *found.get("data_files", ())):
        if not os.path.isfile(name):
            return None
    # 5.
    from puller.run import jobs

    options = jobs.ApplyOptions(source=arguments_found[0], **found)
    return lambda: jobs.apply(options)


def parse(
    arguments: Sequence[str],
    *,
    flags: dict[str, tuple[str, bool]],
    single: dict[str, str],
    lists: dict[str, str],
) -> dict[str, Any] | None:
    """The values of options by name, and ``arguments``; ``None`` for anything that is not plain."""
    found: dict[str, Any] = {"arguments": ()}
    words = iter(arguments)
    for word in words:
        if word in flags:
            name, value = flags[word]
            found[name] = value
        elif word in single or word in lists:
            # A value that begins with a dash, or --option=value, is for click to make sense of.
            following = next(words, None)
            if following is None or following.startswith("-"):
                return None
            if word in single:
                found[single[word]] = following
            else:
                found[lists[word]] = (*found.get(lists[word], ()), following)
        elif word.startswith("-") or not word:
            return None
        else:
            found["arguments"] += (word,)
    return found
