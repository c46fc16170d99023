"""The job of ``puller hiera lookup``, once its options are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hiera.errors import HieraError
from puller.cli.hiera.answers import facts_of, open_answers, source_of
from puller.cli.hiera.printing import (
    made_printable,
    member,
    secret_printer,
    show_explanation,
    show_values,
)
from puller.cli.output import show, warn
from puller.data.queries import Answer, Question
from puller.errors import UsageError
from puller.exit_status import ExitStatus


def find_values(
    arguments: tuple[str, ...], output_format: str, *, explain: bool, reveal: bool, options: Mapping[str, Any]
) -> int:
    """Look keys up and print what they are; gives the exit status, and raises ``UsageError``.

    ``arguments`` are keys, and at their end the source where no option names one.
    """
    keys, source = source_of(arguments, options)
    question = question_of(options, explained=explain)
    secret = secret_printer(reveal, masked=explain)
    found = {
        key: made_printable(answer, secret) for key, answer in _ask(keys, question, source, options).items()
    }
    if output_format == "json":
        show({key: member(answer, explain) for key, answer in found.items()}, "json")
    elif explain:
        for answer in found.values():
            show_explanation(answer)
    else:
        show_values(found)
    return ExitStatus.OK if all(answer.found for answer in found.values()) else ExitStatus.NO


def _ask(
    keys: Sequence[str], question: Question, source: str | None, options: Mapping[str, Any]
) -> dict[str, Answer]:
    """The answers by key; what is wrong with the facts or the data as a whole is the answer for each."""
    try:
        with open_answers(options, source, facts_of(options), told) as answers:
            return {key: answers.ask(key, question) for key in keys}
    except HieraError as error:
        return {key: Answer(key, error=str(error)) for key in keys}


def question_of(options: Mapping[str, Any], *, explained: bool = False) -> Question:
    """The question that the options ask; raises ``UsageError``."""
    default = options.get("default")
    return Question(_merge(options), default, default is not None, options.get("value_type"), explained)


def _merge(options: Mapping[str, Any]) -> Any:
    """The strategy as ``puppet lookup`` makes it of the same options."""
    merge = options.get("merge")
    deep = {
        name: options.get(name) for name in ("knock_out_prefix", "sort_merged_arrays", "merge_hash_arrays")
    }
    if merge != "deep":
        if any(value not in (None, False) for value in deep.values()):
            what = "--knock-out-prefix, --sort-merged-arrays and --merge-hash-arrays"
            raise UsageError(f"{what} are for --merge deep only")
        return merge
    chosen = {
        "strategy": "deep",
        "sort_merged_arrays": deep["sort_merged_arrays"],
        "merge_hash_arrays": deep["merge_hash_arrays"],
    }
    prefix = deep["knock_out_prefix"]
    return chosen if prefix is None else {**chosen, "knockout_prefix": prefix}


def told(text: str) -> None:
    """Say what is amiss with the data."""
    warn(f"warning: {text}")
