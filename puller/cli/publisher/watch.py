"""``puller site watch``: rollouts continue only while hosts report no problems."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.errors import BundleError
from bundles.format.release import Release, shown_percent
from bundles.publisher.channels import Channels, reached_by
from bundles.publisher.settings import AutomaticStatement, WatchRule
from bundles.publisher.site import Site
from puller.cli.fleet.fleet import open_reader, opened_store, store_option
from puller.cli.options import noop_option, text_format_option
from puller.cli.output import say, show, warn
from puller.cli.publisher.push import finish_change, push_site
from puller.cli.publisher.site_options import passphrase_of_keys, passphrase_option, site_directory
from puller.errors import PullerError
from puller.exit_status import ExitStatus
from puller.fleet.watching import (
    Verdict,
    blindness,
    doubt_of,
    judge,
    last_heard,
    notify_by_command,
    notify_by_url,
    outcomes_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from puller.fleet.store.queries import Reader


@click.command("watch")
@site_directory
@store_option
@noop_option("Show the rollouts that would be halted, and sign nothing.")
@passphrase_option
@text_format_option
def watch(
    directory: Path, location: str, *, noop: bool, passphrase_file: Path | None, output_format: str
) -> int:
    """Halt rollouts that fail on hosts.

    Puller judges each active or recently completed rollout by its hosts: how many failed, gave up the release, or
    sent no report since. If a rollout exceeds the limits of `watch` in site.yaml, or no host sends reports, Puller
    halts it with a signed statement, as `puller site halt` does. With `may: back` in site.yaml, reported failures
    lead to a rollback, as `puller site back` does. A halted rollout stays halted until you resume it or publish a
    fix. With `grow` in site.yaml, a rollout without a schedule grows by a step if its hosts are in sync. Releases
    that were published since then stay unchanged.

    Run it with a timer, after `puller fleet import` and before `puller fleet page`.

    \b
    Example:
      puller fleet import /srv/reports && puller site watch site
      puller site watch site --noop

    Exit status: 0 if all rollouts may continue, 4 if a rollout is halted.
    """
    site = Site(directory)
    rule = site.settings().watching
    with opened_store(location) as store:
        reader = open_reader(store, rule.silent_after)
        results = [
            _judged(reader, release, channel, rule)
            for channel, release in _rollouts(site)
            if not _is_long_over(reader, release)
        ]
    for item in results:
        if item.verdict.reasons and not (item.is_halted or item.done or noop):
            mates = [other for other in results if other is item or other.belongs_to_wave_of(item)]
            _act(site, item, mates, rule, passphrase_file)
    if rule.grow and not noop:
        _grow(site, results, rule, passphrase_file)
    if output_format == "json":
        show([item.plain() for item in results], "json")
    else:
        _print(results, directory, noop=noop)
    if any(item.done for item in results):
        _push(site, directory, is_json=output_format == "json")
    return (
        ExitStatus.FAILED
        if any(item.verdict.reasons or item.is_halted for item in results)
        else ExitStatus.OK
    )


def _push(site: Site, directory: Path, *, is_json: bool) -> None:
    """Push the signed statements. In JSON output, the push prints its progress on standard error only."""
    if not is_json:
        finish_change(directory, changed=True, noop=False, no_push=False)
    elif site.settings().destination:
        push_site(site)


@dataclass
class _Watched:
    """A rollout, and its verdict."""

    channel: str
    release: Release
    verdict: "Verdict"
    is_halted: bool
    """Whether it was halted before this check."""
    reached: str
    heard: "datetime | None"
    """Time of the last report of any host of the channel."""
    done: str = ""
    """The signed action: ``halted``, ``taken back`` or ``grown to 15%``."""
    problem: str = ""
    """Why signing failed."""

    def belongs_to_wave_of(self, other: "_Watched") -> bool:
        """Return whether both belong to one wave, and this one may still be halted."""
        return self.is_beside(other) and not self.is_halted

    def is_beside(self, other: "_Watched") -> bool:
        """Return whether both belong to one wave, even if one is halted."""
        mine, its = self.release.rollout, other.release.rollout
        wave = its.wave if its is not None else None
        is_of_it = wave is not None and mine is not None and mine.wave == wave
        return is_of_it and self.channel == other.channel

    def plain(self) -> dict[str, Any]:
        return {
            "bundle": self.release.bundle,
            "version": self.release.version,
            "channel": self.channel,
            "reached": self.reached,
            "hosts": {str(result): count for result, count in self.verdict.counts.items()},
            "reasons": list(self.verdict.reasons),
            "halted_before": self.is_halted,
            "done": self.done,
            "problem": self.problem,
        }


def _is_long_over(reader: "Reader", release: Release) -> bool:
    """Return whether it reached all hosts so long ago that unreachable hosts are known to be silent.

    Later failures have other causes, and all hosts may have given up the previous release.
    """
    rollout = release.rollout
    if rollout is None or rollout.start is None or rollout.duration is None:
        return False
    return rollout.start + rollout.duration + 2 * reader.silent_after < reader.now


def _rollouts(site: "Site") -> "Iterator[tuple[str, Release]]":
    """Yield each release of a partial or completed rollout, with its channel."""
    published = site.published()
    for bundle in site.bundles(published):
        index = site.record_of(published, bundle).index
        for channel in sorted(index.channels):
            release = index.find(channel)
            if release is not None and release.rollout is not None:
                yield channel, release


def _judged(reader: "Reader", release: Release, channel: str, rule: WatchRule) -> _Watched:
    rollout = release.rollout
    is_halted = rollout is not None and rollout.halted
    outcomes, usual = outcomes_of(reader, release, channel, rule.kinds)
    verdict = judge(outcomes, rule, usual)
    if rule.prometheus and not is_halted and (doubt := doubt_of(rule.prometheus, rule.query)):
        is_reported = verdict.is_reported or doubt.is_reported
        verdict = Verdict(verdict.counts, [*verdict.reasons, doubt.why], is_reported)
    if not is_halted and (why := blindness(reader, release, channel)):
        verdict = Verdict(verdict.counts, [*verdict.reasons, why], verdict.is_reported)
    reached = shown_percent(rollout.reached(reader.now)) if rollout is not None else "100%"
    heard = last_heard(reader, release.bundle, channel)
    return _Watched(channel, release, verdict, is_halted, reached, heard)


def _act(
    site: "Site", item: _Watched, mates: list[_Watched], rule: WatchRule, passphrase_file: Path | None
) -> None:
    """Sign the actions that the rule allows for a whole wave, and send notifications, also about a failure to sign."""
    if rule.may is AutomaticStatement.NOTHING:
        _notify(item, "to be halted", rule)
        return
    try:
        signed = _sign(site, item, mates, rule, passphrase_file)
    except (BundleError, PullerError, click.ClickException, OSError, ValueError) as error:
        item.problem = str(error) or type(error).__name__
        warn(f"{item.release} in channel {item.channel} could not be halted: {item.problem}")
        _notify(item, f"to be halted, which failed ({item.problem}),", rule)
        return
    for mate in mates:
        mate.done = signed.get(mate.release.bundle, "")
    if item.done:
        _notify(item, item.done, rule)
    else:
        warn(
            f"{item.release} was judged, but channel {item.channel} has another release now, or it is already halted"
        )


def _sign(
    site: "Site", item: _Watched, mates: list[_Watched], rule: WatchRule, passphrase_file: Path | None
) -> dict[str, str]:
    """Return the signed action for each bundle: ``halted`` or ``taken back``."""
    # A silent host cannot receive a rollback either, and all other hosts may be in order.
    is_back = rule.may is AutomaticStatement.BACK and item.verdict.is_reported
    is_back = is_back and all(
        mate.release.rollout is not None and mate.release.rollout.before is not None for mate in mates
    )
    judged = {mate.release.bundle: mate.release.version for mate in mates}
    statements = Channels(site, passphrase_of_keys(passphrase_file)).stop_judged(
        judged, item.channel, back=is_back
    )
    text = "taken back" if is_back else "halted"
    return {bundle: text for bundle, statement in zip(judged, statements, strict=True) if statement.changed}


def _grow(site: "Site", rollouts: list[_Watched], rule: WatchRule, passphrase_file: Path | None) -> None:
    """Let each wave without problems grow by a step, when it is time."""
    for item in rollouts:
        mates = [other for other in rollouts if other is item or other.is_beside(item)]
        is_in_order = not any(
            mate.verdict.reasons or mate.is_halted or mate.done or mate.verdict.is_on_trial for mate in mates
        )
        if not is_in_order or item.release.rollout is None or item.release.rollout.percent is None:
            continue
        heard = min((mate.heard for mate in mates if mate.heard is not None), default=None)
        judged = {mate.release.bundle: mate.release.version for mate in mates}
        channels = Channels(site, passphrase_of_keys(passphrase_file))
        statements = channels.grow_judged(judged, item.channel, rule.grow, rule.each, heard)
        for mate, statement in zip(mates, statements, strict=True):
            if statement.changed and statement.after is not None:
                mate.done = f"grown to {shown_percent(reached_by(statement.after, statement.now))}"


def _notify(item: _Watched, done: str, rule: WatchRule) -> None:
    reasons = "; ".join(item.verdict.reasons)
    sentence = f"{item.release} in channel {item.channel} is {done} at {item.reached}: {reasons}"
    if rule.command and (why := notify_by_command(rule.command, sentence)):
        warn(why)
    if rule.url and (why := notify_by_url(rule.url, {"text": sentence, **item.plain(), "done": done})):
        warn(why)


def _print(rollouts: list[_Watched], directory: Path, *, noop: bool) -> None:
    for item in rollouts:
        hosts = ", ".join(f"{count} {result}" for result, count in item.verdict.counts.items() if count)
        text = f"{item.release} in channel {item.channel}, {item.reached}: {hosts or 'no host has it yet'}"
        if item.is_halted:
            say(f"{text}. It is halted")
        elif item.verdict.reasons:
            say(f"{text}; {item.done or ('would be halted' if noop else 'is to be halted')}:")
        else:
            say(f"{text}; goes on{f', {item.done}' if item.done else ''}")
        for reason in item.verdict.reasons:
            say(f"  {reason}")
    if not rollouts:
        say(f"{directory}: no active rollout")
