"""Variables of Ansible by level: the defaults of roles, groups, hosts and systems.

* A later source of one level overrides an earlier one. A difference is recorded as a part to check.
* Values of Vault are converted to ``ENC[PKCS7,…]``. Without the password, they are left out.
* Modes such as ``0644`` stay text.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hiera.errors import HieraError
from puller.authoring.importing.draft import Draft, Origin
from puller.authoring.importing.expressions import has_expression
from puller.authoring.importing.reading import (
    VAULT_HEADER,
    Document,
    Secrets,
    VaultError,
    VaultText,
    decrypt_vault,
)


class Level(msgspec.Struct):
    """One level of variables: a Hiera path, and its files."""

    name: str
    path: str
    files: dict[str, dict[str, Any]] = {}
    """Variables by the path in ``data``."""
    section: str = ""
    """Expression of the entry in ``hierarchy.order``, for variables of the manifest."""
    mapped: str = ""
    """The ``mapped_paths`` of a level with several files."""


class EncryptedText(msgspec.Struct, frozen=True):
    """A value in the form ``ENC[PKCS7,…]``."""

    text: str


class Variables:
    """The variables of all sources, by level."""

    def __init__(self, draft: Draft, secrets: Secrets | None) -> None:
        self.draft = draft
        self.secrets = secrets
        self.common = Level("defaults", "common.yaml", {"common.yaml": {}})
        self.everywhere = Level("all hosts", "all.yaml")
        self.groups = Level(
            "groups", "groups/%{group}.yaml", mapped="[facts.groups, group, 'groups/%{group}.yaml']"
        )
        self.hosts = Level("host", "hosts/%{trusted.certname}.yaml")
        self.roles = Level("variables of roles", "vars.yaml")
        self.systems: list[Level] = []

    @property
    def defaults(self) -> dict[str, Any]:
        """The default values of all roles."""
        return self.common.files["common.yaml"]

    def levels(self) -> list[Level]:
        """Return all levels, the highest precedence first."""
        return [*self.systems, self.roles, self.hosts, self.groups, self.everywhere, self.common]

    def known(self) -> dict[str, Any]:
        """Return the variables whose values contain no expression. Variables of groups and hosts are left out."""
        result: dict[str, Any] = {}
        for level in (*self.systems, self.common, self.everywhere, self.roles):
            for values in level.files.values():
                result |= {key: value for key, value in values.items() if not has_expression(value)}
        return result

    def read(self, document: Document) -> dict[str, Any]:
        """Return the variables of a document, with values of Vault converted or left out."""
        if isinstance(document.value, str) and document.value.startswith(VAULT_HEADER):
            return self._values_of_vault(document)
        values = _with_octal_text(document)
        return {key: self._converted(value, f"{document.name}: {key}") for key, value in values.items()}

    def _values_of_vault(self, document: Document) -> dict[str, Any]:
        if self.secrets is None:
            self.draft.check(f"{document.name} is encrypted by Vault, and is left out.")
            return {}
        try:
            text = decrypt_vault(document.value.replace(" ", "\n"), self.secrets.password)
            inner = Document(document.name, text).value
        except (VaultError, HieraError):
            self.draft.check(
                f"{document.name} is left out: the password of the vault is wrong, or it is damaged."
            )
            return {}
        return _encrypted_values(inner, self.secrets) if isinstance(inner, dict) else {}

    def _converted(self, value: Any, place: str) -> Any:
        """Return a value with its values of Vault converted. A value that cannot be decrypted stays as it is."""
        if isinstance(value, VaultText) and self.secrets is not None:
            try:
                return EncryptedText(self.secrets.converted(value.text))
            except VaultError as error:
                self.draft.check(f"{place} is left out: {error.args[0]}.")
                return value
        if isinstance(value, Mapping):
            return {key: self._converted(item, place) for key, item in value.items()}
        return [self._converted(item, place) for item in value] if isinstance(value, list) else value

    def merge(self, level: Level, file: str, values: Mapping[str, Any], origin: Origin) -> None:
        """Set variables in a file of a level. A variable that had another value becomes a part to check."""
        target = level.files.setdefault(file, {})
        for key, value in values.items():
            name = str(key)
            if name in target and target[name] != value:
                self.draft.check(
                    f"Several sources set the variable {name} to different values. The draft has the value of {origin}."
                )
            target[name] = value


def _with_octal_text(document: Document) -> dict[str, Any]:
    """Return the variables of a document. Modes such as ``0644`` stay text, although YAML reads a number."""
    if not isinstance(document.value, dict):
        return {}
    result = {}
    for key, value in document.value.items():
        name = str(key)
        original = document.original((key,)) if type(value) is int else None
        result[name] = original if original and re.fullmatch(r"0[0-7]{3,4}", original) else value
    return result


def _encrypted_values(value: Any, secrets: Secrets) -> Any:
    """Return a value with all texts and numbers encrypted."""
    if isinstance(value, Mapping):
        return {str(key): _encrypted_values(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_encrypted_values(item, secrets) for item in value]
    if value is None or isinstance(value, bool):
        return value
    return EncryptedText(secrets.encrypt(str(value)))
