"""The options that several commands of ``puller site`` have, and the rollout that they ask for."""

from datetime import datetime, timedelta
from pathlib import Path

import click

from bundles.errors import PublishError
from bundles.format.index import parse_wave
from bundles.publisher.statements import RolloutRequest
from foundation.problems import ProblemCode
from foundation.timestamps import parse_moment
from puller.cli.options import DURATION, Decorator, together
from puller.cli.publisher.secrets import KEYS_VARIABLE, PIN_FILE, PIN_VARIABLE

site_directory: Decorator = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
_passphrase_file: Decorator = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Read the passphrase of the keys from this file.  [default: ${KEYS_VARIABLE}, else a question]",
)


def _remember_pin_file(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    context.meta[PIN_FILE] = file


pin_option: Decorator = click.option(
    "--pin-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    expose_value=False,
    callback=_remember_pin_file,
    help=f"Read the PIN of a hardware token from this file.  [default: ${PIN_VARIABLE}, else a question]",
)


passphrase_option = together(_passphrase_file, pin_option)
"""``--passphrase-file``, and ``--pin-file`` for ``secrets`` to find."""


uri_option: Decorator = click.option(
    "--uri", help="The key is in a token or a key service: hsm:2?label=TOKEN, awskms:KEY_ID, hv:KEY, ..."
)

channel_option: Decorator = click.option(
    "--channel", default="stable", show_default=True, help="Whose hosts are meant."
)
percent_option: Decorator = click.option(
    "--percent",
    type=click.FloatRange(0, 100),
    metavar="NUMBER",
    help="Only this part of the hosts, for now; at most two decimals.",
)
over_option: Decorator = click.option(
    "--over", type=DURATION, help="Evenly more hosts until all are reached after this time: 90m, 24h, 2d."
)
start_option: Decorator = click.option(
    "--start",
    metavar="WHEN",
    help="With --over, when that begins: 2026-11-20T22:00 (UTC unless it has an offset).  [default: now]",
)


wave_option: Decorator = click.option(
    "--wave",
    metavar="NAME",
    help="With --percent or --over: rollouts of the same wave reach the same hosts, whatever their bundles.",
)

rollout_options = together(percent_option, over_option, start_option, wave_option)
"""For a release that a channel is about to name, by way of ``rollout_request``."""


def rollout_request(
    percent: float | None, over: timedelta | None, start: str | None = None, wave: str | None = None
) -> "RolloutRequest":
    """The rollout that ``rollout_options`` ask for; all hosts at once without them. Raises ``click.UsageError``."""
    if wave is not None and percent is None and over is None:
        raise click.UsageError("--wave needs --percent or --over")
    if percent is not None and over is not None:
        raise click.UsageError("--percent and --over exclude each other")
    if start is not None and over is None:
        raise click.UsageError("--start needs --over, the time from there until all hosts are reached")
    moment = None if start is None else _start(start)
    return RolloutRequest(percent, over, moment, None if wave is None else parse_wave(wave))


def _start(text: str) -> datetime:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise PublishError("--start", str(error), code=ProblemCode.INVALID_COMMAND) from None
