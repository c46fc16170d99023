"""The division of variables into the Hiera tree and the data of the manifest.

* The Hiera tree gets plain values, and references to variables and facts.
* The data of the manifest get each variable that needs another expression in any level.
* Encrypted values stay encrypted. A value that only Vault can decrypt is left out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from puller.authoring.importing.draft import Draft, ManifestDraft, Origin, Outcome, document_text
from puller.authoring.importing.expressions import (
    Names,
    Untranslatable,
    as_expression,
    has_expression,
    translate_value,
)
from puller.authoring.importing.reading import UnsafeText, VaultText
from puller.authoring.importing.variables import EncryptedText, Level, Variables

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
