"""Messages of a run, without the secrets that it uses.

* Types and templates hide secrets themselves. This module masks other messages: of a server that quotes a URL, of the
  system about a path, of a command that prints its arguments.
* ``Mask`` does not find all encodings of a secret. The output of commands of a sensitive resource is therefore never
  shown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import islice
from typing import Any

import msgspec

from foundation.differences import Difference
from foundation.formatting import prefixed
from foundation.masking import VALUE_MASK, Mask, mask_urls
from foundation.problems import Problem
from hiera.values import Secret, has_secret
from puller.checks.kinds import HealthCheck
from puller.data.bundle_data import known
from puller.manifest.declaration import Declaration
from puller.reporting.report import Event, HealthResult


class _Known(msgspec.Struct, frozen=True):
    """The secrets of the data that has been read so far."""

    keys: int = 0
    """The number of keys that were read."""
    texts: tuple[str, ...] = ()
    mask: Mask = Mask(())


class Masks:
    """The masks for the data of all manifests of a run, created on demand."""

    def __init__(self) -> None:
        # Every event of a run needs the mask, and collecting the secrets of ten thousand keys takes time.
        self._known: dict[int, _Known] = {}
        """By the identity of the data."""

    def of(self, data: Mapping[Any, Any]) -> Mask:
        """Return the mask for every secret of the data that has been read so far."""
        result, before = known(data), self._known.get(id(data), _Known())
        if before.keys == len(result):
            return before.mask
        new = [text for value in islice(result.values(), before.keys, None) for text in _secret_texts(value)]
        texts = (*before.texts, *new)
        mask = Mask(texts) if new else before.mask
        self._known[id(data)] = _Known(len(result), texts, mask)
        return mask

    def apply(self, event: Event, declaration: Declaration) -> None:
        """Mask the secrets of the data and of the resource's own properties in the texts of an event."""
        if event.item:
            event.item = self.of(declaration.home.scope.data)(event.item)
        if not (event.problems or event.notes or event.noop_message):
            return
        masked = self._of_all(declaration)
        event.problems = [_masked(problem, masked) for problem in event.problems]
        event.notes = [mask_urls(masked(note)) for note in event.notes]
        event.noop_message = masked(event.noop_message)

    def differences(self, differences: Iterable[Difference], declaration: Declaration) -> list[Difference]:
        """Return the differences of an event without secrets."""
        masked = self._of_all(declaration)
        return [
            msgspec.structs.replace(
                difference.map_texts(lambda text: mask_urls(masked(text))), diff=masked(difference.diff)
            )
            for difference in differences
        ]

    def problems(self, problems: Iterable[Problem], declaration: Declaration) -> tuple[Problem, ...]:
        """Return the problems of a resource without secrets. Their places become text, and the resource their place."""
        masked = self._of_all(declaration)
        return tuple(_masked(prefixed(problem, ""), masked) for problem in problems)

    def sentence(self, text: str, declaration: Declaration) -> str:
        """Return a sentence about a resource without the secrets of the data and of its own properties."""
        return mask_urls(self._of_all(declaration)(text))

    def hide(self, result: HealthResult, declaration: Declaration) -> None:
        """Mask secrets in the result of a health check, before any excerpt: a part of a secret is not recognised.

        The output of a sensitive resource's command may be any part of a secret.
        """
        of_all, hidden = self._of_all(declaration), declaration.properties.sensitive

        def masked(text: str) -> str:
            return VALUE_MASK if hidden and text else of_all(text)

        result.name = self._of_data(declaration)(result.name)
        result.output, result.error_output = masked(result.output), masked(result.error_output)

    def hide_older(self, result: HealthResult, declaration: Declaration) -> None:
        """Mask all output of a command, if the data of its manifest have secrets.

        For checks before the change: the output may contain a secret of the earlier state.
        """
        if all(self.of(place.home.scope.data).is_empty for place in declaration.places()):
            return
        for name in ("output", "error_output"):
            if getattr(result, name):
                setattr(result, name, VALUE_MASK)

    def _of_all(self, declaration: Declaration) -> Callable[[str], str]:
        """Return the mask for the data and for the resource's own properties."""
        of_data, of_properties = self._of_data(declaration), Mask(_hidden_texts(declaration))
        return lambda text: of_data(of_properties(text))

    def _of_data(self, declaration: Declaration) -> Callable[[str], str]:
        if not declaration.united:
            return self.of(declaration.home.scope.data)
        masks = [self.of(place.home.scope.data) for place in declaration.united]
        return lambda text: reduce(lambda masked, mask: mask(masked), masks, text)


def _masked(problem: Problem, masked: Callable[[str], str]) -> Problem:
    return problem.map_texts(lambda text: mask_urls(masked(text)))


def _hidden_texts(declaration: Declaration) -> Iterator[str]:
    """Yield the texts of a resource's properties that must not be shown."""
    properties, hidden = declaration.properties, declaration.hidden
    for name in properties.__struct_fields__:
        value = getattr(properties, name)
        if name == "health_checks":
            value = [_question(check) for check in value]  # their names are for people
        if name in hidden or has_secret(value):
            plain = msgspec.to_builtins(
                value, enc_hook=lambda item: item.reveal() if isinstance(item, Secret) else str(item)
            )
            yield from _texts(plain)


def _question(check: HealthCheck) -> Any:
    if check.goss_rules is not None:
        import json  # 1 % of an idle apply, which needs no JSON

        return json.loads(check.goss_rules)
    return msgspec.to_builtins(check.desired, enc_hook=str)


def _secret_texts(value: Any) -> Iterator[str]:
    """Yield every text of the secrets in a value."""
    if isinstance(value, Secret):
        yield from _texts(value.reveal())
    elif isinstance(value, dict):
        for item in value.values():
            yield from _secret_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_texts(item)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text and number in a value. Booleans occur in too many sentences, and reveal little."""
    if isinstance(value, Secret):
        yield from _texts(value.reveal())
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
