"""The end of a command that has changed a site: its result, and the push or the next step."""

from pathlib import Path

import click

from bundles.publisher.roles import Outcome
from bundles.publisher.site import Site
from foundation.quantities import counted
from puller.cli.options import Decorator
from puller.cli.output import say
from puller.cli.publisher.push import destination_of, push_site, up_to_date
from puller.cli.publisher.site_options import print_list

no_push_option: Decorator = click.option(
    "--no-push", is_flag=True, help="Do not push to the destination in site.yaml."
)


def require_destination(directory: Path) -> None:
    """Raise ``UsageError`` if the settings of a site have no destination."""
    destination_of(Site(directory), None)


def finish_change(directory: Path, *, changed: bool, noop: bool, no_push: bool) -> None:
    """Push a site after a change, if its settings have a destination. Otherwise print the next step.

    The push also follows an unchanged statement, because the push of an earlier one may have failed.
    """
    site = Site(directory)
    destination = "" if no_push else site.settings().destination
    if noop:
        if destination:
            say(f"{destination}: would be pushed")
        say(f"Dry run: nothing was signed{' or pushed' if destination else ''}.")
    elif destination:
        if (steps := push_site(site)).is_empty:
            say(f"{destination}: {up_to_date(steps)}")
    elif changed:
        say(next_step(directory))


def next_step(directory: Path) -> str:
    """Return the advice after every change: push the public part to the web servers."""
    destination = "" if Site(directory).settings().destination else " www:/srv/www/puller"
    return f"Next:\n  puller site push {directory}{destination}"


def finish_key_change(directory: Path, outcome: Outcome, *, no_push: bool = False) -> None:
    """Print the result of a change of keys, and push the site or print the next step."""
    if not outcome.changes:
        say(f"{directory}: unchanged")
        return
    if outcome.void:
        count = counted(outcome.void, "signature is", "signatures are")
        say(f"{directory}: this change joins the pending change, so {count} void")
    if outcome.pending:
        say(f"{directory}: NOT in force yet. This change of the root waits for signatures:")
    else:
        say(f"{directory}: in force, signed again: {', '.join(outcome.signed)}")
    print_list(outcome.changes)
    for sentence in outcome.pending:
        say(f"Missing: {sentence}")
    for sentence in dict.fromkeys(outcome.failures):
        say(sentence, err=True)
    for path in outcome.retired:
        say(f"{path}: an unused key. Delete it when you no longer need it.")
    if outcome.pending:
        say(f"Next:\n  puller site root export {directory} next-root.json")
    else:
        finish_change(directory, changed=True, noop=False, no_push=no_push)
