"""``--color``, which every command has, also those that are made when they are asked for."""

import click

from puller.values import colour


def _choose(context: click.Context, _: click.Parameter, choice: colour.Choice | None) -> None:
    if choice is not None:  # without one, what was said further to the left stands
        colour.choose(choice)
        context.color = colour.decided()


def with_colour_option(command: click.Command) -> click.Command:
    """The command, and those below it that are there, with ``--color``; one that has it stays as it is."""
    if not any("--color" in parameter.opts for parameter in command.params):
        command.params.append(
            click.Option(
                ["--color"],
                type=click.Choice(["auto", "always", "never"]),
                expose_value=False,
                is_eager=True,  # mistakes in other options are told as it says
                callback=_choose,
                help="Colour for people; auto: on terminals, as NO_COLOR and CLICOLOR say.",
            )
        )
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_colour_option(below)
    return command
