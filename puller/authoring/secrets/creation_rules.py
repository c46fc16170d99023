"""Readers of a file by its rule: ``recipients.yaml`` first, then the creation rules of SOPS in ``.sops.yaml``.

* As in SOPS, the first rule whose ``path_regex`` is found in the path applies. The path is relative to the directory of
  ``.sops.yaml``. This is ``$SOPS_CONFIG``, or the nearest file above the working directory. Without either, it is the
  nearest file above the encrypted file.
* A rule with recipients of other kinds, such as PGP, is an error. A file without these recipients would be unreadable
  for them.

Source: https://github.com/getsops/sops, ``config/config.go``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from foundation.problems import Location, ProblemCode
from hiera import parsing, regex
from hiera.errors import HieraError
from hiera.sops.format import RULES, Rule
from hiera.sops.identities import is_recipient
from hiera.sops.writing import Readers
from puller.authoring.secrets.recipients import Recipients, load_rules
from puller.errors import SourceError

NAME: Final = ".sops.yaml"
_OTHER_KINDS: Final = (
    "pgp",
    "kms",
    "aws_profile",
    "gcp_kms",
    "hckms",
    "azure_keyvault",
    "hc_vault_transit_uri",
    "unencrypted_comment_regex",
    "encrypted_comment_regex",
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
    rules = value.get("creation_rules") if isinstance(value, Mapping) else None
    if not isinstance(rules, list):
        raise SourceError("has no list creation_rules", location=Location(source))
    relative = os.path.relpath(os.path.realpath(path), os.path.dirname(os.path.realpath(source)))
    for index, rule in enumerate(rules):
        try:
            if not isinstance(rule, Mapping):
                raise ValueError("is not a mapping")
            pattern = re.compile(str(rule.get("path_regex") or ""))
            if regex.is_found(pattern, relative):
                return _readers_of(rule, recipients)
        except (ValueError, re.error, HieraError) as error:
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
    if other := [name for name in _OTHER_KINDS if rule.get(name) or groups[0].get(name)]:
        raise ValueError(f"{' and '.join(dict.fromkeys(other))} are not supported, only age")
    keys = groups[0].get("age") or ()
    listed = keys.split(",") if isinstance(keys, str) else keys
    if not isinstance(listed, list | tuple):
        raise ValueError("age is not a list of recipients")
    names = [" ".join(str(key).split()[:2]) for key in listed]
    names = [name for name in names if name]
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
