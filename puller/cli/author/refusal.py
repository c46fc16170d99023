"""Bundles that cannot work on any host, refused before anything of them is packed, signed or written."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bundles.errors import BundleError
from puller.errors import ManifestError, SourceError
from puller.manifest.source import MANIFEST, open_source


def refuse_broken(sources: Iterable[Path]) -> None:
    """Raise ``ManifestError`` with all that lint calls an error in any of these directories and archives.

    Nothing of this machine counts: what facts, data and other bundles of the hosts could mend is no error.
    """
    if problems := [sentence for source in sources for sentence in _errors(source)]:
        raise ManifestError(problems)


def _errors(source: Path) -> Iterator[str]:
    if not (source / MANIFEST).is_file() and not source.name.endswith(".tar.gz"):
        return  # packing says what it is, and what is missing
    from puller.authoring.lint.check import lint_bundle
    from puller.manifest.manifest import Inputs

    try:
        with open_source(str(source)) as opened:
            yield from lint_bundle(opened, Inputs({}, {}), of_any_host=True).errors()
    except BundleError:
        return  # of an archive that is none publishing says what it is
    except (ManifestError, SourceError) as error:
        yield from str(error).splitlines()
