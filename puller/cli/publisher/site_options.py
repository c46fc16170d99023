"""Options and output that several commands of ``puller site`` share.

Options select keys, channels and rollouts. The output describes a signed statement or a change of keys, and the next
step of the publisher.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.errors import PublishError
from bundles.first_few import first_few
from bundles.format.index import parse_wave
from bundles.format.release import Release, shown_percent
from bundles.publisher.channels import RolloutRequest, Statement, is_under_way
from foundation.problems import ProblemCode
from foundation.quantities import counted
from foundation.timestamps import minute_text, parse_moment
from puller.cli.options import DURATION, Decorator, together
from puller.cli.output import say
from puller.cli.publisher.key_sources import KEYS_VARIABLE, PIN_FILE, PIN_VARIABLE

if TYPE_CHECKING:
    from bundles.publisher.publication import Publication
    from bundles.publisher.published import Changes
    from bundles.publisher.roles import Outcome


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
"""``--passphrase-file``, and ``--pin-file`` for ``key_sources``."""


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
"""For a release that a channel will name, through ``rollout_request``."""


def rollout_request(
    percent: float | None, over: timedelta | None, start: str | None = None, wave: str | None = None
) -> "RolloutRequest":
    """Return the rollout of ``rollout_options``, by default for all hosts at once. Raises ``click.UsageError``."""
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


# Output for the publisher.

_MOST_NAMED = 3
"""Number of files that a sentence names. Others are counted."""


def print_statement(
    directory: Path, statement: Statement, details: str = "", more: Sequence[str] = ()
) -> None:
    """Print a statement about a release, and the next step. ``details`` describe the named release."""
    print_statements(directory, [statement], details, more)


def print_statements(
    directory: Path, statements: Sequence[Statement], details: str = "", more: Sequence[str] = ()
) -> None:
    """Print statements that were signed together, ``more`` lines, and the next step."""
    for statement in statements:
        for line in _statement_lines(statement, details):
            say(line)
    for line in more:
        say(line)
    if any(statement.changed for statement in statements):
        say(next_step(directory))


def _statement_lines(statement: Statement, details: str) -> Iterator[str]:
    before, after, channel, now = statement.before, statement.after, statement.channel, statement.now
    if after is None:
        yield f"{before} is no longer in channel {channel}: its hosts keep what they have"
    elif not statement.changed:
        yield f"{after} is in channel {channel} already, {reach(after, now)}: nothing to do"
    else:
        was = f", was {before.version}" if before and before.version != after.version else ""
        yield f"{after} is in channel {channel}{was}, {reach(after, now)}{details}"
        yield from ended_rollout(statement)


def reach(release: Release, now: datetime) -> str:
    """Return the hosts of a release: ``for 10% of the hosts; the others run 1.3.0``."""
    rollout = release.rollout
    if rollout is None:
        return "for all hosts"
    others = (
        f"the others run {rollout.before.version}" if rollout.before else "the others keep what they have"
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


def next_step(directory: Path) -> str:
    """Return the advice after every change: push the public part to the web servers."""
    return f"Next:\n  puller site push {directory} www:/srv/www/puller"


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
    if more := len(own.changed) - len(named):
        named.append(f"{more} more")
    named += [
        f"{sign}{counted(len(paths), 'file')}"
        for sign, paths in (("+", own.added), ("-", own.removed))
        if paths
    ]
    parts = [f"changed: {', '.join(named)}"] if named else []
    if libraries:
        parts.append(f"because of {'library' if len(libraries) == 1 else 'libraries'} {first_few(libraries)}")
    return "; ".join(parts)


def print_outcome(directory: Path, outcome: "Outcome") -> None:
    """Print the result of a change of keys, and the next step."""
    if not outcome.changes:
        say(f"{directory}: is so already: nothing to do")
        return
    if outcome.void:
        count = counted(outcome.void, "signature is", "signatures are")
        say(f"{directory}: this joins the change that was pending; {count} void: it says more now")
    if outcome.pending:
        say(f"{directory}: NOT in force yet; this change of the root waits for signatures:")
    else:
        say(f"{directory}: in force; signed anew: {', '.join(outcome.signed)}")
    print_list(outcome.changes)
    for sentence in outcome.pending:
        say(f"Missing: {sentence}")
    for sentence in dict.fromkeys(outcome.failures):
        say(sentence, err=True)
    for path in outcome.retired:
        say(f"{path}: a key that is not used any more; it is kept, delete it when nothing needs it")
    exporting = f"Next:\n  puller site root export {directory} next-root.json"
    say(exporting if outcome.pending else next_step(directory))


def print_list(sentences: list[str]) -> None:
    """Print sentences, one line each."""
    for sentence in sentences:
        say(f"  - {sentence}")
