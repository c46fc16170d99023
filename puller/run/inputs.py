"""Facts and data as the command line gives them, made into the inputs of a manifest."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from puller.data.sources import Origin, Surroundings, assigned
from puller.facts.given import chosen_facts
from puller.manifest.manifest import Inputs
from puller.values.visible import visible


class CommandInputs(msgspec.Struct, frozen=True):
    """Facts and data as the command line gives them."""

    facts: Any
    options: Mapping[str, Any]

    def for_manifest(self) -> Inputs:
        """Facts and data that a manifest is resolved with."""
        here = Surroundings(self.facts, dict(os.environ))
        sources = here.load(map(Path, self.options["data_files"]), Origin.COMMAND_LINE)
        given = assigned(self.options["data_pairs"])
        as_user = self.options.get("as_user")
        return Inputs(self.facts, here.environ, (*sources, *given), self.options["private_key"], as_user)

    def problems(self) -> list[str]:
        """Sentences about facts that could not be read so far; they are gathered when they are asked for."""
        return [str(problem) for problem in getattr(self.facts, "problems", ())]

    def warn(self) -> None:
        """Say the problems on stderr."""
        for problem in self.problems():
            print(visible(f"puller: {problem}"), file=sys.stderr)


def load_inputs(options: Mapping[str, Any]) -> CommandInputs:
    """From the values of ``fact_options`` and ``data_options``."""
    return CommandInputs(chosen_facts(options), options)
