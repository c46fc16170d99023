"""``puller site init``, ``list``, ``history``, ``refresh``, ``verify``, ``prune`` and ``serve``: a site as a whole."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.errors import PublishError, SettingsError
from bundles.format.fields import parse_name
from bundles.format.index import named_by
from bundles.publisher.channels import reached_by
from bundles.publisher.lifecycle import make_site, plan_refresh, refresh_site, verify_site
from bundles.publisher.pruning import Pruned, plan_pruning, prune_site
from bundles.publisher.publication import PublishedData, published_data
from bundles.publisher.settings import DEFAULT_LIFETIMES
from bundles.publisher.site import Listed, RoleStatus, Site
from bundles.publisher.web_server import open_server
from foundation.problems import ProblemCode
from foundation.quantities import counted, size_text
from foundation.times import iso_text, minute_text, zulu_text
from puller.cli.options import DURATION, noop_option, text_format_option
from puller.cli.output import print_result_of, print_table, say, show
from puller.cli.publisher.push import finish_change, no_push_option
from puller.cli.publisher.site_options import (
    bundles_of_site,
    new_passphrase,
    passphrase_of_keys,
    passphrase_option,
    reach,
    site_directory,
)
from puller.reporting.results import SiteRole, SiteVerifyResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bundles.format.index import ChannelEntry, History, Version
    from bundles.publisher.published import Record
    from bundles.publisher.settings import PruningRule


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

    In JSON, `reached` is the share of the hosts in percent, and `rollout` and `trial` have the format of the
    signed index.
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
        "trial": release.fields().get("trial"),
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


_HEAD = ("BUNDLE", "VERSION", "PUBLISHED", "SIZE", "CHANNELS", "FILES")


@click.command("prune")
@site_directory
@click.option(
    "--versions",
    type=click.IntRange(1),
    metavar="N",
    help="The number of latest versions of each bundle to keep.  [default: prune in site.yaml, else 20]",
)
@click.option(
    "--after",
    type=DURATION,
    help="How long to keep unreferenced versions: 12h, 90d.  [default: prune in site.yaml, else 90d]",
)
@noop_option("Show the files that would be deleted, and change nothing.")
@passphrase_option
@text_format_option
def prune(
    directory: Path,
    versions: int | None,
    after: timedelta | None,
    *,
    noop: bool,
    passphrase_file: Path | None,
    output_format: str,
) -> None:
    """Delete unneeded versions and files from the site.

    A version is deleted if no channel and no rollout names it, it is not the previous version of a channel, it is not
    among the latest versions, and no channel has named it for the time of --after. The command first signs the list of
    pruned versions. The archives are deleted after all timestamps that lead hosts to them have expired. The command
    also deletes metadata of earlier editions and files of killed publishers. It keeps all roots. `puller site history`
    still lists pruned versions.

    Each publication and each refresh also prunes, unless `prune` in DIR/site.yaml contains `automatic: false`.

    \b
    Example:
      puller site prune site --noop
      puller site prune site --versions 5 --after 30d
    """
    site = Site(directory)
    rule = _rule(site, versions, after)
    pruned = plan_pruning(site, rule) if noop else prune_site(site, rule, passphrase_of_keys(passphrase_file))
    if output_format == "json":
        show(_plain(pruned, noop=noop), "json")
        return
    for line in _lines(directory, pruned, noop=noop):
        say(line)


@click.command("history")
@site_directory
@click.argument("bundle", shell_complete=bundles_of_site)
@text_format_option
def history(directory: Path, bundle: str, output_format: str) -> None:
    """Show the versions of BUNDLE, and when each channel named them.

    Pruned versions are listed, too. They cannot be published again with other contents.

    \b
    Example:
      puller site history site web
    """
    record = Site(directory).record(parse_name(bundle))
    if not record.history.versions:
        raise PublishError(bundle, f"was never published in {directory}", code=ProblemCode.NOT_PUBLISHED)
    if output_format == "json":
        show(
            {"bundle": bundle, **plain_history(record), "statements": _plain_statements(record.history)},
            "json",
        )
        return
    print_versions([record])
    click.echo()
    print_table(("WHEN", "CHANNEL", "SAID"), [_row_of_statement(text) for text in record.history.statements])


def print_versions(records: "list[Record]") -> None:
    """Print all versions of some bundles that were ever published."""
    print_table(_HEAD, [_history_row(record, version) for record in records for version in _versions(record)])


def plain_history(record: "Record") -> dict[str, Any]:
    """Return the versions of a bundle, for programs."""
    return {
        "versions": [
            {
                "version": version.version,
                "published": iso_text(version.published),
                "sha256": version.artifact.archive.sha256,
                "size": version.artifact.archive.length,
                "channels": _channels(record, version.version),
                "pruned": version.pruned and iso_text(version.pruned),
            }
            for version in _versions(record)
        ]
    }


def _rule(site: "Site", versions: int | None, after: timedelta | None) -> "PruningRule":
    rule = site.settings().pruning
    if versions is not None:
        rule = replace(rule, versions=versions)
    return rule if after is None else replace(rule, after=after)


def _lines(directory: Path, pruned: Pruned, *, noop: bool) -> "Iterator[str]":
    swept, would = pruned.swept, "would be " if noop else ""
    for bundle, versions in pruned.versions.items():
        for version in versions:
            size = size_text(version.artifact.archive.length)
            yield f"{bundle} {version.version} {would or 'is '}pruned, {size}, published {_day(version)}"
    if swept.removed:
        yield f"{directory}: {_files(swept.removed)} that no host can ask for {would or 'are '}removed"
    if swept.waiting and swept.until:
        when = minute_text(swept.until)
        yield f"{directory}: {_files(swept.waiting)} stay until no host can be led to them, the last until {when}"
    if not (pruned.versions or swept.removed or swept.waiting):
        yield f"{directory}: nothing to prune"


def _plain(pruned: Pruned, *, noop: bool) -> dict[str, Any]:
    swept = pruned.swept
    return {
        "noop": noop,
        "versions": [
            {"bundle": bundle, "version": version.version, "size": version.artifact.archive.length}
            for bundle, versions in pruned.versions.items()
            for version in versions
        ],
        "removed": [{"path": path, "size": size} for path, size in swept.removed.items()],
        "waiting": [{"path": path, "size": size} for path, size in swept.waiting.items()],
        "until": swept.until and swept.until.isoformat(),
    }


def _files(files: "Mapping[str, int]") -> str:
    return f"{counted(len(files), 'file')} ({size_text(sum(files.values()))})"


def _versions(record: "Record") -> "list[Version]":
    return list(record.history.versions.values())


def _history_row(record: "Record", version: "Version") -> tuple[str, ...]:
    channels = ", ".join(_channels(record, version.version)) or "-"
    files = "there" if version.pruned is None else f"pruned {version.pruned:%Y-%m-%d}"
    size = size_text(version.artifact.archive.length)
    return record.index.bundle, version.version, _day(version), size, channels, files


def _channels(record: "Record", version: str) -> list[str]:
    """Return the channels that name a version, also as the previous version of a rollout."""
    result = record.index.channels.items()
    return sorted(name for name, release in result if version in {each.version for each in named_by(release)})


def _row_of_statement(text: "ChannelEntry") -> tuple[str, ...]:
    when = minute_text(text.at)
    if text.release is None:
        return when, text.channel, "nothing any more"
    # As planned at that time: a rollout begins without hosts.
    return when, text.channel, f"{text.release.version} {reach(text.release, text.at)}"


def _plain_statements(history: "History") -> list[dict[str, Any]]:
    return [text.fields() for text in history.statements]


def _day(version: "Version") -> str:
    return f"{version.published:%Y-%m-%d}"
