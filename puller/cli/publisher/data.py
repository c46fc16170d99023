"""``puller site data``: documents of values that hosts read beside their bundles, with the same signatures."""

from pathlib import Path
from typing import Any

import click

from bundles.filesystem.atomic import read_limited
from bundles.format.size_limits import LARGEST_SITE_DATA
from bundles.publisher.publication import plan_data, publish_data, withdraw_data
from bundles.publisher.site import Site
from foundation.problems import Location, Problem, ProblemCode
from foundation.quantities import first_few
from foundation.timestamps import zulu_text
from hiera.errors import HieraError
from hiera.sops.identities import OPAQUE
from puller.cli.completing import files
from puller.cli.options import noop_option, text_format_option
from puller.cli.output import say, show
from puller.cli.publisher.key_sources import passphrase_of_keys
from puller.cli.publisher.site_options import passphrase_option, site_directory
from puller.data.sources import Surroundings
from puller.errors import ManifestError, UsageError


@click.command("data")
@site_directory
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False), shell_complete=files)
@click.option(
    "--name",
    metavar="NAME",
    help="The name of the document for hosts.  [default: the file name without its ending]",
)
@click.option("--withdraw", metavar="NAME", help="Withdraw this document.")
@noop_option("Show the document that would be published, and sign nothing.")
@passphrase_option
@text_format_option
def data(
    directory: Path,
    file: Path | None,
    name: str | None,
    withdraw: str | None,
    *,
    noop: bool,
    passphrase_file: Path | None,
    output_format: str,
) -> None:
    """Publish a data document as signed site data.

    FILE is YAML or JSON, in the format of docs/data.md. Hosts with `site:NAME` below `data:` in their configuration
    read it in their next run. They verify it like a bundle, and keep the last good copy. If the document is
    unchanged, the command does nothing. Anyone who can read the site can read the document, so do not publish
    secrets.

    After --withdraw, hosts keep their copy, and report that the document is not published.

    \b
    Example:
      puller fleet exports --store fleet.db --bundle web --site site --to exports.yaml
      puller site data site exports.yaml
      puller site data site --withdraw exports

    Exit status: 0 if the document is published, 64 if it is invalid and nothing is published.
    """
    if (file is None) == (withdraw is None):
        raise click.UsageError("expected either FILE or --withdraw NAME")
    site = Site(directory)
    if file is None or withdraw is not None:
        if name is not None or noop:
            raise click.UsageError("--withdraw takes neither --name nor --noop")
        withdraw_data(site, str(withdraw), passphrase_of_keys(passphrase_file))
        done: dict[str, Any] = {"name": withdraw, "withdrawn": True}
        sentence = f"{directory}: site data {withdraw} is no longer published"
    else:
        contents = _document(file)
        name = name if name is not None else file.name.partition(".")[0]
        if noop:
            result = plan_data(site, name, contents)
        else:
            result = publish_data(site, name, contents, passphrase_of_keys(passphrase_file))
        done = {
            "name": result.name,
            "size": result.size,
            "sha256": result.sha256,
            "published": zulu_text(result.published),
            "changed": result.changed,
        }
        verb = "would be published" if noop else "is published"
        detail = verb if result.changed else "is as it was published before"
        sentence = f"{directory}: site data {name} {detail} ({result.size} bytes, sha256 {result.sha256})"
    if output_format == "json":
        show(done, "json")
        return
    say(sentence)


def _document(path: Path) -> bytes:
    """Return the text of a valid document. Raises ``ManifestError`` for a document that hosts would refuse."""
    try:
        contents = read_limited(path, LARGEST_SITE_DATA)
        document = Surroundings({}, {}, OPAQUE).parse(contents.decode("utf-8"), str(path))
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}", code=ProblemCode.UNREADABLE_SOURCE
        ) from None
    except UnicodeDecodeError as error:
        raise _refused(path, f"is not UTF-8 text, at byte {error.start}") from None
    except HieraError as error:
        raise ManifestError(error.problems) from None
    except ValueError as error:
        raise _refused(path, str(error)) from None
    if document.is_empty:
        raise _refused(path, "is empty, and hosts reject an empty document")
    if document.annotations is not None and (secrets := document.annotations.sensitive):
        names = first_few(sorted(".".join(map(str, key)) for key in secrets), 20)
        detail = f"marks {names} as @sensitive, and every reader of the site can read site data"
        raise _refused(path, f"{detail}. Put secrets encrypted into bundles, or on each host separately")
    return contents


def _refused(path: Path, message: str) -> ManifestError:
    location = Location(str(path))
    return ManifestError([Problem(code=ProblemCode.INVALID_DOCUMENT, message=message, location=location)])
