"""The table of the commands below ``puller``. Each command is in its own module, imported on first use."""

from collections.abc import Sequence

import click

from foundation.formatting import did_you_mean
from puller.cli.lazy_group import LazyGroup
from puller.cli.output import with_colour_option
from puller.exit_status import ExitStatus
from puller.values import colour
from puller.version import __version__

# With their summaries, so that `puller --help` imports none of them.
_COMMANDS = {
    "run": ("puller.cli.host.run:run", "Pull what is published for this host, and apply it."),
    "apply": (
        "puller.cli.author.apply:apply",
        "Apply a manifest, a directory or a bundle file to this machine.",
    ),
    "ensure": (
        "puller.cli.ensure.ensure:ensure_group",
        "Bring one resource into a state, for shell scripts.",
    ),
    "session": ("puller.cli.ensure.session:session", "Let puller ensure commands refer to each other."),
    "state": ("puller.cli.ensure.state:state", "Show what is there now of one resource."),
    "schema": ("puller.cli.author.schema:schema", "Print the JSON Schema of manifests and requests."),
    "render": (
        "puller.cli.author.render:render",
        "Show what a manifest or template gives for this host's facts.",
    ),
    "help": ("puller.cli.author.help:help_command", "Explain the code of a problem."),
    "lint": ("puller.cli.author.lint:lint", "Check a manifest, a directory or a bundle file."),
    "test": ("puller.cli.author.test:test", "Check the cases of a bundle, without touching any machine."),
    "preview": (
        "puller.cli.author.preview:preview",
        "Show what a new bundle changes on which machines.",
    ),
    "facts": ("puller.cli.host.facts:facts", "Show what is known about this machine."),
    "hiera": ("puller.cli.hiera.lookup:hiera", "Look up hierarchical data, and explain where it comes from."),
    "explain": (
        "puller.cli.author.explain:explain",
        "Say why a value or a resource is as it is on this host.",
    ),
    "status": ("puller.cli.host.status:status", "Show what is enforced here, and how the last run went."),
    "check": ("puller.cli.host.check:check", "Ask the health checks of what is enforced here."),
    "disable": ("puller.cli.host.hold:disable", "Apply nothing on this host for now, and say why."),
    "enable": ("puller.cli.host.hold:enable", "Apply again what is published."),
    "rollback": ("puller.cli.host.hold:rollback", "Roll back to the bundle before, and stay there."),
    "pin": ("puller.cli.host.hold:pin", "Hold a bundle at a version on this host."),
    "unpin": ("puller.cli.host.hold:unpin", "Let a bundle follow its channel again."),
    "forget": (
        "puller.cli.host.hold:forget",
        "Remove what is kept of a bundle that is not followed any more.",
    ),
    "quarantine": ("puller.cli.host.hold:quarantine", "Show or clear what is not tried again here."),
    "bundle": ("puller.cli.author.bundle:bundle", "Write, build and inspect bundles."),
    "site": ("puller.cli.publisher.site:site", "Publish signed bundles in a static site."),
    "fleet": ("puller.cli.fleet.fleet:fleet", "Look at all hosts, by the reports that they send."),
    "config": ("puller.cli.host.config:config", "Check this host's configuration, or print a sample."),
    "install-units": ("puller.cli.host.units:install_units", "Install the systemd service and timer."),
    "completion": ("puller.cli.host.completion:completion", "Print what a shell needs to complete commands."),
    "demo": ("puller.cli.publisher.demo:demo", "Publish, pull, apply and attack, in a temporary directory."),
}


class _Commands(LazyGroup):
    """The commands of ``puller``. An unknown command is an error with similar names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Replaces click's own message, which suggests no similar name.
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    table=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="puller")
def cli() -> None:
    """Keep Linux machines in the state that is published on a plain web server.

    \b
    Authors:     puller bundle new web; puller lint web; puller apply web --noop
    Publishers:  puller site init site; puller site publish site web --version 1.0.0
    Hosts:       puller run; systemctl enable --now puller.timer
    """


with_colour_option(cli)


def run_click(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status. Raises the errors of commands."""
    colour.choose("auto")
    try:
        # In standalone mode click ends the process with its own statuses.
        status = cli.main(
            args=list(arguments), prog_name="puller", standalone_mode=False, color=colour.decided()
        )
        return status if isinstance(status, int) else ExitStatus.OK
    except click.ClickException as error:
        error.show()
        return ExitStatus.USAGE
    except click.Abort:
        click.echo("puller: stopped", err=True)
        return ExitStatus.INTERRUPTED
