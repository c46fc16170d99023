"""Command lines of ``run``, ``apply`` and ``hiera lookup`` that are plainly right, read without click.

Importing click costs a sixth of a run that finds nothing to do. Only exact, complete options are understood here; for
everything else (help, abbreviations, mistakes) there is click, which then also finds the words for it. A test holds
both to the same results.
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
_LOOKUP: dict[str, Any] = {
    **dict.fromkeys(("merge", "knock_out_prefix", "default", "value_type")),
    **dict.fromkeys(("config", "environment", "document", "global_config", "private_key")),
    **dict.fromkeys(("sort_merged_arrays", "merge_hash_arrays", "no_system_facts"), False),
    **dict.fromkeys(("fact_pairs", "facts_files", "facts_directories", "modules"), ()),
    "environment_name": "production",
}
"""The options of ``hiera lookup`` that are not given."""


def find_job(arguments: Sequence[str]) -> Callable[[], int] | None:
    """The job that a command line plainly asks for; ``None`` leaves it to click.

    1. It begins with ``run`` or ``apply``, the commands that mostly find nothing to do, or with ``hiera lookup``, which
       scripts call for one key at a time.
    2. Every option is known, written in full, and has its value in a word of its own (``parse``).
    3. ``run`` has no argument, ``apply`` has one, ``hiera lookup`` has keys.
    4. Files that options name are there: click checks that too, and its sentence is the one that users know.
    5. What was found are the options of the job.
    """
    # 1.
    command, *rest = arguments or ("",)
    if command == "run":
        return _find_run(rest)
    if command == "hiera" and rest[:1] == ["lookup"]:
        return _find_lookup(rest[1:])
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


def _find_lookup(words: Sequence[str]) -> Callable[[], int] | None:
    # 2. and 3.
    found = parse(
        words,
        flags={"--no-system-facts": ("no_system_facts", True)},
        single={"--environment": "environment", "--format": "output_format"},
        lists={"--fact": "fact_pairs", "--facts": "facts_files"},
    )
    if found is None or not (arguments_found := found.pop("arguments")):
        return None
    # 4.
    output_format, place = found.pop("output_format", "yaml"), found.get("environment")
    if output_format not in ("yaml", "json") or not (place is None or os.path.isdir(place)):
        return None
    if not all(map(os.path.isfile, found.get("facts_files", ()))):
        return None
    # 5.
    from puller.cli.hiera import asking

    options = {**_LOOKUP, **found}
    return lambda: asking.find_values(
        arguments_found, output_format, explain=False, reveal=False, options=options
    )


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
