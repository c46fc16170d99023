"""The command ``puller``: everything that a user types.

Each command lives in a module of its own, imported when it is asked for, so that a run of local files does not pay for
what talks to web servers.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from puller.exit_status import ExitStatus

_COMMANDS = {
    "run": ("puller.cli.run:run", "Pull what is published for this host, and apply it."),
    "apply": ("puller.cli.apply:apply", "Apply a manifest, a directory or a bundle file to this machine."),
    "render": ("puller.cli.render:render", "Show what a manifest or template gives for this host's facts."),
    "lint": ("puller.cli.lint:lint", "Check a manifest, a directory or a bundle file."),
    "facts": ("puller.cli.facts:facts", "Show what is known about this machine."),
    "hiera": ("puller.cli.hiera:hiera", "Look up hierarchical data, and explain where it comes from."),
    "status": ("puller.cli.status:status", "Show what is enforced here, and how the last run went."),
    "bundle": ("puller.cli.bundle:bundle", "Write, build and inspect bundles."),
    "site": ("puller.cli.site:site", "Publish signed bundles in a static site."),
    "config": ("puller.cli.config:config", "Check this host's configuration, or print a sample."),
    "install-units": ("puller.cli.units:install_units", "Install the systemd service and timer."),
    "demo": ("puller.cli.demo:demo", "Publish, pull, apply and attack, in a temporary directory."),
}


class _Commands(click.Group):
    """Subcommands by name; a module is imported only for the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from puller.manifest.problems import did_you_mean

            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="puller", prog_name="puller")
def cli() -> None:
    """Keep Linux machines in the state that is published on a plain web server.

    \b
    Authors:     puller bundle new web; puller lint web; puller apply web --noop
    Publishers:  puller site init site; puller site publish site web --version 1.0.0
    Hosts:       puller run; systemctl enable --now puller.timer
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a documented status; errors are sentences on stderr."""
    try:
        status = cli.main(args=arguments, prog_name="puller", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else ExitStatus.OK)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitStatus.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("puller: stopped", err=True)
        sys.exit(ExitStatus.INTERRUPTED)
    except BrokenPipeError:
        _close_stdout()
        sys.exit(ExitStatus.OK)
    except Exception as error:  # noqa: BLE001  the last place where an error can be told from a bug
        sys.exit(_report(error))


def _report(error: Exception) -> ExitStatus:
    """Say what went wrong, and give the status for it; a bug shows its traceback."""
    from puller.failures import status_of

    status = status_of(error)
    if status is None:
        import traceback

        traceback.print_exception(error)
        click.echo("puller: this is a bug in Puller; please report it with the lines above", err=True)
        return ExitStatus.BUG
    for line in str(error).splitlines():
        click.echo(f"puller: {line}", err=True)
    return status


def _close_stdout() -> None:
    """The reader went away; keep the interpreter from complaining about it when it flushes at the end."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
