"""``puller site``: publish signed bundles in a static directory that any web server can serve."""

import click

from puller.cli.lazy_group import LazyGroup

# Most of these modules import the libraries of TUF and HTTP.
_COMMANDS = {
    "back": ("puller.cli.publisher.rollouts:back", "Give all hosts of a channel an older release, at once."),
    "data": (
        "puller.cli.publisher.data:data",
        "Publish FILE, a data document in YAML or JSON, as signed site data in the site DIR.",
    ),
    "halt": (
        "puller.cli.publisher.rollouts:halt",
        "Stop a rollout at once: no host that does not run the release yet gets it.",
    ),
    "history": (
        "puller.cli.publisher.prune:history",
        "Show what was published of BUNDLE in the site DIR, and what each channel said of it when.",
    ),
    "init": ("puller.cli.publisher.whole_site:init", "Make a new site in DIR, with new keys."),
    "keys": ("puller.cli.publisher.keys:keys", "Show and change who may sign for a site."),
    "list": (
        "puller.cli.publisher.whole_site:list_",
        "Show what the site DIR tells hosts to run, and how long its signatures last.",
    ),
    "mirror": (
        "puller.cli.publisher.mirror:mirror",
        "Copy the site at URL to DIRECTORY, verified as a host verifies it.",
    ),
    "promote": (
        "puller.cli.publisher.rollouts:promote",
        "Give the hosts of one channel the release that another channel has.",
    ),
    "prune": ("puller.cli.publisher.prune:prune", "Remove from the site DIR what no host needs any more."),
    "publish": (
        "puller.cli.publisher.publish:publish",
        "Publish each SOURCE, a bundle's directory or a built .tar.gz, in the site DIR.",
    ),
    "push": (
        "puller.cli.publisher.push:push",
        "Bring what the site DIR publishes to DESTINATION, from where hosts read it.",
    ),
    "refresh": (
        "puller.cli.publisher.whole_site:refresh",
        "Sign the metadata of the site DIR anew, before it expires.",
    ),
    "rollout": ("puller.cli.publisher.rollouts:rollout", "Let a rollout that is going on reach more hosts."),
    "root": ("puller.cli.publisher.root:root", "Have a change of the root signed where its keys are."),
    "rotate": (
        "puller.cli.publisher.keys:rotate",
        "Replace the keys of ROLE by new ones, and sign anew what they signed.",
    ),
    "serve": ("puller.cli.publisher.whole_site:serve", "Serve DIR/public over HTTP, to try it out."),
    "threshold": ("puller.cli.publisher.keys:threshold", "Say that NUMBER keys of ROLE must sign."),
    "verify": (
        "puller.cli.publisher.whole_site:verify",
        "Check everything in DIR/public as a host would: signatures, expiry, and every published file.",
    ),
    "watch": (
        "puller.cli.publisher.watch:watch",
        "Halt the rollouts of the site DIR that hosts report no good of.",
    ),
    "withdraw": ("puller.cli.publisher.rollouts:withdraw", "Take a bundle out of a channel."),
}


@click.group("site", cls=LazyGroup, table=_COMMANDS)
def site() -> None:
    """Publish signed bundles in a static site.

    A site is a directory. Its part public/ goes to any web server, object store or stick; hosts trust none of
    these, only the signatures. The keys are in keys/, and stay on the machine that publishes.

    \b
    Example:
      puller site init site
      puller site publish site bundles/* --version auto
      puller site push site www:/srv/www/puller
    """
