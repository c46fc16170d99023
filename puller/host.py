"""This host as a run sees it: its name, its facts, and data of its own."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from puller.config import Configuration
from puller.data import host_files, load_sources
from puller.facts.tree import Facts, gather
from puller.manifest.loader import Inputs


@dataclass(frozen=True, slots=True)
class Host:
    """Facts are gathered when they are asked for, group by group."""

    configuration: Configuration
    facts: Facts
    environ: Mapping[str, str]

    @classmethod
    def of(cls, configuration: Configuration) -> "Host":
        """The machine that we run on."""
        facts = gather(custom_directories=[configuration.facts_directory])
        return cls(configuration, facts, dict(os.environ))

    @property
    def name(self) -> str:
        """As configured, else the fully qualified name."""
        return self.configuration.host_name or str(self.facts["networking"]["fqdn"])

    def inputs(self) -> Inputs:
        """What manifests are resolved with; raises ``ConfigurationError`` for data of this host that is not valid."""
        paths = host_files(Path(self.configuration.host_data), Path(self.configuration.host_data_directory))
        return Inputs(self.facts, self.environ, load_sources(paths, self.facts, self.environ))
