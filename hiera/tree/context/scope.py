"""The variables that an interpolation sees, as ``puppet lookup`` makes them from facts.

* Every fact is a variable of its name; ``facts``, ``trusted``, ``environment`` and ``server_facts`` are no facts'.
* Facts are cleaned as Puppet cleans them: null is the empty text, and what is no plain value is its text.
* A fact is asked for when something uses it, not before: gathering may be slow.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hiera.errors import DocumentError
from hiera.tree.context.absent import ABSENT, Absent
from hiera.tree.ruby import values

IDENTITY = ("hostname", "domain", "fqdn", "clientcert")


class Facts(Mapping[str, Any]):
    """Cleaned facts, each cleaned when it is first asked for."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self._clean: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._clean:
            self._clean[name] = _clean(self._facts[name])
        return self._clean[name]

    def __contains__(self, name: object) -> bool:
        return name in self._facts

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


class Scope:
    """Variables by name, with or without a leading ``::``."""

    def __init__(
        self, facts: Mapping[str, Any], *, environment: str = "production", certname: str | None = None
    ) -> None:
        """``certname`` is the trusted name of a host that has no fact ``clientcert``."""
        self._facts = Facts(facts)
        self._certname = certname
        self._local: dict[str, Any] = {}
        self._fixed: dict[str, Any] = {
            "facts": self._facts,
            "environment": environment,
            "server_facts": {},
            **_COMPILER,
            "settings::environment": environment,
        }

    def get(self, name: str) -> Any | Absent:
        """The value of a variable; ``ABSENT`` when there is none."""
        while name.startswith("::"):
            name = name[2:]
        for variables in (self._local, self._fixed):
            if name in variables:
                return variables[name]
        if name == "trusted":
            self._fixed[name] = self._trusted()
            return self._fixed[name]
        # Facts are variables of the top scope; a qualified name is one of a class, and no class is evaluated.
        return self._facts.get(name, ABSENT) if "::" not in name else ABSENT

    @contextmanager
    def binding(self, name: str, value: Any) -> Iterator[None]:
        """``name`` is ``value`` while the block runs, whatever the facts say."""
        self._local = {name.removeprefix("::"): value}
        try:
            yield
        finally:
            self._local = {}

    def _trusted(self) -> dict[str, Any]:
        given = self._facts.get("trusted")
        # As puppet lookup, which runs as root, takes the fact for the certificate's word.
        if isinstance(given, dict) and {"authenticated", "certname", "extensions"} <= given.keys():
            return given
        certname = self._facts.get("clientcert", self._certname)
        hostname, _, domain = values.to_s(certname).partition(".")
        return {
            "authenticated": "local",
            "certname": certname,
            "extensions": {},
            "hostname": hostname or None,
            "domain": domain or None,
            "external": {},
        }


# What the compiler, which puppet lookup asks through, has of its own.
_COMPILER = {"module_name": "", "caller_module_name": "", "name": "main", "title": "main"}


def verify_complete(facts: Mapping[str, Any]) -> None:
    """Facts that stand alone are some, and name the host wholly or not at all; raises ``DocumentError`` otherwise."""
    if not facts:
        raise DocumentError("facts", "No facts available for target node: not a single one is given")
    missing = [name for name in IDENTITY if name not in facts]
    if missing and len(missing) < len(IDENTITY):
        wanted = (
            f"When overriding any of the {','.join(IDENTITY)} facts with a file, they must all be overridden"
        )
        raise DocumentError("facts", f"{wanted}: {', '.join(missing)} is missing")


def _clean(value: Any) -> Any:
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return Facts(
            value
        )  # who hands in a mapping of its own wants to be asked for what is used, and no more
    if isinstance(value, dict):
        return {values.key(_clean(name)): _clean(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return values.to_s(value)
