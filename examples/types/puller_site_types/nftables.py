"""Packet filters of nftables: a table, and its chains, sets and rules from any number of bundles.

* The table loads all its parts as one transaction of the kernel, so that packets meet the old or the new rules.
* The kernel itself is compared. The desired rules are loaded into an empty network namespace, and both listings are
  compared. A change by hand is therefore found, and the spelling of a rule never matters.
* Invalid rules fail before the first change, also in a dry run. The running rules stay.
* A file below ``/etc/nftables.d`` loads the table at boot.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence, unified, unknown
from puller.errors import ResourceError
from puller.resources.base import Properties, PropertyError, Resource, Stateless, missing_property
from puller.resources.claims import Claim, Use
from puller.resources.tool import Tool
from puller.system.protocol import Attributes
from puller.values.common_properties import Reference

DIRECTORY = "/etc/nftables.d"

_NFT = Tool("nft")
_UNSHARE = Tool("unshare")
_IN_NAMESPACE = 'nft -f - && exec nft -s list table "$1" "$2"'
_ENSURE = ("present", "absent")
_FAMILIES = ("ip", "ip6", "inet", "arp", "bridge")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")
_TYPE = re.compile(r"[a-z0-9_]+(?: \. [a-z0-9_]+)*")
_ELEMENT = re.compile(r"[^{};#\"\s,][^{};#\"\n,]*")
_QUOTED = re.compile(r'"[^"]*"')
_ERROR = re.compile(r"/dev/stdin:(?P<line>[0-9]+):[0-9-]+: Error: (?P<text>.*)")
_SET = re.compile(r"(?ms)^\tset \S+ \{\n.*?^\t\}\n")
_ELEMENTS = re.compile(r"(?ms)^\t\telements = \{.*?\}\n")


class Line(NamedTuple):
    """A line of the script, and the resource that it comes from."""

    text: str
    reference: str = ""


# Parts


class NftPartProperties(Properties, frozen=True):
    """The properties of all parts of a table."""

    @property
    def table(self) -> str:
        """The table: the first two words of the name."""
        return " ".join(self.name.split(" ")[:2])


class NftChainProperties(NftPartProperties, frozen=True):
    """The properties of a chain. The name has family, table and chain: ``inet site input``."""

    hook: str | None = None
    """The hook, such as ``input``. Unset: only rules lead to the chain."""
    type: str = "filter"
    """``filter``, ``nat`` or ``route``."""
    priority: str | int = 0
    """The order among chains of the hook: a number, or a name such as ``srcnat``."""
    policy: str | None = None
    """The verdict for packets that no rule decides: ``accept`` or ``drop``."""


class NftSetProperties(NftPartProperties, frozen=True):
    """The properties of a set. The name has family, table and set: ``inet site admins``."""

    type: str = ""
    """The type of its elements, such as ``ipv4_addr`` or ``ipv4_addr . inet_service``."""
    flags: tuple[str, ...] = ()
    """``interval`` for ranges and networks, ``dynamic`` and ``timeout`` for elements that rules add."""
    timeout: str | None = None
    """The lifetime of elements that rules add, such as ``1h``."""
    elements: tuple[str, ...] = ()
    """The elements."""


class NftRuleProperties(Properties, frozen=True):
    """The properties of a rule. The name is any text, which identifies the rule."""

    chain: str = ""
    """The chain, with family and table: ``inet site input``."""
    rule: str = ""
    """The rule, as in nft(8): ``tcp dport 22 accept``."""
    order: int = 50
    """The position in the chain. Rules with one position are sorted by name."""

    @property
    def table(self) -> str:
        """The table: the first two words of the chain."""
        return " ".join(self.chain.split(" ")[:2])


class NftPart(Stateless[Any]):
    """A part of a table. The table loads it."""

    part_property = "name"

    @classmethod
    def part_of(cls, properties: Any) -> Reference | None:
        return Reference.to("nft_table", properties.table) if properties.ensure == "present" else None

    @classmethod
    def check(cls, properties: Any) -> Iterator[PropertyError]:
        if properties.ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
        name = getattr(properties, cls.part_property)
        if not is_name(name, words=3):
            expected = "family, table and name, such as 'inet site input'"
            yield PropertyError(cls.part_property, f"is {name!r}", expected=expected)


class NftChain(NftPart):
    """A chain of a table."""

    type_name = "nft_chain"
    properties_type = NftChainProperties

    @classmethod
    def check(cls, properties: NftChainProperties) -> Iterator[PropertyError]:
        yield from super().check(properties)
        if properties.hook is None:
            if properties.policy is not None:
                yield missing_property("hook", because=["policy"], expected="a hook such as 'input'")
            return
        for name, value in (("hook", properties.hook), ("type", properties.type)):
            if not _WORD.fullmatch(value):
                yield PropertyError(name, f"is {value!r}", expected="a word such as 'filter'")
        if not re.fullmatch(r"-?[0-9]{1,9}|[a-z]+(?: [+-] [0-9]{1,9})?", str(properties.priority)):
            yield PropertyError("priority", f"is {properties.priority!r}", expected="a number or a name")
        if properties.policy not in (None, "accept", "drop"):
            yield PropertyError("policy", f"is {properties.policy!r}", expected="accept or drop")


class NftSet(NftPart):
    """A set of a table."""

    type_name = "nft_set"
    properties_type = NftSetProperties
    unused = {"absent": frozenset({"type", "flags", "timeout", "elements"})}  # noqa: RUF012  ClassVar in the base class

    @classmethod
    def check(cls, properties: NftSetProperties) -> Iterator[PropertyError]:
        yield from super().check(properties)
        if properties.ensure == "present" and not properties.type:
            yield missing_property("type", because=["ensure"], expected="a type such as 'ipv4_addr'")
        elif properties.type and not _TYPE.fullmatch(properties.type):
            yield PropertyError("type", f"is {properties.type!r}", expected="a type such as 'ipv4_addr'")
        for flag in properties.flags:
            if flag not in ("constant", "interval", "dynamic", "timeout"):
                yield PropertyError(
                    "flags", f"has {flag!r}", expected="constant, interval, dynamic or timeout"
                )
        if properties.timeout is not None and not re.fullmatch(r"(?:[0-9]+[dhms])+", properties.timeout):
            yield PropertyError("timeout", f"is {properties.timeout!r}", expected="a duration such as '1h'")
        for element in properties.elements:
            if not _ELEMENT.fullmatch(element):
                yield PropertyError("elements", f"has {element!r}", expected="one element")


class NftRule(NftPart):
    """A rule of a chain."""

    type_name = "nft_rule"
    properties_type = NftRuleProperties
    part_property = "chain"
    unused = {"absent": frozenset({"rule"})}  # noqa: RUF012  ClassVar in the base class

    @classmethod
    def check(cls, properties: NftRuleProperties) -> Iterator[PropertyError]:
        yield from super().check(properties)
        if properties.ensure == "present" and not properties.rule.strip():
            yield missing_property(
                "rule", because=["ensure"], expected="a rule such as 'tcp dport 22 accept'"
            )
        elif not is_one_statement(properties.rule):
            yield PropertyError(
                "rule", f"is {properties.rule!r}", expected="one rule on one line, without comments"
            )


# The table


class NftTableProperties(Properties, frozen=True):
    """The properties of a table. The name has the family and the table: ``inet site``."""

    content: str | None = None
    """The chains and sets as text of nft(8), instead of parts of other resources."""

    @property
    def path(self) -> str:
        """The file that loads the table at boot."""
        return f"{DIRECTORY}/{self.name.replace(' ', '-')}.nft"


class NftTableState(msgspec.Struct, frozen=True):
    """The running and the desired table."""

    listing: str | None
    """The running table. ``None``: there is no such table."""
    desired: str | None
    """The desired table as the kernel lists it. ``None``: a dry run cannot know it."""
    script: str
    """The text that loads the desired table."""
    file: str | None
    """The text of the file. ``None``: the file is missing."""
    status: os.stat_result | None


class NftTable(Resource[NftTableProperties, NftTableState]):
    """A table of nftables."""

    type_name = "nft_table"
    properties_type = NftTableProperties
    providers = ("nft",)
    removable = True

    @classmethod
    def joins_parts(cls, properties: NftTableProperties) -> bool:
        return properties.ensure == "present" and properties.content is None

    def look(self) -> NftTableState:
        """Return both tables. Raises ``OSError``, and ``ResourceError`` for invalid rules."""
        properties, system = self.properties, self.context.system
        status = system.lstat(properties.path)
        file = None if status is None else system.read(properties.path).decode(errors="surrogateescape")
        listing = self._listing()
        if properties.ensure == "absent":
            return NftTableState(listing, None, "", file, status)
        lines = self._lines()
        if lines is None:
            return NftTableState(listing, None, "", file, status)
        script = "".join(f"{line.text}\n" for line in lines)
        return NftTableState(listing, self._desired(lines, script), script, file, status)

    def _listing(self) -> str | None:
        """Return the running table. ``None`` if there is none."""
        system, name = self.context.system, self.properties.name
        if _NFT.find() is None and (self.context.noop or self.properties.ensure == "absent"):
            return None  # an earlier resource may install it, and without it no table was loaded
        if f"table {name}" not in _NFT.query(system, "list", "tables").splitlines():
            return None
        return comparable(_NFT.query(system, "-s", "list", "table", *name.split(" ")))

    def _desired(self, lines: Sequence[Line], script: str) -> str | None:
        """Return the desired table as the kernel lists it. ``None``: a dry run cannot know it."""
        system, words = self.context.system, self.properties.name.split(" ")
        if _NFT.find() is None and self.context.noop and self.context.uncertain("/usr/sbin/nft"):
            return None
        try:
            text = _UNSHARE.query(system, "--net", "--", "sh", "-c", _IN_NAMESPACE, "sh", *words, text=script)
        except ResourceError as error:
            raise _explained(error, lines) from None
        return comparable(text)

    def _lines(self) -> list[Line] | None:
        """Return the script. ``None``: a dry run cannot know one of the parts. Raises ``ResourceError``."""
        properties, name = self.properties, self.properties.name
        if properties.content is not None:
            body = [Line(line) for line in properties.content.splitlines()]
        else:
            parts = self.context.joined_parts(f"{self.type_name}#{name}")
            if parts is None:
                return None
            body = list(_body([(part.type_name, part.properties) for part in parts]))
        # The first line makes the second one valid without a table. All of it is one transaction.
        return [
            Line(f"table {name}"),
            Line(f"delete table {name}"),
            Line(f"table {name} {{"),
            *body,
            Line("}"),
        ]

    def differences(self, actual: NftTableState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        if self.properties.ensure == "absent":
            is_there = actual.listing is not None or actual.file is not None
            return [presence("present", ABSENT)] if is_there else []
        differences = []
        if actual.desired is None:
            return [unknown("rules", "an earlier resource determines them")]
        if actual.listing is None:
            differences.append(presence(ABSENT, "present"))
        elif actual.listing != actual.desired:
            differences.append(changed("rules", _digest(actual.listing), _digest(actual.desired)))
        if actual.file != actual.script:
            path = self.properties.path
            current = ABSENT if actual.file is None else "other content"
            differences.append(changed("file", current, "these rules", path))
        return differences

    def change(self, differences: Sequence[Difference], actual: NftTableState) -> None:
        """Load the table. Raises ``OSError`` and ``ResourceError``.

        1. Check the script in this network namespace, which has other interfaces than an empty one.
        2. Load it, as one transaction.
        3. Write the file, so that a failure leaves the file of the running rules.
        """
        del differences
        system, properties = self.context.system, self.properties
        if properties.ensure == "absent":
            if actual.listing is not None:
                _NFT.execute(system, "delete", "table", *properties.name.split(" "))
            if actual.status is not None:
                system.remove(properties.path, actual.status)
            return
        if actual.listing != actual.desired:
            # 1. Check
            _NFT.query(system, "-c", "-f", "-", text=actual.script)
            # 2. Load
            _NFT.execute(system, "-f", "-", text=actual.script)
        # 3. File
        if actual.file != actual.script:
            owner = (os.geteuid(), os.getegid())
            if not system.is_directory(DIRECTORY):
                system.make_directory(DIRECTORY, Attributes(*owner, 0o755))
            system.replace_file(
                properties.path, [actual.script.encode()], Attributes(*owner, 0o644), actual.status
            )

    def noop_message(self, differences: Sequence[Difference], actual: NftTableState) -> str:
        del differences
        name = self.properties.name
        if self.properties.ensure == "absent":
            return f"Would have removed the table {name}"
        if actual.desired is None or actual.listing != actual.desired:
            return f"Would have loaded the table {name}"
        return f"Would have written {self.properties.path}"

    def diff(self, actual: NftTableState) -> str | None:
        if actual.desired is None or actual.listing == actual.desired:
            return None
        before, after = (actual.listing or "").encode(), actual.desired.encode()
        return unified(before, after, f"table {self.properties.name}")

    def final_ensure(self, actual: NftTableState) -> str:
        return "absent" if actual.listing is None else "present"

    def is_there(self, actual: NftTableState) -> bool:
        return actual.listing is not None or actual.file is not None

    def describe(self, actual: NftTableState) -> dict[str, Any]:
        return {"ensure": self.final_ensure(actual), "rules": actual.listing or ""}

    def changed_paths(self, actual: NftTableState) -> None:
        """Return ``None``: the kernel has no path for a table."""
        del actual

    def way_back(self, actual: NftTableState) -> NftTableProperties | None:
        if actual.listing is None:
            return None
        body = actual.listing.rstrip("\n").split("\n")[1:-1]
        return NftTableProperties(name=self.properties.name, content="\n".join(body))

    @classmethod
    def claims(cls, properties: NftTableProperties) -> Iterator[Claim]:
        yield Claim(properties.path, Use.WHOLE if properties.ensure == "present" else Use.ABSENT)

    @classmethod
    def places(cls, properties: NftTableProperties) -> Iterable[str]:
        return (properties.path,)

    @classmethod
    def subjects(cls, properties: NftTableProperties) -> Iterable[str]:
        return (properties.path, "nftables")

    @classmethod
    def follows(cls, properties: NftTableProperties, declared: Any) -> Iterator[Reference]:
        """Yield the package, and the service, which removes all tables when it starts."""
        del properties, declared
        yield Reference.to("package", "nftables")
        yield Reference.to("service", "nftables")

    @classmethod
    def check(cls, properties: NftTableProperties) -> Iterator[PropertyError]:
        if properties.ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
        if not is_name(properties.name, words=2):
            expected = f"a family ({', '.join(_FAMILIES)}) and a word, such as 'inet site'"
            yield PropertyError("name", f"is {properties.name!r}", expected=expected)
        content = _QUOTED.sub("", properties.content or "")
        if content.count("{") != content.count("}"):
            yield PropertyError("content", "has a brace without its counterpart", expected="chains and sets")


def _body(parts: Sequence[tuple[str, Any]]) -> Iterator[Line]:
    """Yield the sets and chains. Raises ``ResourceError`` for a rule without its chain."""
    chains = {each.name: each for kind, each in parts if kind == NftChain.type_name}
    rules: dict[str, list[NftRuleProperties]] = {name: [] for name in chains}
    for kind, each in parts:
        if kind == NftRule.type_name:
            if each.chain not in chains:
                raise ResourceError(f"{kind}#{each.name}: chain {each.chain!r} is not declared")
            rules[each.chain].append(each)
    sets = (each for kind, each in parts if kind == NftSet.type_name)
    for each in sorted(sets, key=lambda each: str(each.name)):
        reference, word = f"{NftSet.type_name}#{each.name}", each.name.split(" ")[2]
        options = [f"type {each.type}", *([f"flags {', '.join(each.flags)}"] if each.flags else [])]
        options += [f"timeout {each.timeout}"] if each.timeout else []
        options += [f"elements = {{ {', '.join(each.elements)} }}"] if each.elements else []
        yield Line(f"\tset {word} {{ {'; '.join(options)}; }}", reference)
    # All chains come first, because a chain must exist before a rule leads to it.
    for name, chain in sorted(chains.items()):
        yield Line(f"\tchain {name.split(' ')[2]} {{{_hook(chain)} }}", f"{NftChain.type_name}#{name}")
    for name in sorted(chains):
        yield Line(f"\tchain {name.split(' ')[2]} {{", f"{NftChain.type_name}#{name}")
        for rule in sorted(rules[name], key=lambda rule: (rule.order, rule.name)):
            yield Line(f"\t\t{rule.rule}", f"{NftRule.type_name}#{rule.name}")
        yield Line("\t}")


def _hook(chain: NftChainProperties) -> str:
    if chain.hook is None:
        return ""
    policy = f" policy {chain.policy};" if chain.policy else ""
    return f" type {chain.type} hook {chain.hook} priority {chain.priority};{policy}"


def _explained(error: ResourceError, lines: Sequence[Line]) -> ResourceError:
    """Return the error of nft with the resource that the first wrong line comes from."""
    match = _ERROR.search(str(error))
    if match is None or not 0 < int(match["line"]) <= len(lines):
        return error
    line = lines[int(match["line"]) - 1]
    return ResourceError(f"{line.reference or 'content'}: nft rejects {line.text.strip()!r}: {match['text']}")


def is_name(name: str, *, words: int) -> bool:
    """Return whether a name has a family and further words, with single blanks between them."""
    family, *others = name.split(" ")
    return family in _FAMILIES and len(others) == words - 1 and all(map(_WORD.fullmatch, others))


def is_one_statement(rule: str) -> bool:
    """Return whether a rule cannot end its own line or chain."""
    text, depth = _QUOTED.sub("", rule), 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0 and text.isprintable() and not any(character in text for character in ';#"\\')


def comparable(listing: str) -> str:
    """Return a listing without the elements of sets whose elements come from packets."""

    def static(match: re.Match[str]) -> str:
        is_dynamic = re.search(r"(?m)^\t\t(?:flags .*\b(?:dynamic|timeout)\b|timeout )", match[0])
        return _ELEMENTS.sub("", match[0]) if is_dynamic else match[0]

    return _SET.sub(static, listing)


def _digest(listing: str) -> str:
    return hashlib.sha256(listing.encode()).hexdigest()[:8]
