"""Options and output that several commands of ``puller site`` share.

Options select keys, channels and rollouts. The output describes a signed statement or a change of keys, and the next
step of the publisher.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.errors import PublishError
from bundles.format.index import parse_wave
from bundles.format.release import Release, shown_percent
from bundles.publisher.channels import RolloutRequest, Statement, is_under_way
from foundation.problems import ProblemCode
from foundation.quantities import counted, first_few
from foundation.timestamps import is_moment, minute_text, parse_moment, parse_until
from puller.cli.completing import channels_of_site
from puller.cli.options import Decorator, EndType, together
from puller.cli.output import say
from puller.cli.publisher.key_sources import KEYS_VARIABLE, PIN_FILE, PIN_VARIABLE

if TYPE_CHECKING:
    from bundles.publisher.publication import Publication
    from bundles.publisher.published import Changes


site_directory: Decorator = click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path))
_passphrase_file: Decorator = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Read the passphrase of the keys from FILE.  [default: ${KEYS_VARIABLE}, else a prompt]",
)


def _remember_pin_file(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    context.meta[PIN_FILE] = file


pin_option: Decorator = click.option(
    "--pin-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    expose_value=False,
    callback=_remember_pin_file,
    help=f"Read the PIN of a hardware token from FILE.  [default: ${PIN_VARIABLE}, else a prompt]",
)


passphrase_option = together(_passphrase_file, pin_option)
"""``--passphrase-file``, and ``--pin-file`` for ``key_sources``."""


uri_option: Decorator = click.option(
    "--uri",
    metavar="URI",
    help="The URI of a key in a token or key service: hsm:2?label=TOKEN, awskms:KEY_ID, hv:KEY, ...",
)

channel_option: Decorator = click.option(
    "--channel",
    metavar="CHANNEL",
    default="stable",
    show_default=True,
    shell_complete=channels_of_site,
    help="The channel of the hosts.",
)
percent_option: Decorator = click.option(
    "--percent",
    type=click.FloatRange(0, 100),
    metavar="NUMBER",
    help="Give the release to this share of the hosts first, with at most two decimals.",
)
over_option: Decorator = click.option(
    "--over",
    type=EndType(),
    help="Extend the rollout evenly to all hosts until this time: 90m, 24h, 2d or tomorrow.",
)
start_option: Decorator = click.option(
    "--start",
    metavar="WHEN",
    help="With --over: the start, such as 2026-11-20T22:00 (UTC without an offset) or tomorrow.  "
    "[default: now]",
)


wave_option: Decorator = click.option(
    "--wave",
    metavar="NAME",
    help="With --percent or --over: rollouts of the same wave reach the same hosts.",
)

rollout_options = together(percent_option, over_option, start_option, wave_option)
"""For a release that a channel will name, through ``rollout_request``."""


def rollout_request(
    percent: float | None,
    over: timedelta | datetime | None,
    start: str | None = None,
    wave: str | None = None,
) -> "RolloutRequest":
    """Return the rollout of ``rollout_options``, by default for all hosts at once. Raises ``click.UsageError``."""
    if wave is not None and percent is None and over is None:
        raise click.UsageError("--wave needs --percent or --over")
    if percent is not None and over is not None:
        raise click.UsageError("--percent and --over exclude each other")
    if start is not None and over is None:
        raise click.UsageError("--start needs --over, the time from there until all hosts are reached")
    now = datetime.now(UTC)
    moment = None if start is None else _start(start, now)
    duration = over - (moment or now) if isinstance(over, datetime) else over
    if duration is not None and duration <= timedelta():
        raise click.UsageError(f"--over must be after --start: {minute_text(moment or now)}")
    return RolloutRequest(percent, duration, moment, None if wave is None else parse_wave(wave))


def _start(text: str, now: datetime) -> datetime:
    try:
        return parse_moment(text) if is_moment(text) else parse_until(text, now)
    except ValueError as error:
        raise PublishError("--start", str(error), code=ProblemCode.INVALID_COMMAND) from None


# Output for the publisher.

_MOST_NAMED = 3
"""Number of files that a sentence names. Others are counted."""


def print_statements(
    statements: Sequence[Statement], details: str = "", additional: Sequence[str] = (), *, noop: bool = False
) -> None:
    """Print statements that were signed together, and ``additional`` lines. ``details`` describe the named release.

    With ``noop``, the statements are not signed.
    """
    for statement in statements:
        for line in _statement_lines(statement, details, noop=noop):
            say(line)
    for line in additional:
        say(line)


def _statement_lines(statement: Statement, details: str, *, noop: bool) -> Iterator[str]:
    before, after, channel, now = statement.before, statement.after, statement.channel, statement.now
    verb = "would be" if noop else "is"
    if after is None:
        verb = "would leave" if noop else "has left"
        yield f"{before} {verb} channel {channel}. Its hosts keep their version."
    elif not statement.changed:
        yield f"{after} is already in channel {channel}, {reach(after, now)}: unchanged"
    else:
        was = f", was {before.version}" if before and before.version != after.version else ""
        yield f"{after} {verb} in channel {channel}{was}, {reach(after, now)}{details}"
        yield from ended_rollout(statement)


def reach(release: Release, now: datetime) -> str:
    """Return the hosts of a release: ``for 10% of the hosts; other hosts run 1.3.0``."""
    rollout = release.rollout
    if rollout is None:
        return "for all hosts"
    others = (
        f"other hosts run {rollout.before.version}" if rollout.before else "other hosts keep their versions"
    )
    reached = shown_percent(rollout.reached(now))
    hosts = f"{reached} of the hosts" + (f" in wave {rollout.wave}" if rollout.wave else "")
    if rollout.halted:
        return f"halted at {hosts}; {others}"
    if rollout.start is None or rollout.duration is None:
        return f"for {hosts}; {others}"
    until = rollout.start + rollout.duration
    growing = f"growing from {minute_text(rollout.start)} to {minute_text(until)}"
    return f"for {hosts}, {growing}; {others}"


def ended_rollout(statement: Statement) -> Iterator[str]:
    """Yield a line about the hosts of a rollout that another release ends."""
    ended, after, now = statement.before, statement.after, statement.now
    if ended is None or after is None or ended.rollout is None or ended.version == after.version:
        return
    if is_under_way(ended, now):
        reached = shown_percent(ended.rollout.reached(now))
        yield f"The rollout of {ended} ends at {reached}: its hosts {_after_that(ended, after)}"


def _after_that(ended: Release, after: Release) -> str:
    if after.rollout is None:
        return f"get {after.version} as all others"
    if ended.rollout is None or ended.rollout.before is None:
        return f"stay on it until {after.version} reaches them"
    return f"roll back to {ended.rollout.before.version} until {after.version} reaches them"


def publication_line(publication: "Publication") -> str:
    """Return the line of a bundle: ``web 1.4.1 (was 1.4.0), changed: manifest.yaml; because of library common``."""
    after, before = publication.release, publication.before
    spread = [] if after.rollout is None else [reach(after, publication.statement.now)]
    if not publication.changed:
        return f"{after.bundle} unchanged ({', '.join([after.version, *spread])})"
    changes = [changes_sentence(publication.changes)] if publication.changes else []
    details = "; ".join([*changes, *spread])
    return f"{after} ({f'was {before}' if before else 'new'}){', ' if details else ''}{details}"


def changes_sentence(changes: "Changes") -> str:
    """Return the changed files of a bundle: ``changed: manifest.yaml, +2 files; because of library common``."""
    own, libraries = changes.own(), changes.libraries
    named = list(own.changed[:_MOST_NAMED])
    if additional := len(own.changed) - len(named):
        named.append(f"{additional} more")
    named += [
        f"{sign}{counted(len(paths), 'file')}"
        for sign, paths in (("+", own.added), ("-", own.removed))
        if paths
    ]
    pieces = [f"changed: {', '.join(named)}"] if named else []
    if libraries:
        pieces.append(
            f"because of {'library' if len(libraries) == 1 else 'libraries'} {first_few(libraries)}"
        )
    return "; ".join(pieces)


def print_list(sentences: list[str]) -> None:
    """Print sentences, one line each."""
    for sentence in sentences:
        say(f"  - {sentence}")
