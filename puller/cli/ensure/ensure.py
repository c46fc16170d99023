"""``puller ensure``: one resource, of any type, brought into a state; for shell scripts."""

import sys
from typing import Any

import click

from bundles.confined.current import confined_when_needed
from bundles.progress import watched_by
from puller.cli.colour import with_colour_option
from puller.cli.ensure.options import ensure_options, run_one
from puller.cli.ensure.pipe import api
from puller.cli.ensure.property_options import properties_from, property_options
from puller.engine.ensure import Wanted
from puller.reporting.fetching import Fetching
from puller.reporting.log import Log, verbosity
from puller.resources.base import ResourceType
from puller.resources.descriptions import describe_properties
from puller.resources.registry import find_type, type_names

_API = "api"


class _Types(click.Group):
    """A command for each resource type, with its properties as options."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*type_names(), _API]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == _API:
            return with_colour_option(api)
        resource_type = find_type(cmd_name)
        return None if resource_type is None else with_colour_option(_command(resource_type))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Types"):
            formatter.write_dl([(name, _summary(find_type(name))) for name in type_names()])
        with formatter.section("Commands"):
            formatter.write_dl([(_API, "Requests from other programs.")])


@click.group("ensure", cls=_Types)
def ensure_group() -> None:
    """Bring one resource into a state, as a manifest with only this resource would.

    \b
      puller ensure package nginx
      puller ensure file /etc/motd --content "Hello" --owner root --group root --mode 0644
      puller ensure service nginx running --enable --subscribe file#/etc/motd

    References mean what happened before in the same session; see puller session --help.

    Exit status: 0 in the desired state, 2 with --detailed-exitcodes when it was changed, 4 when it failed or what it
    requires did, 64 when the command line is not valid.
    """


def _command(resource_type: ResourceType) -> click.Command:
    name = resource_type.type_name

    @click.argument("name")
    @click.argument("ensure", required=False)
    @ensure_options
    def command(name: str, ensure: str | None, **options: Any) -> int:
        properties = {"name": name, **properties_from(resource_type, options)}
        if ensure is not None:
            properties["ensure"] = ensure
        # A line for every state: who types this wants to know.
        level = verbosity(verbose=not options["quiet"], quiet=options["quiet"])
        wanted = Wanted(resource_type.type_name, properties)
        log = Log(sys.stdout, level=level)
        with watched_by(Fetching(log)), confined_when_needed():
            return run_one(wanted, options, log, diff=options["diff"])[1]

    # Properties are known only now, from the type; in --help they come before what all types have.
    made = click.command(name, help=_help(resource_type))(command)
    taken = frozenset(option for parameter in made.params for option in parameter.opts)
    arguments, rest = made.params[:2], made.params[2:]
    made.params = [*arguments, *property_options(resource_type, taken), *rest]
    return made


def _help(resource_type: ResourceType) -> str:
    values = describe_properties(resource_type.properties_type).get("ensure", "The desired state.")
    return f"{_summary(resource_type)}\n\nENSURE: {values}"


def _summary(resource_type: ResourceType | None) -> str:
    return ((resource_type.__doc__ if resource_type else None) or "A resource.").strip().partition("\n\n")[0]
