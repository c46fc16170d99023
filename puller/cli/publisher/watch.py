"""``puller site watch``: rollouts go on only while what hosts report of them is in order."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puller.cli.fleet.options import opened_store, store_option
from puller.cli.options import text_format_option
from puller.cli.output import say, show, warn
from puller.cli.publisher.options import passphrase_option, site_directory
from puller.cli.publisher.secrets import passphrase_of_keys
from puller.cli.publisher.sentences import next_step
from puller.exit_status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bundles.format.release import Release
    from bundles.publisher.site import Site
    from bundles.publisher.watch_rule import WatchRule
    from puller.fleet.store.reading import Reader
    from puller.fleet.watching.judging import Verdict


@click.command("watch")
@site_directory
@store_option
@click.option("--noop", is_flag=True, help="Say what would be halted, and sign nothing.")
@passphrase_option
@text_format_option
def watch(
    directory: Path, location: str, *, noop: bool, passphrase_file: Path | None, output_format: str
) -> int:
    """Halt the rollouts of the site DIR that hosts report no good of.

    Every rollout that is going on is judged by the hosts that have the release, or were to have it by now: how
    many of them failed, gave it up or were not heard of since. Beyond the limits of `watch` in site.yaml it
    is halted by a signed statement, as by `puller site halt`, or taken back as by `puller site back` where
    `may: back` says so. A rollout that is halted stays halted until somebody goes on with it, or publishes
    what mends it.

    To be run by a timer, after `puller fleet import` and before `puller fleet page`.

    \b
    Example:
      puller fleet import /srv/reports && puller site watch site
      puller site watch site --noop

    Exit status: 0 when every rollout may go on; 4 when one may not, or was halted before.
    """
    from bundles.publisher.site import Site

    site = Site(directory)
    rule = site.settings().watching
    with opened_store(location) as store:
        from datetime import UTC, datetime

        from puller.fleet.store.reading import Reader

        reader = Reader(store, datetime.now(UTC), rule.silent_after)
        found = [_judged(reader, release, channel, rule) for channel, release in _rollouts(site)]
    for one in found:
        if one.verdict.reasons and not (one.is_halted or one.done or noop):
            mates = [other for other in found if other is one or other.goes_with(one)]
            one.done = _act(site, one, [other.release.bundle for other in mates], rule, passphrase_file)
            for other in mates:
                other.done = one.done
    if output_format == "json":
        show([one.plain() for one in found], "json")
    else:
        _print(found, directory, noop=noop)
    return ExitStatus.FAILED if any(one.verdict.reasons or one.is_halted for one in found) else ExitStatus.OK


@dataclass
class _Watched:
    """A rollout, and the verdict about it."""

    channel: str
    release: "Release"
    verdict: "Verdict"
    is_halted: bool
    """Before this look."""
    reached: str
    done: str = ""
    """What was signed: ``halted`` or ``taken back``."""

    def goes_with(self, other: "_Watched") -> bool:
        """Whether both are of one wave, whose releases belong together."""
        mine, its = self.release.rollout, other.release.rollout
        wave = its.wave if its is not None else None
        is_of_it = wave is not None and mine is not None and mine.wave == wave and not mine.halted
        return is_of_it and self.channel == other.channel

    def plain(self) -> dict[str, Any]:
        return {
            "bundle": self.release.bundle,
            "version": self.release.version,
            "channel": self.channel,
            "reached": self.reached,
            "hosts": {str(became): count for became, count in self.verdict.counts.items()},
            "reasons": list(self.verdict.reasons),
            "halted_before": self.is_halted,
            "done": self.done,
        }


def _rollouts(site: "Site") -> "Iterator[tuple[str, Release]]":
    """The rollouts that have not reached all hosts, each with its channel."""
    published = site.published()
    for bundle in site.bundles(published):
        index = site.record_of(published, bundle).index
        for channel in sorted(index.channels):
            release = index.find(channel)
            if release is not None and release.rollout is not None:
                yield channel, release


def _judged(reader: "Reader", release: "Release", channel: str, rule: "WatchRule") -> _Watched:
    from bundles.format.release import shown_percent
    from puller.fleet.watching.judging import Verdict, judge
    from puller.fleet.watching.outcomes import outcomes_of

    rollout = release.rollout
    is_halted = rollout is not None and rollout.halted
    verdict = judge(outcomes_of(reader, release, channel, rule.kinds), rule)
    if rule.prometheus and not is_halted:
        from puller.fleet.watching.prometheus import failure_of

        if why := failure_of(rule.prometheus, rule.query):
            verdict = Verdict(verdict.counts, [*verdict.reasons, why])
    reached = shown_percent(rollout.reached(reader.now)) if rollout is not None else "100%"
    return _Watched(channel, release, verdict, is_halted, reached)


def _act(
    site: "Site", one: _Watched, bundles: list[str], rule: "WatchRule", passphrase_file: Path | None
) -> str:
    """Sign what the rule allows about all of a wave, then tell who is to be told; gives what was signed."""
    from bundles.publisher.channels import Channels
    from bundles.publisher.watch_rule import May

    done = ""
    if rule.may is not May.NOTHING:
        channels = Channels(site, passphrase_of_keys(passphrase_file))
        if (
            rule.may is May.BACK
            and one.release.rollout is not None
            and one.release.rollout.before is not None
        ):
            channels.roll_back_all(bundles, one.channel)
            done = "taken back"
        else:
            channels.halt_all(bundles, one.channel)
            done = "halted"
    _tell(one, done or "to be halted", rule)
    return done


def _tell(one: _Watched, done: str, rule: "WatchRule") -> None:
    from puller.fleet.watching.telling import tell_command, tell_url

    sentence = (
        f"{one.release} in channel {one.channel} is {done} at {one.reached}: {'; '.join(one.verdict.reasons)}"
    )
    if rule.command and (why := tell_command(rule.command, sentence)):
        warn(why)
    if rule.url and (why := tell_url(rule.url, {"text": sentence, **one.plain(), "done": done})):
        warn(why)


def _print(found: list[_Watched], directory: Path, *, noop: bool) -> None:
    for one in found:
        hosts = ", ".join(f"{count} {became}" for became, count in one.verdict.counts.items() if count)
        said = f"{one.release} in channel {one.channel}, {one.reached}: {hosts or 'no host has it yet'}"
        if one.is_halted:
            say(f"{said}; it is halted")
        elif one.verdict.reasons:
            say(f"{said}; {one.done or ('would be halted' if noop else 'is to be halted')}:")
        else:
            say(f"{said}; goes on")
        for reason in one.verdict.reasons:
            say(f"  {reason}")
    if not found:
        say(f"{directory}: no rollout is going on")
    if any(one.done for one in found):
        say(next_step(directory))
