"""Options and inputs that the commands of ``puller site`` share: sites, channels, rollouts, keys, passphrases and PINs.

Options select keys, channels and rollouts. The output describes a signed statement or a change of keys, and the next
step of the publisher.

* Passphrases of key files and PINs of hardware tokens come from a file, else from the environment, else from a
  prompt.
* Line ends after the secret in a file are removed.
* Prompts require a terminal. A command prompts once for all key files, and once for each token.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bundles.errors import KeyFileError, PublishError
from bundles.filesystem.atomic import read_limited
from bundles.format.index import parse_wave
from bundles.format.release import LONGEST_TRIAL, MOST_RUNS, Release, Runs, TrialRule, shown_percent
from bundles.publisher.channels import RolloutRequest, Statement, is_under_way
from bundles.publisher.roles import RoleKeys
from bundles.publisher.signing_keys import (
    NewKey,
    Passphrase,
    Signer,
    import_key,
    is_encrypted,
    load_public_key,
    load_signer,
    make_key,
    open_token,
    token_key,
)
from bundles.publisher.site import Site
from foundation.problems import ProblemCode
from foundation.quantities import counted, first_few
from foundation.times import Duration, is_moment, minute_text, parse_moment, parse_until
from puller.cli.completing import offer
from puller.cli.options import Decorator, DurationType, EndType, together
from puller.cli.output import say
from puller.cli.publisher.site import with_site

if TYPE_CHECKING:
    from bundles.publisher.publication import Publication
    from bundles.publisher.published import Changes


# Shell completion of bundles, channels and versions of a site.


@offer
def bundles_of_site(context: click.Context) -> Iterable[str]:
    """Return the bundles of the preceding site argument."""
    return Site(Path(context.params["directory"])).bundles()


@offer
def channels_of_site(context: click.Context) -> Iterable[str]:
    """Return the channels of the preceding site argument."""
    indexes = Site(Path(_site_words(context)[0])).indexes()
    return [channel for index in indexes.of.values() for channel in index.channels]


@offer
def versions_of_site(context: click.Context) -> Iterable[str]:
    """Return the published versions of the preceding bundle arguments of a site."""
    directory, *bundles = _site_words(context)
    site = Site(Path(directory))
    return [version for bundle in bundles for version in site.record(bundle).index.releases]


def _site_words(context: click.Context) -> list[str]:
    """Return DIR and the other arguments of a line that ends with an option without its value.

    click has not assigned the arguments of such a line yet.
    """
    return with_site(context.command, list(context.args), is_complete=False)


# Passphrases and PINs.

KEYS_VARIABLE = "PULLER_PASSPHRASE"
NEW_KEYS_VARIABLE = "PULLER_NEW_PASSPHRASE"
PIN_VARIABLE = "PULLER_PIN"
PIN_FILE = "puller.pin_file"
"""Key of ``click.Context.meta`` with the value of ``--pin-file``, because tokens are opened far from command
parameters.
"""

_LONGEST = 64 * 1024
"""Maximum bytes of a file with a secret."""


def passphrase_of_keys(file: Path | None) -> Passphrase:
    """Return a function that returns the passphrase of an existing key. It prompts once for all keys.

    Each token has its own PIN. The function raises ``KeyFileError`` if a prompt is impossible.
    """
    requested: list[bytes] = []
    pins: dict[Path, bytes] = {}

    def passphrase(key: Path) -> bytes:
        if key.suffix == ".uri":  # the file of a token contains only the location of the key
            if key not in pins:
                pins[key] = pin_of(str(key))
            return pins[key]
        if (provided := _given(file, KEYS_VARIABLE)) is not None:
            return provided
        if not requested:
            requested.append(_ask_passphrase(f"Passphrase of {key}", confirm=False))
        return requested[0]

    return passphrase


def new_passphrase(file: Path | None) -> bytes:
    """Return the passphrase for new keys. Raises ``KeyFileError`` if a prompt is impossible."""
    provided = _given(file, KEYS_VARIABLE)
    return _ask_passphrase("Passphrase for the new keys", confirm=True) if provided is None else provided


def changed_passphrase(file: Path | None) -> bytes:
    """Return the new passphrase of existing keys. Raises ``KeyFileError`` if a prompt is impossible."""
    if (provided := _given(file, NEW_KEYS_VARIABLE)) is not None:
        return provided
    sources = f"--new-passphrase-file or ${NEW_KEYS_VARIABLE}"
    return _ask("New passphrase of the keys", "new passphrase", sources, confirm=True)


def pin_of(token: str) -> bytes:
    """Return the PIN of a hardware token. The prompt names its URI or its file."""
    if (provided := _given(click.get_current_context().meta.get(PIN_FILE), PIN_VARIABLE)) is not None:
        return provided
    return _ask(f"PIN for {token}", "PIN", f"--pin-file or ${PIN_VARIABLE}", confirm=False)


def is_terminal() -> bool:
    """Return whether a prompt is possible."""
    return sys.stdin.isatty()


def _given(file: Path | None, variable: str) -> bytes | None:
    if file is not None:
        return read_limited(file, _LONGEST).rstrip(b"\r\n")
    # As bytes, because a passphrase need not be text in the encoding of this locale.
    return os.environb.get(variable.encode()) or None


def _ask_passphrase(question: str, *, confirm: bool) -> bytes:
    return _ask(question, "passphrase", f"--passphrase-file or ${KEYS_VARIABLE}", confirm=confirm)


def _ask(question: str, description: str, sources: str, *, confirm: bool) -> bytes:
    """Prompt at the terminal. Without a terminal, raise ``KeyFileError`` with the alternative ``sources``."""
    if not is_terminal():
        raise KeyFileError(description, f"is required, and there is no terminal for a prompt: use {sources}")
    # On stderr, because stdout may be a file: `puller site keys public > alice.pub`.
    answer: str = click.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True)
    return answer.encode()


def role_keys(directory: Path, passphrase_file: Path | None = None) -> "RoleKeys":
    """Return the roles of a site with their keys. The options provide the passphrase."""
    return RoleKeys(Site(directory), passphrase_of_keys(passphrase_file))


def key_maker(
    roles: "RoleKeys", uri: str | None, public: Path | None, no_passphrase: bool, passphrase_file: Path | None
) -> Callable[[], NewKey]:
    """Return the function that makes or fetches a new key, according to the options. Raises ``click.UsageError``."""
    if sum((uri is not None, public is not None, no_passphrase)) > 1:
        raise click.UsageError("--uri, --public and --no-passphrase exclude each other")
    if uri is not None:
        return lambda: token_key(uri, _pin_once(uri))
    if public is not None:
        return lambda: load_public_key(public)
    passphrase = None if no_passphrase else _shared_passphrase(roles, passphrase_file)
    return lambda: make_key(passphrase)


def _shared_passphrase(roles: "RoleKeys", passphrase_file: Path | None) -> bytes:
    """Return the passphrase of the existing keys, so that one passphrase opens all.

    Raises ``KeyFileError`` if it is wrong.
    """
    encrypted = [path for path in sorted(roles.site.keys.glob("*.pem")) if is_encrypted(path)]
    if not encrypted:
        return new_passphrase(passphrase_file)
    load_signer(encrypted[0], roles.passphrase)
    return roles.passphrase(encrypted[0])


def signer_of(file: Path | None, uri: str | None, passphrase_file: Path | None) -> Signer:
    """Return the signer of ``--key`` or ``--uri``. Raises ``click.UsageError`` unless exactly one is given."""
    if file is not None and uri is None:
        return load_signer(file, passphrase_of_keys(passphrase_file))
    if uri is None or file is not None:
        raise click.UsageError("expected one of --key and --uri")
    pin = _pin_once(uri)
    return open_token(*import_key(uri, pin), pin)


def _pin_once(uri: str) -> "Callable[[], bytes]":
    # The PIN is needed twice, to find a key in a token and to open it. One prompt is enough.
    return functools.cache(functools.partial(pin_of, uri))


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
"""``--passphrase-file``, and ``--pin-file`` for the sources of keys."""


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

trial_options: Decorator = together(
    click.option(
        "--trial",
        "trial_duration",
        type=DurationType(above_zero=False),
        metavar="DURATION",
        help="How long the release stays on trial on each host.  [default: the rule of the bundle]",
    ),
    click.option(
        "--trial-runs",
        type=click.IntRange(1, MOST_RUNS),
        metavar="NUMBER",
        help="How many runs in order the trial needs.  [default: the rule of the bundle]",
    ),
)
"""The options for ``trial_rule``."""


def trial_rule(duration: timedelta | None, runs: int | None) -> TrialRule | None:
    """Return the rule of ``trial_options``, or ``None``. Raises ``click.UsageError``."""
    if duration is not None and (duration.microseconds or duration > timedelta(seconds=LONGEST_TRIAL)):
        raise click.UsageError(f"--trial must be whole seconds, at most {Duration(LONGEST_TRIAL).text}")
    if duration is None and runs is None:
        return None
    seconds = None if duration is None else Duration(duration.total_seconds())
    return TrialRule(seconds, None if runs is None else Runs(runs))


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
    """Return the hosts of a release, and its trial: ``for 10% of the hosts; other hosts run 1.3.0``."""
    trial = f"; on trial {release.trial}" if release.trial is not None else ""
    return f"{_hosts_of(release, now)}{trial}"


def _hosts_of(release: Release, now: datetime) -> str:
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
    is_plain = after.rollout is None and after.trial is None
    spread = [] if is_plain else [reach(after, publication.statement.now)]
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
