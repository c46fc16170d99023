"""Options that several commands of ``puller site`` have, and what they stand for."""

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.errors import KeyFileError, PublishError
from bundles.filesystem.atomic import read_limited
from puller.cli.options import Decorator, together

if TYPE_CHECKING:
    from bundles.publisher.keys import Passphrase
    from bundles.publisher.statements import RolloutRequest

_VARIABLE = "PULLER_PASSPHRASE"
_PIN_VARIABLE = "PULLER_PIN"
_PIN_FILE = "puller.pin_file"
_LONGEST_PASSPHRASE = 64 * 1024

site_directory: Decorator = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
_passphrase_file: Decorator = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Read the passphrase of the keys from this file.  [default: ${_VARIABLE}, else a question]",
)


def _remember_pin_file(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    context.meta[_PIN_FILE] = file


pin_option: Decorator = click.option(
    "--pin-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    expose_value=False,
    callback=_remember_pin_file,
    help=f"Read the PIN of a hardware token from this file.  [default: ${_PIN_VARIABLE}, else a question]",
)


passphrase_option = together(_passphrase_file, pin_option)
"""``--passphrase-file``, and ``--pin-file`` for `passphrase_of_keys` to find."""


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
    "--over", metavar="TIME", help="Evenly more hosts until all are reached after this time: 90m, 24h, 2d."
)
start_option: Decorator = click.option(
    "--start",
    metavar="WHEN",
    help="With --over, when that begins: 2026-11-20T22:00 (UTC unless it has an offset).  [default: now]",
)


rollout_options = together(percent_option, over_option, start_option)
"""For a release that a channel is about to name, by way of ``rollout_request``."""


def rollout_request(percent: float | None, over: str | None, start: str | None = None) -> "RolloutRequest":
    """What `rollout_options` ask for; all hosts at once without them."""
    from bundles.publisher.expiry import parse_duration
    from bundles.publisher.statements import RolloutRequest

    if percent is not None and over is not None:
        raise click.UsageError("--percent and --over exclude each other")
    if start is not None and over is None:
        raise click.UsageError("--start needs --over, the time from there until all hosts are reached")
    duration = None if over is None else parse_duration(over, "--over")
    return RolloutRequest(percent, duration, None if start is None else _start(start))


def _start(text: str) -> datetime:
    from puller.values.times import parse_moment

    try:
        return parse_moment(text)
    except ValueError as error:
        raise PublishError("--start", str(error)) from None


def passphrase_of_keys(file: Path | None) -> "Passphrase":
    """Where the passphrase of existing keys comes from; a question is asked once, for all of them.

    Each token has a PIN of its own.
    """
    asked: list[bytes] = []
    pins: dict[Path, bytes] = {}

    def passphrase(key: Path) -> bytes:
        if key.suffix == ".uri":
            if key not in pins:
                pins[key] = pin_of(str(key))
            return pins[key]
        if (given := _given_passphrase(file)) is not None:
            return given
        if not asked:
            asked.append(_ask(f"Passphrase of {key}", confirm=False))
        return asked[0]

    return passphrase


def pin_of(token: str) -> bytes:
    """The PIN of a hardware token, which the question names by its URI or its file."""
    if (file := click.get_current_context().meta.get(_PIN_FILE)) is not None:
        return read_limited(file, _LONGEST_PASSPHRASE).rstrip(b"\r\n")
    if given := os.environb.get(_PIN_VARIABLE.encode()):
        return given
    sources = f"--pin-file or ${_PIN_VARIABLE}"
    return ask_secret(f"PIN for {token}", "PIN", sources, confirm=False)


def new_passphrase(file: Path | None) -> bytes:
    """For keys that are about to be made."""
    given = _given_passphrase(file)
    return _ask("Passphrase for the new keys", confirm=True) if given is None else given


def _given_passphrase(file: Path | None) -> bytes | None:
    """From the file, else from the environment; line ends after it do not belong to it."""
    if file is not None:
        return read_limited(file, _LONGEST_PASSPHRASE).rstrip(b"\r\n")
    return os.environb.get(_VARIABLE.encode()) or None


def _ask(question: str, *, confirm: bool) -> bytes:
    return ask_secret(question, "passphrase", f"--passphrase-file or ${_VARIABLE}", confirm=confirm)


def ask_secret(question: str, what: str, sources: str, *, confirm: bool) -> bytes:
    """Ask at the terminal; raises `KeyFileError` that names the other ``sources`` when there is none."""
    if not is_terminal():
        raise KeyFileError(what, f"is needed, and there is no terminal to ask at: use {sources}")
    answer: str = click.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True)
    return answer.encode()


def is_terminal() -> bool:
    """Whether somebody may be asked."""
    return sys.stdin.isatty()
