"""Variables of Ansible by level, and their division into the Hiera tree and the data of the manifest.

* A later source of one level overrides an earlier one. A difference is recorded as a part to check.
* The Hiera tree gets plain values, and references to variables and facts.
* The data of the manifest get each variable that needs another expression in any level.
* Values of Vault are converted to ``ENC[PKCS7,…]``. Without the password, they are left out.
* Modes such as ``0644`` stay text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from hiera.errors import HieraError
from puller.authoring.importing.ansible.jinja_expressions import (
    Names,
    as_expression,
    has_expression,
    translate_value,
)
from puller.authoring.importing.draft import Draft, ManifestDraft, Origin, Outcome, document_text
from puller.authoring.importing.reading import (
    VAULT_HEADER,
    Document,
    Secrets,
    UnsafeText,
    VaultError,
    VaultText,
    decrypt_vault,
)
from puller.authoring.importing.written_expressions import Untranslatable


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


_PARTS_LIMIT: Final = 1000
"""Maximum expressions and texts in a value of the Hiera tree."""


def divide_variables(draft: Draft, manifest: ManifestDraft, variables: Variables, names: Names) -> None:
    """Write the variables into the data of the manifest, into ``data/`` and into ``hiera.yaml``."""
    _Division(draft, manifest, variables, names).divide()


class _Division:
    """One division, with the draft that receives the variables."""

    def __init__(self, draft: Draft, manifest: ManifestDraft, variables: Variables, names: Names) -> None:
        self.draft = draft
        self.manifest = manifest
        self.variables = variables
        self.names = names

    def divide(self) -> None:
        levels = self.variables.levels()
        in_manifest = self._keys_for_manifest(levels)
        order = []
        for level in levels:
            for file, values in level.files.items():
                hiera_values: dict[str, Any] = {}
                for key, value in values.items():
                    self._place(level, file, key, value, in_manifest, hiera_values)
                if hiera_values or level is self.variables.common:
                    self.draft.files[f"data/{file}"] = document_text(hiera_values).encode()
            if level.files and any(f"data/{file}" in self.draft.files for file in level.files):
                order.append(level)
        entries: list[dict[str, Any]] = []
        for level in order:
            secret = {"lookup_key": "eyaml_lookup_key"} if _contains(dict(level.files), EncryptedText) else {}
            if level.mapped:
                place = {"mapped_paths": ["facts.groups", "group", level.path]}
                entries.append({"name": level.name, **place, **secret})
            else:
                entries.append(
                    {
                        "name": f"{level.name} {len(entries)}"
                        if level in self.variables.systems
                        else level.name,
                        "path": level.path,
                        **secret,
                    }
                )
        self.draft.files["hiera.yaml"] = document_text(
            {"version": 5, "hierarchy": entries}, ["The highest precedence first."]
        ).encode()
        if len(self.variables.systems) > 1:
            self.draft.check(
                "Ansible loads the first matching file of variables. Puller also uses keys of the less specific files."
            )

    def _keys_for_manifest(self, levels: Sequence[Level]) -> set[str]:
        """Return the variables that need the manifest because of a value in any level."""
        keys = set()
        for level in levels:
            for values in level.files.values():
                for key, value in values.items():
                    try:
                        _in_tree(value, self.names)
                    except Untranslatable:
                        keys.add(key)
        return keys

    def _place(
        self,
        level: Level,
        file: str,
        key: str,
        value: Any,
        in_manifest: set[str],
        hiera_values: dict[str, Any],
    ) -> None:
        """Add a variable to the manifest or to ``hiera_values``, the values of one file."""
        if _contains(value, VaultText):
            self.draft.check(
                f"The variable {key} is encrypted by Vault. Encrypt it with `puller hiera encrypt`, "
                f"and add it to data/{file}."
            )
            return
        if key not in in_manifest:
            hiera_values[key] = _in_tree(value, self.names)
            return
        try:
            translated = translate_value(_without_tags(value), self.names)
        except Untranslatable as error:
            self.draft.note(Origin(f"data/{file}"), key, Outcome.UNMAPPED, str(error), "variable")
            return
        if level is self.variables.common or (
            level is self.variables.roles and key not in self.manifest.data
        ):
            self.manifest.data.setdefault(key, translated)
        elif level is self.variables.roles:
            self.manifest.data[key] = translated
        elif level in self.variables.systems:
            section = file.removesuffix(".yaml")
            self.manifest.overrides.setdefault(section, {})[key] = translated
            if level.section not in self.manifest.hierarchy:
                self.manifest.hierarchy.append(level.section)
        else:
            self.draft.note(
                Origin(f"data/{file}"),
                key,
                Outcome.UNMAPPED,
                "an expression in variables of hosts or groups",
                "variable",
            )


def _in_tree(value: Any, names: Names) -> Any:
    """Return a value for the Hiera tree. Raises ``Untranslatable`` for expressions that need the manifest."""
    if isinstance(value, UnsafeText):
        return _escaped(value.text)
    if isinstance(value, EncryptedText):
        return value.text
    if isinstance(value, VaultText):
        return value
    if isinstance(value, Mapping):
        return {_in_tree(str(key), names): _in_tree(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_tree(item, names) for item in value]
    if not isinstance(value, str):
        return value
    if not has_expression(value):
        return _escaped(value)
    if "{%" in value or "{#" in value:
        raise Untranslatable("a statement")
    parts = re.split(r"({{.*?}})", value, flags=re.DOTALL)
    count = sum(bool(part) for part in parts)
    if count > _PARTS_LIMIT:
        raise Untranslatable(f"a value with more than {_PARTS_LIMIT} parts")
    result = []
    for part in parts:
        if not part.startswith("{{"):
            result.append(_escaped(part))
            continue
        inner = part[2:-2].strip()
        translated = as_expression(part, names)
        if re.fullmatch(r"data(\.[A-Za-z_]\w*)+", translated):
            key = translated.removeprefix("data.")
            result.append(f"%{{alias('{key}')}}" if count == 1 else f"%{{lookup('{key}')}}")
        elif re.fullmatch(r"facts(\.\w+)+", translated):
            result.append(f"%{{{translated}}}")
        else:
            raise Untranslatable(f"the expression {inner}")
    return "".join(result)


def _escaped(text: str) -> str:
    """Return a text that Hiera does not interpolate."""
    return text.replace("%{", "%{literal('%')}{")


def _contains(value: Any, kind: type) -> bool:
    """Return whether a value is, or contains, an instance of a type."""
    if isinstance(value, Mapping):
        return any(_contains(item, kind) for item in value.values())
    return (
        any(_contains(item, kind) for item in value) if isinstance(value, list) else isinstance(value, kind)
    )


def _without_tags(value: Any) -> Any:
    """Return a value with each ``!unsafe`` text as a text whose braces are escaped."""
    if isinstance(value, UnsafeText):
        return value.text.replace("{{", "{{ '{{' }}")
    if isinstance(value, Mapping):
        return {key: _without_tags(item) for key, item in value.items()}
    return [_without_tags(item) for item in value] if isinstance(value, list) else value
