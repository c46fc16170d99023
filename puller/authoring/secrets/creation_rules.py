"""Readers of a file by its rule: ``recipients.yaml`` first, then the creation rules of SOPS in ``.sops.yaml``.

* As in SOPS, the first rule whose ``path_regex`` is found in the path applies. The path is relative to the directory of
  ``.sops.yaml``, or absolute for a file elsewhere. ``.sops.yaml`` is ``$SOPS_CONFIG``, or the nearest file above the
  working directory. Without either, it is the nearest file above the encrypted file.
* A rule with recipients of other kinds, such as PGP, or with a key that is unknown here, is an error. A file without
  these recipients would be unreadable for them.

Source: https://github.com/getsops/sops, ``config/config.go``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from foundation.problems import Location, ProblemCode
from hiera import parsing
from hiera.go_regex.pattern import compile_pattern, is_found
from hiera.go_regex.syntax import PatternError
from hiera.sops.format import RULES, Rule
from hiera.sops.identities import is_recipient, normalized
from hiera.sops.writing import Readers
from puller.authoring.secrets.recipients import Recipients, load_rules
from puller.errors import SourceError

NAME: Final = ".sops.yaml"
_GROUP_KEYS: Final = ("age", "merge")
_RULE_KEYS: Final = (
    *("path_regex", "age", "key_groups", "shamir_threshold", "mac_only_encrypted", "timeout"),
    *RULES,
)
_SIZE_LIMIT: Final = 1024 * 1024


def find_readers(path: str, recipients: Recipients) -> tuple[Readers, str] | None:
    """Return the readers of a file by its rule, and the file of the rule. ``None`` without a rule.

    Raises ``SourceError``, ``ManifestError`` and ``UsageError``.
    """
    rule = recipients.rule_of(path)
    if rule is not None:
        readers = Readers(recipients.select(rule.readers), rule.rule, rule.mac_only_encrypted)
        return readers, recipients.source
    source = _find(path)
    if source is None:
        return None
    readers_of_sops = _readers(source, path, recipients)
    return None if readers_of_sops is None else (readers_of_sops, source)


def _find(path: str) -> str | None:
    if named := os.environ.get("SOPS_CONFIG"):
        return named
    for start in (os.getcwd(), os.path.dirname(os.path.realpath(path))):
        directory = os.path.realpath(start)
        while True:
            candidate = os.path.join(directory, NAME)
            if os.path.lexists(candidate):
                return candidate
            if directory == (directory := os.path.dirname(directory)):
                break
    return None


def _readers(source: str, path: str, recipients: Recipients) -> Readers | None:
    text, value = load_rules(source)
    rules = (value.get("creation_rules") or []) if isinstance(value, Mapping) else value or []
    if not isinstance(rules, list) or not isinstance(value, Mapping | None):
        raise SourceError("has no list creation_rules", location=Location(source))
    directory = os.path.join(os.path.dirname(os.path.abspath(source)), "")
    relative = os.path.abspath(path).removeprefix(directory)
    for index, rule in enumerate(rules):
        try:
            if not isinstance(rule, Mapping):
                raise ValueError("is not a mapping")
            if is_found(compile_pattern(str(rule.get("path_regex") or "")), relative):
                return _readers_of(rule, recipients)
        except (ValueError, PatternError) as error:
            location = Location(source, *parsing.locate(text, ("creation_rules", index)))
            detail = f"creation rule {index + 1}: {error}"
            raise SourceError(detail, code=ProblemCode.INVALID_VALUE, location=location) from None
    return None


def _readers_of(rule: Mapping[str, Any], recipients: Recipients) -> Readers:
    groups = rule.get("key_groups") or [rule]
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        raise ValueError("key_groups is not a list of mappings")
    if len(groups) > 1 or (rule.get("shamir_threshold") or 1) != 1:
        raise ValueError("several key groups are not supported")
    _require_known(rule, _RULE_KEYS)
    names = (
        _names(rule) if groups[0] is rule else [name for group in groups for name in _names_of_group(group)]
    )
    if not names:
        raise ValueError("has no recipient of age")
    for name in names:
        if not is_recipient(name):
            raise ValueError(f"{name} is not a recipient: expected age1… or ssh-ed25519 …")
    kinds = [kind for kind in RULES if rule.get(kind)]
    if len(kinds) > 1:
        raise ValueError(f"has several of {', '.join(RULES)}, expected one")
    encrypted = Rule(kinds[0], str(rule[kinds[0]])) if kinds else None
    return Readers(
        {name: recipients.name_of(name) for name in names}, encrypted, rule.get("mac_only_encrypted") is True
    )


def _names_of_group(group: Mapping[str, Any]) -> list[str]:
    """Return the recipients of a key group, those of merged groups first."""
    _require_known(group, _GROUP_KEYS)
    merged = group.get("merge") or []
    if not isinstance(merged, list) or not all(isinstance(other, Mapping) for other in merged):
        raise ValueError("merge is not a list of mappings")
    return [*(name for other in merged for name in _names_of_group(other)), *_names(group)]


def _names(keys: Mapping[str, Any]) -> list[str]:
    """Return the recipients in ``age``, which is a text with commas, or a list of such texts."""
    written = keys.get("age") or []
    listed = [written] if isinstance(written, str) else written
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise ValueError("age is not a list of recipients")
    return [normalized(name) for text in listed for name in text.split(",") if name.strip()]


def _require_known(keys: Mapping[str, Any], known: Sequence[str]) -> None:
    if other := [str(name) for name, value in keys.items() if value and name not in known]:
        verb = "is" if len(other) == 1 else "are"
        raise ValueError(f"{' and '.join(other)} {verb} not supported by Puller")
