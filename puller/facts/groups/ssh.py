"""``ssh``: the public host keys, with the fingerprints for SSHFP records (RFC 4255, RFC 6594, RFC 7479)."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puller.facts.machine import Machine

_DIRECTORY = "/etc/ssh"

# Facter's name of a key, and the number of its algorithm in SSHFP records.
_KINDS = {"rsa": 1, "dsa": 2, "ecdsa": 3, "ed25519": 4}


def ssh(machine: Machine) -> dict[str, Any]:
    """Return the group ``ssh``, which requires host keys."""
    keys = {kind: machine.value(f"{_DIRECTORY}/ssh_host_{kind}_key.pub") for kind in _KINDS}
    facts = {kind: _key(kind, line) for kind, line in keys.items() if line and len(line.split()) > 1}
    return {"ssh": facts} if facts else {}


def _key(kind: str, line: str) -> dict[str, Any]:
    algorithm, key = line.split()[:2]
    data = b64decode(key)
    # The record's format requires SHA-1. Trust does not depend on it.
    sha1 = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    sha256 = hashlib.sha256(data).hexdigest()
    number = _KINDS[kind]
    return {
        "type": algorithm,
        "key": key,
        "fingerprints": {"sha1": f"SSHFP {number} 1 {sha1}", "sha256": f"SSHFP {number} 2 {sha256}"},
    }
