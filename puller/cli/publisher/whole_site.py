"""``puller site init``, ``list``, ``refresh``, ``verify`` and ``serve``: commands for a site as a whole."""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bundles.errors import SettingsError
from bundles.publisher.channels import reached_by
from bundles.publisher.lifecycle import make_site, plan_refresh, refresh_site
from bundles.publisher.publication import PublishedData, published_data
from bundles.publisher.settings import DEFAULT_LIFETIMES
from bundles.publisher.site import Listed, RoleStatus, Site
from bundles.publisher.verification import verify_site
from bundles.publisher.web_server import open_server
from foundation.problems import ProblemCode
from foundation.timestamps import iso_text, minute_text, zulu_text
from puller.cli.options import noop_option, text_format_option
from puller.cli.output import print_table, say, show
from puller.cli.publisher.changes import finish_change, no_push_option
from puller.cli.publisher.key_sources import new_passphrase, passphrase_of_keys
from puller.cli.publisher.prune import plain_history, print_versions
from puller.cli.publisher.site_options import passphrase_option, reach, site_directory
from puller.cli.results import print_result_of
from puller.reporting.results import SiteRole, SiteVerifyResult

_DEFAULTS = ", ".join(f"{role}={lifetime}" for role, lifetime in DEFAULT_LIFETIMES.items())


@click.command("init")
@site_directory
@passphrase_option
@click.option(
    "--no-passphrase", is_flag=True, help="Store the keys unencrypted. Anyone who can read them can publish."
)
@click.option(
    "--expiry",
    multiple=True,
    metavar="ROLE=DURATION",
    help="How long signatures of a role last: timestamp=2d.  [default: " + _DEFAULTS + "]",
)
def init(directory: Path, passphrase_file: Path | None, no_passphrase: bool, expiry: tuple[str, ...]) -> None:
    """Create a new site in DIR with new keys.

    Choose a long passphrase. It protects the keys if someone copies their files.

    Hosts reject expired metadata, so an attacker cannot hide new releases from them. `puller site refresh` renews the
    signatures. Run it with a timer before the timestamp expires. The lifetimes are in DIR/site.yaml.

    \b
    Example:
      puller site init site
      puller site init site --passphrase-file /root/site.pass --expiry timestamp=2d
    """
    if no_passphrase and passphrase_file is not None:
        raise click.UsageError("--no-passphrase and --passphrase-file exclude each other")
    passphrase = None if no_passphrase else new_passphrase(passphrase_file)
    made = make_site(directory, passphrase, dict(_lifetime(text) for text in expiry))
    how = "NOT encrypted: every reader of these files can publish" if passphrase is None else "encrypted"
    say(f"{directory}: a new site. Its keys are in {directory / 'keys'}, {how}")
    say("Next:")
    say(f"  copy {made.anchor} to /etc/puller/root.json on each host")
    say(f"  puller site publish {directory} BUNDLE --version 1.0.0")


@click.command("list")
@site_directory
@click.option(
    "--all", "every", is_flag=True, help="List all versions that were ever published, and their files."
)
@text_format_option
def list_(directory: Path, output_format: str, *, every: bool) -> None:
    """Show the releases of the site, and when its signatures expire.

    With --all, list all versions of each bundle. `puller site history` shows when each channel named a version.

    In JSON, `reached` is the share of the hosts in percent, and `rollout` has the format of the signed index.
    """
    made, now = Site(directory), datetime.now(UTC)
    if every:
        _list_versions(made, output_format)
        return
    published = made.published()  # once: the bins of a large site take a while to verify
    releases, documents = made.releases(published), published_data(made, published)
    roles = made.roles(published)
    if output_format == "json":
        listed = {
            "releases": [_listed(item, now) for item in releases],
            "data": list(map(_plain_data, documents)),
        }
        show(listed | {"roles": _plain_roles(roles)}, "json")
        return
    if releases:
        head = ("CHANNEL", "BUNDLE", "VERSION", "SHA256", "SIZE", "HOSTS")
        print_table(head, [_row(item, now) for item in releases])
    elif not documents:
        say(f"{directory}: nothing is published yet")
    if documents:
        if releases:
            click.echo()
        rows = [
            (each.name, f"{each.published:%Y-%m-%d %H:%M:%S} UTC", each.sha256[:12], str(each.size))
            for each in documents
        ]
        print_table(("SITE DATA", "PUBLISHED", "SHA256", "SIZE"), rows)
    click.echo()
    _print_roles(roles)


@click.command("refresh")
@site_directory
@noop_option("Show the roles that would be signed, and sign nothing.")
@no_push_option
@passphrase_option
def refresh(directory: Path, *, noop: bool, no_push: bool, passphrase_file: Path | None) -> None:
    """Renew the signatures of the site before they expire.

    The timestamp is always signed again. Other metadata are signed again after two thirds of their lifetime. The
    releases stay the same.

    \b
    Example, daily, by cron or a systemd timer on the machine that publishes:
      puller site refresh site --passphrase-file /root/site.pass &&
        puller site push site www:/srv/www/puller
    """
    made = Site(directory)
    passphrase = passphrase_of_keys(passphrase_file)
    renewal = plan_refresh(made, passphrase) if noop else refresh_site(made, passphrase)
    say(f"{directory}: {'would sign' if noop else 'signed'} again: {', '.join(renewal.signed)}")
    for role, why in renewal.due.items():
        say(f"{directory}: {role} expires soon, and {why}", err=True)
    _print_roles(made.roles())
    if noop or made.settings().destination:
        finish_change(directory, changed=True, noop=noop, no_push=no_push)


@click.command("verify")
@site_directory
@text_format_option
def verify(directory: Path, output_format: str) -> int:
    """Check the signatures, the expiry and all files of the site."""
    if output_format == "json":
        return print_result_of(SiteVerifyResult, lambda: _verified(directory))
    made = Site(directory)
    result = verify_site(made)
    shown = f"{result.targets} published files, {result.size} bytes, and {result.files} of bundles one by one"
    say(f"{made.public}: {shown}: all are as signed")
    _print_roles(result.roles)
    return 0


def _verified(directory: Path) -> SiteVerifyResult:
    verification = verify_site(Site(directory))
    return SiteVerifyResult(
        directory=str(directory),
        targets=verification.targets,
        files=verification.files,
        size=verification.size,
        roles=[
            SiteRole(role=role.role, version=role.version, expires=iso_text(role.expires))
            for role in verification.roles
        ],
    )


@click.command("serve")
@site_directory
@click.option(
    "--address", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to listen on."
)
@click.option(
    "--port",
    metavar="PORT",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port. 0 selects a free port.",
)
def serve(directory: Path, address: str, port: int) -> None:
    """Serve DIR/public over HTTP for tests. Stop with Ctrl-C.

    Do not use it in production. Any web server for static files is better.
    """
    made = Site(directory)
    try:
        server = open_server(made.public, address, port)
    except OSError as error:
        raise SettingsError(
            f"{address}:{port}", f"cannot listen: {error.strerror}", code=ProblemCode.SYSTEM_ERROR
        ) from None
    with server:
        say(f"{made.public} is at http://{address}:{server.server_port}/")
        _log_requests()
        server.serve_forever()


def _list_versions(made: "Site", output_format: str) -> None:
    published = made.published()
    records = [made.record_of(published, bundle) for bundle in made.bundles(published)]
    if output_format == "json":
        show({record.index.bundle: plain_history(record) for record in records}, "json")
    elif records:
        print_versions(records)
    else:
        say(f"{made.directory}: nothing is published yet")


def _lifetime(text: str) -> tuple[str, str]:
    role, equals, duration = text.partition("=")
    if not equals:
        raise click.BadParameter(
            f"{text!r}, expected ROLE=DURATION such as timestamp=2d", param_hint="--expiry"
        )
    return role, duration


def _row(item: Listed, now: datetime) -> tuple[str, ...]:
    release = item.release
    hosts = reach(release, now).removeprefix("for ")
    return item.channel, release.bundle, release.version, item.sha256[:12], f"{item.size} bytes", hosts


def _listed(item: Listed, now: datetime) -> dict[str, Any]:
    release = item.release
    return {
        "channel": item.channel,
        "bundle": release.bundle,
        "version": release.version,
        "sha256": item.sha256,
        "size": item.size,
        "reached": reached_by(release, now),
        "rollout": release.fields().get("rollout"),
    }


def _plain_data(document: PublishedData) -> dict[str, Any]:
    published = zulu_text(document.published)
    return {"name": document.name, "published": published, "sha256": document.sha256, "size": document.size}


def _plain_roles(roles: list[RoleStatus]) -> list[dict[str, Any]]:
    return [{"role": role.role, "version": role.version, "expires": iso_text(role.expires)} for role in roles]


def _print_roles(roles: list[RoleStatus]) -> None:
    rows = [(role.role, str(role.version), minute_text(role.expires), _left(role.expires)) for role in roles]
    print_table(("ROLE", "VERSION", "EXPIRES", ""), rows)


def _left(expires: datetime) -> str:
    remaining = expires - datetime.now(UTC)
    if remaining.total_seconds() < 0:
        return "has expired: puller site refresh"
    return (
        f"in {remaining.days} days"
        if remaining.days > 1
        else f"in {remaining.total_seconds() / 3600:.0f} hours"
    )


def _log_requests() -> None:
    logger = logging.getLogger("bundles.publisher.web_server")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)
