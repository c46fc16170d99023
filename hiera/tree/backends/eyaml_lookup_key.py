"""``eyaml_lookup_key``: YAML with encrypted texts in it. What is decrypted is a secret."""

from typing import Any

from hiera.errors import ConfigError, EnvelopeError, LookupFailure
from hiera.eyaml.eyaml import Decryptor, is_encrypted
from hiera.tree.backends.base import PATHS, Tools, texts, verify_value
from hiera.tree.config.locations import Location
from hiera.tree.context.absent import ABSENT, Absent
from hiera.tree.context.explain import Step
from hiera.tree.context.invocation import Invocation
from hiera.values.secrets import Decrypted


class Eyaml:
    """Decrypts only what is asked for."""

    def __init__(self, decryptor: Decryptor, tools: Tools) -> None:
        self._decryptor = decryptor
        self._tools = tools

    def names(self, location: Location | None) -> list[str]:
        """The top-level keys; nothing is decrypted."""
        return texts(self._content(location)[0])

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        """The value of ``key``, decrypted and interpolated; raises ``LookupFailure`` without any plain text in it."""
        content, location = self._content(location)  # 8a.
        value = content.get(key, ABSENT)
        if value is ABSENT:
            return ABSENT
        verify_value(value, "returned from lookup_key function 'eyaml_lookup_key'", key, location)  # 8b.
        try:
            value = self._decrypted(value)
        except EnvelopeError as error:
            what = f"hiera-eyaml backend error decrypting when looking up {key} in {location.place}"
            failure = LookupFailure(
                "", f"{what}. Error was {error}", code=error.code, depends_on=error.depends_on
            )
            raise failure.placed() from None
        return self._tools.interpolator.resolve(value, invocation, step)  # 8c.

    def _content(self, location: Location | None) -> tuple[dict[Any, Any], Location]:
        if location is None or location.is_uri:
            raise ConfigError("", f"'eyaml_lookup_key': {PATHS} when using this lookup_key function")
        return self._tools.files.yaml(location.place), location

    def _decrypted(self, value: Any) -> Any:
        if isinstance(value, str):
            return Decrypted(self._decryptor.decrypt(value)) if is_encrypted(value) else value
        if isinstance(value, list):
            return [self._decrypted(item) for item in value]
        if isinstance(value, dict):
            return {name: self._decrypted(item) for name, item in value.items()}
        return value
