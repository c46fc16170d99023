"""``puller site``: publish signed bundles in a static directory that any web server can serve."""

import click

from puller.cli.publisher.site_place import LazySiteCommands

# Most of these modules import the libraries of TUF and HTTP.
_COMMANDS = {
    "back": ("puller.cli.publisher.rollouts:back", "Roll all hosts of a channel back to an older release."),
    "data": ("puller.cli.publisher.data:data", "Publish a data document as signed site data."),
    "halt": ("puller.cli.publisher.rollouts:halt", "Stop a rollout: no further host gets the release."),
    "history": (
        "puller.cli.publisher.prune:history",
        "Show the versions of BUNDLE, and when each channel named them.",
    ),
    "init": ("puller.cli.publisher.whole_site:init", "Create a new site in DIR with new keys."),
    "keys": ("puller.cli.publisher.keys:keys", "Show and change the keys of a site."),
    "list": (
        "puller.cli.publisher.whole_site:list_",
        "Show the releases of the site, and when its signatures expire.",
    ),
    "mirror": (
        "puller.cli.publisher.mirror:mirror",
        "Copy the site at URL to DIRECTORY, with all checks of a host.",
    ),
    "promote": (
        "puller.cli.publisher.rollouts:promote",
        "Give the release of one channel to another channel.",
    ),
    "prune": ("puller.cli.publisher.prune:prune", "Delete unneeded versions and files from the site."),
    "publish": ("puller.cli.publisher.publish:publish", "Publish bundles in the site."),
    "push": ("puller.cli.publisher.push:push", "Copy the public files of the site to a server."),
    "refresh": (
        "puller.cli.publisher.whole_site:refresh",
        "Renew the signatures of the site before they expire.",
    ),
    "release": ("puller.cli.publisher.publish:release", "Publish bundles, and push the site."),
    "rollout": ("puller.cli.publisher.rollouts:rollout", "Extend a rollout to more hosts."),
    "root": ("puller.cli.publisher.root:root", "Sign a change of the root on the machines of its signers."),
    "rotate": ("puller.cli.publisher.keys:rotate", "Replace the keys of ROLE, and sign its metadata again."),
    "serve": ("puller.cli.publisher.whole_site:serve", "Serve DIR/public over HTTP for tests."),
    "threshold": ("puller.cli.publisher.keys:threshold", "Require the signatures of NUMBER keys of ROLE."),
    "verify": (
        "puller.cli.publisher.whole_site:verify",
        "Check the signatures, the expiry and all files of the site.",
    ),
    "watch": ("puller.cli.publisher.watch:watch", "Halt rollouts that fail on hosts."),
    "withdraw": ("puller.cli.publisher.rollouts:withdraw", "Remove a bundle from a channel."),
}


@click.group("site", cls=LazySiteCommands, sections={"Commands": _COMMANDS})
def site() -> None:
    """Publish signed bundles in a static site.

    A site is a directory. Copy its directory public/ to any web server, object store or USB drive. Hosts trust only the
    signatures. The directory keys/ stays on the publisher's machine. DIR is by default $PULLER_SITE, or ./site.

    \b
    Example:
      puller site init site
      puller site publish site bundles/* --version auto
      puller site push site www:/srv/www/puller
    """
