"""Facts and data as the command line gives them, made into the inputs of a manifest."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from puller.data.sources import DataSource, Origin, Surroundings, assigned, host_files
from puller.facts.given import chosen_facts, facts_from
from puller.manifest.manifest import Inputs
from puller.state.directories import Directories
from puller.state.places import PRIVATE_KEY, configuration_file, places_of_data
from puller.values.visible import visible


class CommandInputs(msgspec.Struct, frozen=True):
    """Facts and data as the command line gives them."""

    facts: Any
    options: Mapping[str, Any]
    host: Inputs | None = None
    """The facts and data of this host, over which the command line wins. ``None``: the command line alone counts."""
    host_problems: Sequence[str] = ()
    """Problems with the data of this host that do not stop a run."""

    def for_manifest(self) -> Inputs:
        """Facts and data that a manifest is resolved with."""
        here = Surroundings(self.facts, dict(os.environ))
        below: Sequence[DataSource] = ()
        private_key = self.options["private_key"]
        if self.host is not None:
            below = self.host.sources
            private_key = self.host.private_key if private_key == PRIVATE_KEY else private_key
        sources = here.load(map(Path, self.options["data_files"]), Origin.COMMAND_LINE, below)
        given = assigned(self.options["data_pairs"])
        as_user = self.options.get("as_user")
        return Inputs(self.facts, here.environ, (*sources, *given), private_key, as_user)

    def problems(self) -> list[str]:
        """Sentences about facts that could not be read so far; they are gathered when they are asked for."""
        return [*self.host_problems, *(str(problem) for problem in getattr(self.facts, "problems", ()))]

    def warn(self) -> None:
        """Say the problems on stderr."""
        for problem in self.problems():
            print(visible(f"puller: {problem}"), file=sys.stderr)


def load_inputs(options: Mapping[str, Any]) -> CommandInputs:
    """From the values of ``fact_options`` and ``data_options``."""
    return CommandInputs(chosen_facts(options), options)


def load_inputs_of_host(options: Mapping[str, Any]) -> CommandInputs:
    """Return the facts and data of this host as a run has them, with the options over them.

    Site data are the copies that the last run has kept. Without a configuration, the data are in their default places.
    Raises ``ConfigurationError`` for a configuration or data that are not valid, and ``UsageError``.
    """
    if options["no_system_facts"]:
        return load_inputs(options)
    path = configuration_file(options["config"] or None, as_user=options["as_user"])
    if not options["config"] and not os.path.exists(path):
        facts = facts_from(options)
        files = host_files(*map(Path, places_of_data(as_user=options["as_user"])))
        sources = Surroundings(facts, dict(os.environ)).load(files, Origin.HOST)
        return CommandInputs(facts, options, Inputs(facts, os.environ, sources, options["private_key"]))
    from puller.config.configuration import load_configuration
    from puller.run.host import Host, own_facts

    configuration, problems = load_configuration(path), list[str]()
    directories = Directories(Path(configuration.state_directory), Path(configuration.run_directory))
    facts = facts_from(options, directories=[configuration.facts_directory], agent=own_facts(configuration))
    host = Host(configuration, facts, dict(os.environ))
    inputs = host.inputs_of_last_run(directories.data, lambda sentence, error: problems.append(sentence))
    return CommandInputs(facts, options, inputs, problems)
