"""This host as a run sees it: its name, its facts, and data of its own."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from puller.config import Configuration
from puller.data import host_files, load_sources
from puller.facts.tree import Facts, gather
from puller.manifest.loader import Inputs


class Host(msgspec.Struct, frozen=True):
    """Facts are gathered when they are asked for, group by group."""

    configuration: Configuration
    facts: Facts
    environ: Mapping[str, str]

    @classmethod
    def of(cls, configuration: Configuration) -> "Host":
        """The machine that we run on."""
        facts = gather(custom_directories=[configuration.facts_directory], agent=_agent_facts(configuration))
        return cls(configuration, facts, dict(os.environ))

    @property
    def name(self) -> str:
        """As configured, else the fully qualified name."""
        return self.configuration.host_name or str(self.facts["networking"]["fqdn"])

    def inputs(self) -> Inputs:
        """What manifests are resolved with; raises ``ConfigurationError`` for data of this host that is not valid."""
        paths = host_files(Path(self.configuration.host_data), Path(self.configuration.host_data_directory))
        sources = load_sources(paths, self.facts, self.environ)
        return Inputs(self.facts, self.environ, sources.data, sources.annotations)


def _agent_facts(configuration: Configuration) -> Mapping[str, Any]:
    """What the agent knows by itself: the name that this host goes by."""
    return {"clientcert": configuration.host_name} if configuration.host_name else {}
