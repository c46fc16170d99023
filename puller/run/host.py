"""This host as a run sees it: its name, its facts, and data of its own."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from puller.config.configuration import Configuration
from puller.data.sources import DataSource, Origin, Surroundings, host_files
from puller.facts.tree import Facts, gather
from puller.manifest.manifest import Inputs

if TYPE_CHECKING:
    from bundles.deadline import Deadline
    from puller.data.site_data import Signed, SiteData, Warn


def own_facts(configuration: Configuration) -> dict[str, str]:
    """The facts that the agent knows of this host by itself."""
    # Puppet's word for the name that an agent goes by; hierarchies of sites ask for it.
    return {"clientcert": configuration.host_name} if configuration.host_name else {}


class Host(msgspec.Struct, frozen=True):
    """Facts are gathered when they are asked for, group by group."""

    configuration: Configuration
    facts: Facts
    environ: Mapping[str, str]

    @classmethod
    def of(cls, configuration: Configuration) -> "Host":
        """The machine that we run on."""
        facts = gather(custom_directories=[configuration.facts_directory], agent=own_facts(configuration))
        return cls(configuration, facts, dict(os.environ))

    @property
    def name(self) -> str:
        """As configured, else the fully qualified name."""
        return self.configuration.host_name or str(self.facts["networking"]["fqdn"])

    def inputs(
        self,
        copies: Path,
        warn: "Warn",
        *,
        signed: "Signed | None",
        deadline: "Deadline | None" = None,
        noop: bool = False,
    ) -> Inputs:
        """Facts and data for manifests; ``copies`` is the directory for site data, ``warn`` is told its problems.

        ``signed`` is the site data that the site has signed; ``None`` when it could not be asked.
        ``deadline`` is that of all that is fetched. With ``noop`` nothing is written. Raises ``ConfigurationError``
        for data of this host that is not valid.
        """
        locations = self.configuration.site_data
        if not locations and not copies.exists():  # most hosts have none, and need nothing imported for it
            return self._inputs(())
        site = self._site_data(copies, warn, deadline, signed, noop=noop)
        if not noop:
            site.forget_others(locations)
        return self._inputs(site.load(locations))

    def inputs_of_last_run(self, copies: Path, warn: "Warn") -> Inputs:
        """Facts and data for manifests without asking anybody else: site data is what the last run has kept."""
        return self._inputs(
            self._site_data(copies, warn, None, noop=True).load_copies(self.configuration.site_data)
        )

    def _inputs(self, site: tuple[DataSource, ...]) -> Inputs:
        paths = host_files(Path(self.configuration.host_data), Path(self.configuration.host_data_directory))
        sources = Surroundings(self.facts, self.environ).load(paths, Origin.HOST, site)
        key, as_user = self.configuration.eyaml_private_key, self.configuration.as_user
        return Inputs(self.facts, self.environ, sources, key, as_user)

    def _site_data(
        self,
        copies: Path,
        warn: "Warn",
        deadline: "Deadline | None",
        signed: "Signed | None" = None,
        *,
        noop: bool,
    ) -> "SiteData":
        from puller.config.transport import settings_for
        from puller.data.site_data import SiteData

        surroundings = Surroundings(self.facts, self.environ)
        return SiteData(
            copies, surroundings, partial(settings_for, self.configuration), warn, signed, deadline, noop
        )
