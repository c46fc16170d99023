"""Sources of ``puller hiera`` (a tree, a document or a bundle), the facts of one host, and the output of lookups."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.filesystem.atomic import read_limited
from foundation.formatting import text_of
from hiera import parsing
from hiera.document.document import Document, annotations_of
from hiera.errors import HieraError
from hiera.sops.format import METADATA
from hiera.sops.identities import Identities
from hiera.sops.reading import verify_plain
from hiera.tree.interpolation import verify_complete
from hiera.tree.lookup import Tree
from hiera.tree.ruby_values import printable, revealed, with_decrypted
from puller.cli.output import show, warn
from puller.data.lookups import Answer, Answers, BundleAnswers, BundleTogether, DocumentAnswers, TreeAnswers
from puller.data.sources import Surroundings
from puller.errors import UsageError
from puller.facts.given_facts import chosen_facts
from puller.manifest.libraries import need_bundle_facts
from puller.manifest.manifest import open_source
from puller.run.host import identities_of
from puller.state import PRIVATE_KEY
from puller.values.foreign_text import visible

if TYPE_CHECKING:
    from hiera.values import Secret


def source_of(arguments: tuple[str, ...], options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """Return the keys among ``arguments``, and SOURCE, which is the last of several arguments without a data option.

    Raises ``UsageError`` for several data options, and for a missing SOURCE.
    """
    if sum(options[name] is not None for name in ("config", "environment", "document")) > 1:
        raise UsageError("--hiera, --environment and --document: use only one of these options")
    if any(options[name] is not None for name in ("config", "environment", "document", "global_config")):
        return arguments, None
    if len(arguments) == 1:
        return arguments, "."
    *keys, source = arguments
    if not os.path.exists(source):
        raise UsageError(f"{source}: does not exist, and without options the last argument names the data")
    return tuple(keys), source


def facts_of(options: Mapping[str, Any], **given: Any) -> Mapping[str, Any]:
    """Return the facts that the options select. Raises ``UsageError``."""
    return chosen_facts({**options, **given})


@contextlib.contextmanager
def open_answers(
    options: Mapping[str, Any], source: str | None, facts: Mapping[str, Any], warn: Callable[[str], None]
) -> Iterator[Answers]:
    """Open the answers for one host while the block runs.

    Raises ``UsageError``, ``HieraError``, ``ManifestError`` and ``SourceError``.
    """
    identities = identities_of(options)
    if options["document"] is not None:
        path = options["document"]
        yield _document(path, path, facts, identities, is_checked=True)
    elif source is None:
        yield TreeAnswers(_tree(options, options["environment"], facts, identities, warn))
    elif os.path.isfile(source) and not source.endswith((".tar.gz", ".tgz", "hiera.yaml")):
        yield _document(source, source, facts, identities, is_checked=True)
    elif os.path.basename(source) == "hiera.yaml":
        yield TreeAnswers(_tree({**options, "config": source}, None, facts, identities, warn))
    else:
        with _answers_of_bundle(options, source, facts, identities, warn) as result:
            yield result
    for problem in identities.problems:
        warn(text_of(problem))


@contextlib.contextmanager
def _answers_of_bundle(
    options: Mapping[str, Any],
    source: str,
    facts: Mapping[str, Any],
    identities: Identities,
    warn: Callable[[str], None],
) -> Iterator[Answers]:
    with _unpacked(source) as (directory, manifest, name):
        facts = need_bundle_facts(facts, Path(directory))
        document = _document(manifest, name, facts, identities) if os.path.exists(manifest) else None
        answers: list[Answers] = [document] if document is not None else []
        if os.path.exists(os.path.join(directory, "hiera.yaml")):
            sensitive = document.sensitive_keys if document is not None else frozenset()
            tree = _tree(options, directory, facts, identities, warn)
            outer = None if document is None else BundleTogether(document, tree, name).of_documents
            answers.insert(0, TreeAnswers(tree, sensitive, outer))
        if not answers:
            raise UsageError(f"{source}: contains neither hiera.yaml nor manifest.yaml")
        yield answers[0] if len(answers) == 1 else BundleAnswers(answers)


@contextlib.contextmanager
def _unpacked(source: str) -> Iterator[tuple[str, str, str]]:
    """Unpack a bundle, and yield its directory, its manifest, and the manifest's name in messages."""
    with open_source(source, needs_manifest=False) as result:
        yield str(result.path.parent), str(result.path), result.name


def _tree(
    options: Mapping[str, Any],
    directory: str | None,
    facts: Mapping[str, Any],
    identities: Identities,
    warn: Callable[[str], None],
) -> Any:
    config = options["config"]
    if options["no_system_facts"]:
        verify_complete(facts)
    private_key = options["private_key"] or (PRIVATE_KEY if os.path.exists(PRIVATE_KEY) else None)
    return Tree(
        facts,
        environment=os.path.dirname(os.path.abspath(config)) if config else directory,
        config_path=config,
        global_config=options["global_config"],
        module_path=options["modules"],
        environment_name=options["environment_name"],
        private_key=private_key and os.path.abspath(private_key),
        identities=identities,
        warn=lambda problem: warn(str(problem)),
    )


def _document(
    path: str,
    name: str,
    facts: Mapping[str, Any],
    identities: Identities,
    *,
    is_checked: bool = False,
) -> DocumentAnswers:
    """Return the document in a separate file, or in a manifest, whose other keys are ignored."""
    try:
        text = read_limited(path, parsing.SIZE_LIMIT).decode("utf-8", "surrogateescape")
    except ValueError as error:
        raise UsageError(str(error)) from error
    value = parsing.load_yaml(text, name)
    if (
        isinstance(value, dict)
        and not value.keys() <= {"data", "hierarchy", "overrides"}
        and METADATA not in value
    ):
        verify_plain(value, text, name)
        locate = functools.partial(parsing.locate, text)
        document = Document.from_value(value, name, locate, annotations_of(text, name))
    else:
        document = Surroundings(facts, {}, identities).parse(text, name)
    return DocumentAnswers(document, facts, is_checked=is_checked)


# Output of lookups: secrets are masked, explanations have colours.


def secret_printer(reveal: bool, *, masked: bool) -> Callable[[Secret], Any]:
    """Return the function that makes a secret printable. Raises ``UsageError`` if secrets must not be shown.

    A plain lookup shows encrypted values, because the user requested them.
    """
    if not reveal:
        return str if masked else with_decrypted

    # docs/secrets.md. A terminal is required, so that no secret gets into a file or a pipe by mistake.
    if os.geteuid() != 0 or not sys.stdout.isatty():
        raise UsageError("--reveal is for root on a terminal only")
    return revealed


def printable_value(answer: Answer, secret: Callable[[Secret], Any]) -> Answer:
    """Replace special values in the answer by plain ones, and return it. An unprintable answer becomes an error."""
    try:
        answer.value = printable(answer.value, secret)
    except HieraError as error:
        answer.found, answer.value, answer.error = False, None, f"{answer.key}: {error}"
    return answer


def member(answer: Answer, explain: bool) -> dict[str, Any]:
    """Return the answer to one key for ``--format json``."""
    record = {"explanation": printable(answer.record)} if explain else {}
    return {**answer.as_data(), **record}


def show_values(answers: Mapping[str, Answer]) -> None:
    """Print one value alone, or several by name, and missing values on stderr."""
    values = {key: answer.value for key, answer in answers.items() if answer.found}
    if values:
        show(values if len(answers) > 1 else next(iter(values.values())), "yaml")
    for key, answer in answers.items():
        if not answer.found:
            warn(answer.error or f"{key}: not found")


def show_explanation(answer: Answer) -> None:
    """Print the steps of a lookup."""
    for line in answer.lines:
        click.echo(_coloured(line))
    if not answer.found and not answer.error:
        click.echo(_coloured(f"Nothing has the key: {answer.key}"))


_COLOURS = {
    "Searching for": {"bold": True},
    "Found key": {"fg": "green"},
    "Merged result": {"fg": "green"},
    "Using merge options": {"fg": "cyan"},
    "Applying convert_to": {"fg": "cyan"},
    "No such key": {"dim": True},
    "Path not found": {"dim": True},
}


def _coloured(line: str) -> str:
    """Return a styled line. click removes the colours if the output is not a terminal."""
    line = visible(line)
    bare = line.lstrip()
    style = next((style for start, style in _COLOURS.items() if bare.startswith(start)), {})
    return click.style(line, **style) if style else line  # type: ignore[arg-type]  # click's own keywords
