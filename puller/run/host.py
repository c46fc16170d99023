"""Facts and data for manifests: those of this host, and those that the command line adds."""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.formatting import text_of
from hiera.errors import HieraError
from hiera.sops.identities import NO_IDENTITIES, OPAQUE, Identities
from puller.data.sources import (
    DataSource,
    FilesBeside,
    Origin,
    Surroundings,
    assigned,
    host_files,
    read_beside,
)
from puller.errors import ConfigurationError
from puller.facts.fact_tree import Facts, gather
from puller.facts.given_facts import chosen_facts, facts_from
from puller.manifest.manifest import Inputs
from puller.state import (
    IDENTITIES,
    PRIVATE_KEY,
    Directories,
    configuration_file,
    places_of_data,
    users_identities,
)
from puller.values.foreign_text import visible

if TYPE_CHECKING:  # see the functions that import them
    from bundles.deadline import Deadline
    from puller.config.configuration import Configuration
    from puller.data.site_data import Signed, SiteData, Warn


def own_facts(configuration: "Configuration") -> dict[str, str]:
    """Return the facts that the configuration of the agent states."""
    # Puppet's name of the fact, which hierarchies of sites use.
    return {"clientcert": configuration.host_name} if configuration.host_name else {}


class Host(msgspec.Struct, frozen=True):
    """This host. Its facts are gathered on demand, group by group."""

    configuration: "Configuration"
    facts: Facts
    environ: Mapping[str, str]
    identities: Identities
    """The keys for files that SOPS encrypted. Their ``problems`` are complete at the end of a run."""

    @classmethod
    def of(cls, configuration: "Configuration") -> "Host":
        """Return the machine that the process runs on."""
        return cls.with_facts(
            configuration,
            gather(custom_directories=[configuration.facts_directory], agent=own_facts(configuration)),
        )

    @classmethod
    def with_facts(cls, configuration: "Configuration", facts: Facts) -> "Host":
        """Return the machine that the process runs on, with other facts."""
        return cls(configuration, facts, dict(os.environ), Identities(configuration.age_identities))

    @property
    def name(self) -> str:
        """The configured name, else the fully qualified one."""
        with self.facts.unrecorded():
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
        """Return facts and data for manifests. ``copies`` is the directory for site data.

        ``signed`` are the documents that the site has signed, ``None`` if it could not be refreshed. ``deadline`` is
        the time limit of everything that is fetched. Problems with site data are passed to ``warn``. With ``noop``
        nothing is written. Raise ``ConfigurationError`` for invalid data of this host.
        """
        locations = self.configuration.site_data
        if not locations and not copies.exists():
            return self._inputs(())
        site = self._site_data(copies, warn, deadline, signed, noop=noop)
        if not noop:
            site.forget_others(locations)
        return self._inputs(site.load(locations))

    def inputs_of_last_run(self, copies: Path, warn: "Warn") -> Inputs:
        """Return facts and data for manifests, with the site data of the last run. Nothing is fetched."""
        return self._inputs(
            self._site_data(copies, warn, None, noop=True).load_copies(self.configuration.site_data)
        )

    def _inputs(self, site: tuple[DataSource, ...]) -> Inputs:
        paths = host_files(Path(self.configuration.host_data), Path(self.configuration.host_data_directory))
        sources = self._surroundings.load(paths, Origin.HOST, site)
        return Inputs(
            self.facts,
            self.environ,
            sources,
            self.configuration.eyaml_private_key,
            self.identities,
            self.configuration.as_user,
        )

    @property
    def _surroundings(self) -> Surroundings:
        return Surroundings(self.facts, self.environ, self.identities)

    def _site_data(
        self,
        copies: Path,
        warn: "Warn",
        deadline: "Deadline | None",
        signed: "Signed | None" = None,
        *,
        noop: bool,
    ) -> "SiteData":
        # 4 % of an idle apply, which usually needs neither
        from puller.config.transport import settings_for
        from puller.data.site_data import SiteData

        settings = partial(settings_for, self.configuration)
        return SiteData(copies, self._surroundings, settings, warn, signed, deadline, noop)


class CommandInputs(msgspec.Struct, frozen=True):
    """Facts and data of the command line."""

    facts: Any
    options: Mapping[str, Any]
    host: Inputs | None = None
    """The facts and data of this host, which the command line overrides. ``None``: only those of the command line."""
    host_problems: Sequence[str] = ()
    """Problems with the data of this host that do not stop a run."""
    beside: FilesBeside = FilesBeside()
    """The files beside the manifest."""
    identities: Identities = NO_IDENTITIES
    """The keys for files that SOPS encrypted."""

    def with_files_beside(self, directory: Path) -> "CommandInputs":
        """Return the inputs with ``.env`` and ``.hiera`` of a directory."""
        return msgspec.structs.replace(self, beside=read_beside(directory))

    def for_manifest(self) -> Inputs:
        """Return the facts and data for a manifest. Raise ``ConfigurationError`` for an invalid document."""
        here = Surroundings(self.facts, {**os.environ, **self.beside.environ}, self.identities)
        below: Sequence[DataSource] = ()
        private_key = self.options["private_key"]
        if self.host is not None:
            below = self.host.sources
            private_key = self.host.private_key if private_key == PRIVATE_KEY else private_key
        if self.beside.document is not None:
            try:
                source = here.resolve(self.beside.document, self.beside.name, Origin.COMMAND_LINE, below)
            except HieraError as error:
                raise ConfigurationError(problems=error.problems) from error
            below = (*below, source)
        sources = here.load(map(Path, self.options["data_files"]), Origin.COMMAND_LINE, below)
        provided = assigned(self.options["data_pairs"])
        as_user = self.options.get("as_user")
        sources = (*sources, *provided)
        return Inputs(self.facts, here.environ, sources, private_key, self.identities, as_user)

    def problems(self) -> list[str]:
        """Return sentences about facts and keys that could not be read.

        Complete only when all facts were gathered, and all files decrypted.
        """
        return [
            *self.host_problems,
            *map(text_of, (*self.beside.ignored, *self.identities.problems)),
            *(str(problem) for problem in getattr(self.facts, "problems", ())),
        ]

    def warn(self) -> None:
        """Print the problems on stderr."""
        for problem in self.problems():
            print(visible(f"puller: {problem}"), file=sys.stderr)


def identities_of(options: Mapping[str, Any]) -> Identities:
    """Return the keys of ``--identity``, by default those of the machine, or of the user with ``--as-user``."""
    return Identities(options["identities"] or (users_identities() if options.get("as_user") else IDENTITIES))


def load_inputs(options: Mapping[str, Any], *, opaque: bool = False) -> CommandInputs:
    """Return the inputs of the options ``fact_options`` and ``data_options``. ``opaque`` uses no keys."""
    identities = OPAQUE if opaque else identities_of(options)
    return CommandInputs(chosen_facts(options), options, identities=identities)


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
        identities = identities_of(options)
        sources = Surroundings(facts, dict(os.environ), identities).load(files, Origin.HOST)
        inputs = Inputs(facts, os.environ, sources, options["private_key"], identities)
        return CommandInputs(facts, options, inputs, identities=identities)
    # 1 % of an idle apply, which usually needs none
    from puller.config.configuration import load_configuration

    configuration, problems = load_configuration(path), list[str]()
    directories = Directories(Path(configuration.state_directory), Path(configuration.run_directory))
    facts = facts_from(options, directories=[configuration.facts_directory], agent=own_facts(configuration))
    host = Host.with_facts(configuration, facts)
    inputs = host.inputs_of_last_run(directories.data, lambda sentence, error: problems.append(sentence))
    identities = identities_of(options) if options["identities"] else inputs.identities
    return CommandInputs(facts, options, inputs, problems, identities=identities)
