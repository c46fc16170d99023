"""The commands of ``puller ensure``: one resource of any type, for shell scripts and other programs.

* Each resource type is a command. Its options are made from the properties of the type.
* ``puller ensure api pipe`` reads a request from standard input and writes the response to standard output.
* ``puller state`` prints the current state of one resource. (``puller status`` describes the agent and its bundles.)
* ``puller session`` has the events of several related ``puller ensure`` commands.

``docs/shell.md`` is the guide.
"""

import io
import shlex
import sys
import time
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from bundles.confined.current import confined_when_needed
from bundles.progress import watched_by
from foundation.formatting import text_of
from foundation.problems import Problem, ProblemCode
from foundation.suggestions import meant
from hiera import parsing
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.cli.command_table import CommandGroup
from puller.cli.completing import files, resource_types
from puller.cli.options import (
    Decorator,
    any_format_option,
    data_options,
    fact_options,
    format_option,
    job_options,
    together,
)
from puller.cli.output import say, show, warn, with_colour_option
from puller.engine.ensure import SESSION_VARIABLE, RequestedResource, Session, ensure, parse_request, response
from puller.engine.manifest_schema import describe_properties
from puller.errors import UsageError
from puller.exit_status import ExitStatus
from puller.facts.given_facts import facts_from
from puller.manifest.manifest import working_directory
from puller.manifest.problems import decode, find_problems
from puller.reporting.fetching import Fetching
from puller.reporting.report import BundleReport, Event, Summary
from puller.reporting.run_log import Log, sentence
from puller.reporting.terminal_rows import Rows
from puller.resources.base import Context, Resource, ResourceType
from puller.resources.content_sources import fetch_url
from puller.resources.registry import find_type, type_names
from puller.run.host import load_inputs
from puller.run.jobs import Options
from puller.system.noop import NoopSystem
from puller.system.processes import Stopped, StopRequests

# Options that all commands share, and the run itself.

session_option: Decorator = click.option(
    "--session",
    "session_directory",
    envvar=SESSION_VARIABLE,
    metavar="DIR",
    shell_complete=files,
    help=f"Record the events in this session, and let references find them.  [env: {SESSION_VARIABLE}]",
)
ensure_options = together(job_options, session_option, fact_options, data_options)
"""For ``run_one``."""


def run_one(
    desired: RequestedResource, options: dict[str, Any], log: Log, *, diff: bool | None
) -> tuple[list[Event], int]:
    """Ensure a resource with the options of ``ensure_options``. Return its events and the exit status."""
    started, stops = time.perf_counter(), StopRequests(log.at_once)
    directory = options["session_directory"]
    session = Session.open(Path(directory)) if directory else None
    provided = load_inputs(options).with_files_beside(working_directory())
    inputs = provided.for_manifest()
    for problem in (*provided.beside.ignored, *provided.identities.problems):
        warn(f"warning: {text_of(problem)}")
    settings = Options(noop=options["noop"], diff=diff).settings(log, stops)
    with stops.handled():
        try:
            events = ensure(desired, inputs, settings, stops, session)
        except Stopped as stop:
            log.error(f"{stop}. Nothing was changed")
            return [], stop.exit_status
    summary = Summary.of(events, time.perf_counter() - started)
    detailed, noop = options["detailed_exitcodes"], options["noop"]
    status = stops.exit_status or summary.exit_status(detailed=detailed, noop=noop)
    if log.terminal is not None:  # pipes have only the line of the event
        log.ended(status, [BundleReport(name="", outcome="applied", summary=summary, events=events)])
    return events, status


# ``puller ensure api pipe``.

_LIMIT = 16 * 1024 * 1024  # bytes of a request
_STOPPED = Problem(code=ProblemCode.STOPPED, message="stopped")


@click.group(cls=CommandGroup)
def api() -> None:
    """Ensure resources for other programs."""


@api.command()
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the response as YAML instead of JSON.")
@ensure_options
def pipe(as_yaml: bool, **options: Any) -> int:
    """Ensure the resource of a request, and print the response.

    Puller reads the request from standard input.

    \b
      echo '{"protocol": "io.choria.ccm.v1.resource.ensure.request", "type": "file",
             "properties": {"name": "/etc/motd", "ensure": "absent"}}' | puller ensure api pipe

    A request is JSON or YAML. The response contains the protocol, the error if any, and the state of the resource. The
    exit status is the same as for the resource types.
    """
    event, status = None, int(ExitStatus.USAGE)
    try:
        desired = parse_request(_read())
        # Standard output contains only the response, and a diff only on request.
        events, status = run_one(desired, options, Log(io.StringIO()), diff=bool(options["diff"]))
        event = events[-1] if events else None
        problems = event.problems if event else [_STOPPED]
    except UsageError as refused:
        problems = list(refused.problems)
    show(response(event, problems), "yaml" if as_yaml else "json")
    return status


def _read() -> bytes:
    text = sys.stdin.buffer.read(_LIMIT + 1)  # one more byte, to detect longer requests
    if len(text) > _LIMIT:
        raise UsageError(f"request: is longer than {_LIMIT} bytes")
    return text


# Options that are made from the properties of a resource type.

_PREFIX = "property_"  # of parameters, to separate them from the command's own ones
_ELSEWHERE = frozenset({"name", "ensure", "noop", "after", "control", "health_checks", "removed"})
_EMPTY = (None, (), msgspec.NODEFAULT)


def property_options(resource_type: ResourceType, taken: frozenset[str]) -> Iterator[click.Option]:
    """Yield an option for each property. If its name is ``taken``, the type precedes it."""
    descriptions = describe_properties(resource_type.properties_type)
    for field in msgspec.structs.fields(resource_type.properties_type):
        if field.name in _ELSEWHERE:
            continue
        name = "--" + field.encode_name.replace("_", "-")
        if name in taken:
            name = f"--{resource_type.type_name}-{name.removeprefix('--')}"
        kind = _Kind.of(field.type)
        default = field.default if isinstance(field.default, str | int) and field.default else None
        shown = "" if default is None or isinstance(default, bool) else f"  [default: {default}]"
        yield click.Option(
            [f"{name}/--no-{name[2:]}" if kind.is_flag else name, _PREFIX + field.name],
            help=(descriptions.get(field.name) or f"The property {field.encode_name}.") + shown,
            multiple=kind.is_many,
            default=None,  # not the property's default, because only given properties are passed on
            type=bool if kind.is_flag else str,
            metavar=None if kind.is_flag else kind.metavar,
        )
    yield from _common_options()


def properties_from(resource_type: ResourceType, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties in the form of a manifest. Raises ``UsageError``."""
    properties: dict[str, Any] = {}
    for field in msgspec.structs.fields(resource_type.properties_type):
        value = values.get(_PREFIX + field.name)
        if value is not None and value != ():
            is_secret = field.name in resource_type.secret_properties
            properties[field.encode_name] = _Kind.of(field.type).read(
                field.encode_name, value, is_secret=is_secret
            )
    conditions = {name: values[f"control_{name}"] for name in ("if", "unless") if values[f"control_{name}"]}
    if conditions:
        properties["control"] = conditions
    if values["check"]:
        remainder = {name: values[f"check_{name}"] for name in ("tries", "try_sleep", "timeout")}
        provided = {name: value for name, value in remainder.items() if value is not None}
        properties["health_checks"] = [{"command": command, **provided} for command in values["check"]]
    return properties


def _common_options() -> Iterator[click.Option]:
    text: dict[str, Any] = {"default": None, "type": str}
    yield click.Option(
        ["--control-if"],
        metavar="EXPRESSION",
        help="Manage the resource only if this expression is true.",
        **text,
    )
    yield click.Option(
        ["--control-unless"],
        metavar="EXPRESSION",
        help="Manage the resource only if this expression is false.",
        **text,
    )
    yield click.Option(
        ["--check"],
        multiple=True,
        metavar="COMMAND",
        help="A health check: a command with the exit codes of Nagios.",
    )
    yield click.Option(
        ["--check-tries"], metavar="NUMBER", type=int, default=None, help="How often to try each check."
    )
    yield click.Option(
        ["--check-sleep", "check_try_sleep"], metavar="TIME", help="How long to wait between tries.", **text
    )
    yield click.Option(["--check-timeout"], metavar="TIME", help="The timeout of each try.", **text)


class _Kind(msgspec.Struct, frozen=True):
    """Conversion of an option's text to the value of a property."""

    read_one: typing.Callable[[str], Any] = str
    metavar: str = "TEXT"
    is_flag: bool = False
    is_many: bool = False
    is_mapping: bool = False

    @classmethod
    def of(cls, kind: Any) -> "_Kind":
        """Return the conversion for the type of a property."""
        is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
        members = typing.get_args(kind) if is_union else (kind,)
        members = tuple(member for member in members if member is not type(None))
        # Text, or a type of Puller, which parses text itself and has its own error messages.
        if str in members or any(hasattr(member, "parse") for member in members):
            return cls()
        origin, arguments = typing.get_origin(members[0]) or members[0], typing.get_args(members[0])
        if origin is typing.Literal:
            return cls(metavar="|".join(arguments))
        if origin is bool:
            return cls(is_flag=True)
        if origin in (int, float):
            return cls(origin, "NUMBER")
        if isinstance(origin, type) and issubclass(origin, Mapping):
            free = not arguments or arguments[1] is Any
            return cls(_yaml if free else str, "KEY=VALUE", is_many=True, is_mapping=True)
        if origin in (tuple, list) and arguments:
            return msgspec.structs.replace(
                cls.of(arguments[0]), is_many=True, is_mapping=False, is_flag=False
            )
        return cls(_yaml, "YAML")

    def read(self, name: str, value: Any, *, is_secret: bool) -> Any:
        """Convert the value from click. Raises ``UsageError``, without secrets."""
        if self.is_flag:
            return value
        try:
            if self.is_mapping:
                return dict(_pair(text, self.read_one) for text in value)
            if self.metavar == "KEY=VALUE":
                return [dict([_pair(text, self.read_one)]) for text in value]
            return [self.read_one(text) for text in value] if self.is_many else self.read_one(value)
        except ValueError:
            # From None, because the error of int() contains the value, which may be secret.
            shown = "given otherwise" if is_secret else repr(value)
            raise UsageError(f"--{name.replace('_', '-')} is {shown}", expected=f"{self.metavar}") from None


def _pair(text: str, read: typing.Callable[[str], Any]) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError
    return key, read(value)


def _yaml(text: str) -> Any:
    try:
        return parsing.load_yaml(text, "value")
    except HieraError:
        raise ValueError from None


_API = "api"


class _Types(CommandGroup):
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
    """Bring one resource into a state.

    The result is the same as that of a manifest with only this resource.

    \b
      puller ensure package nginx
      puller ensure file /etc/motd --content "Hello" --owner root --group root --mode 0644
      puller ensure service nginx running --enable --subscribe file#/etc/motd

    References find earlier events of the same session. See `puller help session`.

    Exit status: 0 in the desired state, 2 after changes with --detailed-exitcodes, 4 if the resource or a requirement
    failed, 64 for an invalid command line.
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
        desired = RequestedResource(resource_type.type_name, properties)
        # Pipes get a line for every state. On a terminal, the summary shows an unchanged resource.
        verbose = options["verbose"] or not (options["quiet"] or sys.stdout.isatty())
        log = Options(
            noop=options["noop"], diff=options["diff"], verbose=verbose, quiet=options["quiet"]
        ).log()
        with watched_by(Fetching(log)), confined_when_needed():
            return run_one(desired, options, log, diff=options["diff"])[1]

    # Properties depend on the type. In --help they precede the common options.
    made = click.command(name, help=_help(resource_type))(command)
    taken = frozenset(option for parameter in made.params for option in parameter.opts)
    arguments, remainder = made.params[:2], made.params[2:]
    made.params = [*arguments, *property_options(resource_type, taken), *remainder]
    return made


def _help(resource_type: ResourceType) -> str:
    values = describe_properties(resource_type.properties_type).get("ensure", "The desired state.")
    return f"{_summary(resource_type)}\n\nENSURE: {values}"


def _summary(resource_type: ResourceType | None) -> str:
    return ((resource_type.__doc__ if resource_type else None) or "A resource.").strip().partition("\n\n")[0]


@click.command()
@click.argument("type_name", metavar="TYPE", shell_complete=resource_types)
@click.argument("name")
@format_option
@fact_options
def state(type_name: str, name: str, output_format: str, **options: Any) -> None:
    """Show the current state of a resource. This command changes nothing.

    \b
      puller state file /etc/motd
      puller state service nginx --format json
    """
    resource_type = find_type(type_name)
    if resource_type is None:
        raise UsageError(f"unknown resource type {type_name!r}", **meant(type_name, type_names()))
    if not resource_type.has_state:
        raise UsageError(f"{type_name}: exists only as a declaration in a manifest")
    resource = _resource(resource_type, name, options)
    show({"type": type_name, "name": name, **resource.describe(resource.look())}, output_format)


def _resource(resource_type: ResourceType, name: str, options: dict[str, Any]) -> Resource[Any, Any]:
    raw = {"name": name}
    reference = f"{resource_type.type_name}#{name}"
    if problem := next(find_problems(resource_type, raw), None):
        raise UsageError(f"{reference}: {problem}")
    properties = decode(resource_type, raw)
    for error in resource_type.problems(properties):
        if error.property == "name":  # other missing properties concern the desired state, which is not used
            raise UsageError(f"{reference}: {error}")
    if unsaid := resource_type.unsaid(properties):
        raise UsageError(f"{reference}: {unsaid}")
    context = Context(
        system=NoopSystem(),  # refuses to write, because this command only reads
        files=BundleFiles.anywhere(working_directory()),
        scope=Scope(facts_from(options), {}),
        fetch=fetch_url,
        shared={},
        declared=lambda type_name: [name] if type_name == resource_type.type_name else [],
        noop=True,
    )
    return resource_type(properties, context)


@click.group(cls=CommandGroup)
def session() -> None:
    """Share events between `puller ensure` commands.

    \b
      eval "$(puller session new)"
      puller ensure file /etc/app.conf --source app.conf --owner root --group root --mode 0644
      puller ensure service app --require file#/etc/app.conf --subscribe file#/etc/app.conf
      puller session report --remove
    """


@session.command()
@click.option(
    "--directory",
    metavar="DIR",
    help="The directory of the session. Puller creates it.  [default: a temporary directory]",
)
def new(directory: str | None) -> None:
    """Create a session, and print the shell command that selects it."""
    made = Session.create(Path(directory) if directory else None)
    say(f"export {SESSION_VARIABLE}={shlex.quote(str(made.directory))}")


@session.command()
@session_option
@click.option("--remove", is_flag=True, help="Delete the session afterwards.")
@any_format_option
def report(session_directory: str | None, remove: bool, output_format: str) -> int:
    """Show the events of a session and their summary.

    Exit status: 0, 4 if resources failed, 6 if some failed and others changed.
    """
    if not session_directory:
        raise UsageError(f"no session: set {SESSION_VARIABLE}, or give --session")
    result = Session.open(Path(session_directory))
    recorded = result.events()
    events = [item.event for item in recorded]
    summary = Summary.of(events, sum(event.duration for event in events))
    if output_format == "text":
        _print_events(events, summary)
    else:
        value = {"started": result.start.started, "summary": summary, "events": recorded}
        show(msgspec.to_builtins(value), output_format)
    if remove:
        result.remove()
    return summary.exit_status(detailed=False)


def _print_events(events: Sequence[Event], summary: Summary) -> None:
    """Print rows on a terminal, and otherwise a line for each event."""
    rows = Rows.of(sys.stdout) if sys.stdout.isatty() else None
    for event in events:
        if rows is None:
            say(sentence(event))
        else:
            click.echo("\n".join(rows.resource(event)))
    say(str(summary))
