"""The ``locale`` resource: a locale of the C library, and the variables that use it (``docs/resources/locale.md``).

* ``localedef`` generates the locale, with the arguments of Debian's ``locale-gen``. That program itself removes all
  locales before it generates the first one, so that an interrupted run would leave the machine without them.
* On Debian, ``/etc/locale.gen`` has the locale too. Upgrades of the C library generate its entries again.
* ``localectl`` is not used: it needs a booted machine with D-Bus.
* All locales are changed together: entries first, then generation, then variables, and removals last. A variable
  therefore never has a locale that does not exist.
* On Red Hat, packages contain the locales. A missing locale is an error that names the package.
"""

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from foundation.differences import Difference, added, changed, presence, removed, unified
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context, Declared, Properties, PropertyError, Resource
from puller.resources.claims import Claim, Use, agree
from puller.resources.locale_files import (
    VARIABLES,
    Assignments,
    Entry,
    is_locale,
    normal,
    parse_entries,
    parse_variables,
    with_charset,
    with_entries,
    with_variables,
)
from puller.resources.read_once import EditedFile, ReadOnce
from puller.resources.tool import Tool
from puller.system.local_paths import Spellings
from puller.values.common_properties import Reference

ETC = "/etc"
SOURCES = ("/usr/local/share/i18n", "/usr/share/i18n")
"""Directories with the sources of locales. The first one has those of the administrator."""
ARCHIVE = "/usr/lib/locale/locale-archive"

_ENSURE = ("present", "absent")
_BUILT_IN = ("C", "POSIX", "C.utf8")
"""Locales that the C library always has, as normal names."""
_LIST = Tool("locale")
_DEFINE = Tool("localedef", timeout=300.0)


class LocaleProperties(Properties, frozen=True):
    """The properties of a locale. The name is that of the locale, such as ``en_US.UTF-8``."""

    variables: tuple[str, ...] | None = None
    """The variables with this locale, such as ``LANG`` and ``LC_TIME``. Unset: variables stay as they are."""

    @property
    def assignments(self) -> Assignments:
        """The desired variables."""
        return Assignments(self.name, () if self.ensure == "absent" else self.variables)


class LocaleState(msgspec.Struct, frozen=True):
    """The state of a locale."""

    is_available: bool
    """Whether programs can use it."""
    is_listed: bool | None
    """Whether ``/etc/locale.gen`` has it. ``None``: the machine has no such file, or cannot generate it."""
    variables: tuple[str, ...] = ()
    """The variables with this locale."""
    others: Mapping[str, str] = {}
    """The other variables, with their locales."""


class _Known:
    """The available locales, and those that can be generated. Read again after a change of the run."""

    def __init__(self) -> None:
        self._changes = -1
        self._available: frozenset[str] = frozenset()
        self._supported = ReadOnce([f"{source}/SUPPORTED" for source in SOURCES], _supported)

    @classmethod
    def of(cls, context: Context) -> "_Known":
        known: _Known = context.shared.setdefault(cls, cls())
        return known

    def available(self, context: Context) -> frozenset[str]:
        """Return the normal names of all locales that programs can use. Raises ``ResourceError``."""
        if (changes := context.changes()) != self._changes:
            self._available = frozenset(map(normal, _LIST.query(context.system, "-a").split()))
            self._changes = changes
        return self._available

    def find_entry(self, name: str, context: Context) -> Entry | None:
        """Return the entry that generates a locale. ``None`` if this machine cannot generate it."""
        return self._supported.current(context).get(normal(name))


class Locale(Resource[LocaleProperties, LocaleState]):
    """A locale of the C library."""

    type_name = "locale"
    properties_type = LocaleProperties
    providers = ("glibc",)
    unused = {"absent": frozenset({"variables"})}  # noqa: RUF012  ClassVar in the base class
    removable = True

    def look(self) -> LocaleState:
        name, context, known = normal(self.properties.name), self.context, _Known.of(self.context)
        # A minimal system has no file for a built-in locale, and locale does not list it.
        is_available = self._is_built_in or name in known.available(context)
        entries, variables = self._entries, self._variables.current(context)
        is_listed = None if entries is None else name in entries.current(context)
        if not is_listed and known.find_entry(name, context) is None:
            is_listed = None
        own = tuple(variable for variable, value in variables.items() if normal(value) == name)
        others = {variable: value for variable, value in variables.items() if variable not in own}
        return LocaleState(is_available, is_listed, own, others)

    def differences(self, actual: LocaleState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties, differences = self.properties, list[Difference]()
        if properties.ensure == "absent":
            is_there = actual.is_available or actual.is_listed or bool(actual.variables)
            return [presence("present", "absent")] if is_there else []
        if not actual.is_available:
            differences.append(presence("absent", "present"))
        elif actual.is_listed is False and not self._is_built_in:
            differences.append(added("entry", properties.name, f"{ETC}/locale.gen"))
        for variable in properties.variables or ():
            if variable not in actual.variables:
                current = actual.others.get(variable, "")
                path = self._variables.path
                differences.append(
                    changed(variable, current, properties.name, path)
                    if current
                    else added(variable, properties.name, path)
                )
        if properties.variables is not None:
            extra = sorted({*actual.variables} - {*properties.variables})
            differences += [removed(variable, properties.name, self._variables.path) for variable in extra]
        return differences

    def change(self, differences: Sequence[Difference], actual: LocaleState) -> None:
        """Change this locale alone. Raises ``OSError`` and ``ResourceError``."""
        del differences
        if errors := self.change_together([(self, actual)]):
            raise errors[0]

    @classmethod
    def change_together(cls, members: "Sequence[tuple[Locale, LocaleState]]") -> Mapping[int, Exception]:
        """Change all locales. Return the errors of locales that cannot be changed.

        1. Refuse impossible changes.
        2. Write the entries, so that an upgrade of the C library generates the same locales.
        3. Generate missing locales.
        4. Set the variables.
        5. Remove locales, which no variable has now.
        """
        errors: dict[int, Exception] = {}
        entries: list[Entry] = []
        removals: set[str] = set()
        first, system = members[0][0], members[0][0].context.system
        # 1. Refuse
        for index, (resource, actual) in enumerate(members):
            try:
                entry = resource._possible_entry(actual)
            except ResourceError as error:
                errors[index] = error
                continue
            if resource.properties.ensure == "absent":
                removals.add(normal(resource.properties.name))
            elif entry is not None:
                entries.append(entry)
        # 2. Entries
        if (file := first._entries) is not None:
            file.write(system, partial(with_entries, added=entries, removed=removals))
        # 3. Generation
        for index, (resource, actual) in enumerate(members):
            if index not in errors and resource.properties.ensure == "present" and not actual.is_available:
                try:
                    resource._generate()
                except ResourceError as error:
                    errors[index] = error
        # 4. Variables
        done = [resource for index, (resource, _) in enumerate(members) if index not in errors]
        desired = [resource.properties.assignments for resource in done]
        first._variables.write(system, partial(with_variables, desired=desired))
        # 5. Removal
        for index, (resource, actual) in enumerate(members):
            if index not in errors and resource.properties.ensure == "absent" and actual.is_available:
                resource._remove()
        return errors

    def _generate(self) -> None:
        """Generate the locale. Raises ``ResourceError``."""
        context, known = self.context, _Known.of(self.context)
        entry = known.find_entry(self.properties.name, context)
        assert entry is not None  # noqa: S101 - changes without an entry are refused
        arguments = ("-c", "-i", _source(entry, context), "-f", entry.charset, entry.name)
        completed = _DEFINE.attempt(context.system, *arguments)
        # localedef also fails for a source with a warning, and then generates it anyway.
        if normal(entry.name) not in _Known().available(context):
            _DEFINE.require_success(completed, arguments)
            raise ResourceError(f"localedef has not generated {entry.name}: {completed.tail()}")

    def _remove(self) -> None:
        """Remove the locale from the archive. Raises ``ResourceError``."""
        name, system = self.properties.name, self.context.system
        entry = _Known.of(self.context).find_entry(name, self.context)
        names = {normal(name), *([with_charset(entry)] if entry else [])}
        archived = {*_DEFINE.query(system, "--list-archive").split()}
        for each in sorted(names & archived):
            _DEFINE.execute(system, "--delete-from-archive", each)

    def noop_message(self, differences: Sequence[Difference], actual: LocaleState) -> str:
        self._possible_entry(actual)
        self._variables.plan(
            self.context.system, lambda text: text
        )  # raises for a file that cannot be edited
        name, words = self.properties.name, []
        if self.properties.ensure == "absent":
            return f"Would have removed the locale {name}"
        if not actual.is_available:
            words.append(f"generated the locale {name}")
        elif any(difference.property == "entry" for difference in differences):
            words.append(f"added {name} to {ETC}/locale.gen")
        variables = [each.property for each in differences if each.property in VARIABLES]
        if variables:
            words.append(f"changed {', '.join(variables)} in {self._variables.path}")
        return f"Would have {', would have '.join(words)}"

    def _possible_entry(self, actual: LocaleState) -> Entry | None:
        """Return the entry of the locale. ``None`` if it needs none, or if noop cannot know it.

        Raises ``ResourceError`` if the change would fail.
        """
        properties, context = self.properties, self.context
        if properties.ensure == "absent":
            self._refuse_packaged(actual)
            return None
        if self._is_built_in or (actual.is_available and actual.is_listed is None):
            return None
        entry = _Known.of(context).find_entry(properties.name, context)
        if entry is not None and (actual.is_available or _DEFINE.find()):
            return entry
        if actual.is_available or context.uncertain(f"{SOURCES[-1]}/SUPPORTED"):
            return None
        language = properties.name.partition("_")[0]
        if entry is None and context.system.exists(f"{SOURCES[-1]}/SUPPORTED"):
            raise ResourceError(
                f"unknown locale {properties.name}: {SOURCES[-1]}/SUPPORTED does not list it",
                code=ProblemCode.CHANGE_REFUSED,
            )
        raise ResourceError(
            f"locale {properties.name} is not installed, and this machine cannot generate it",
            code=ProblemCode.MISSING_DEPENDENCY,
            hint=f"install the package locales, on Red Hat glibc-langpack-{language}",
        )

    def _refuse_packaged(self, actual: LocaleState) -> None:
        """Raise ``ResourceError`` if the locale is not in the archive, but in files of a package."""
        name = normal(self.properties.name)
        if actual.is_available and name not in _DEFINE.query(self.context.system, "--list-archive").split():
            raise ResourceError(
                f"locale {self.properties.name} belongs to a package",
                code=ProblemCode.CHANGE_REFUSED,
                hint=f"remove the package, on Red Hat glibc-langpack-{name.partition('_')[0]}",
            )

    @property
    def _is_built_in(self) -> bool:
        return normal(self.properties.name) in _BUILT_IN

    def is_there(self, actual: LocaleState) -> bool:
        return actual.is_available or bool(actual.is_listed)

    def final_ensure(self, actual: LocaleState) -> str:
        return "present" if actual.is_available else "absent"

    def describe(self, actual: LocaleState) -> dict[str, Any]:
        return {"ensure": self.final_ensure(actual), "variables": list(actual.variables)}

    # The edited files

    @property
    def _entries(self) -> EditedFile[dict[str, Entry]] | None:
        """``/etc/locale.gen``. ``None`` on machines whose packages contain the locales."""
        path, system = f"{ETC}/locale.gen", self.context.system
        is_used = _is_debian() and (system.exists(path) or system.exists(f"{SOURCES[-1]}/SUPPORTED"))
        return EditedFile.of(self.context, path, parse_entries) if is_used else None

    @property
    def _variables(self) -> EditedFile[Mapping[str, str]]:
        return EditedFile.of(self.context, _variables_path(), parse_variables)

    def changed_paths(self, actual: LocaleState) -> Iterable[str]:
        """Return whole files: two locales change one variable, so the changes of one cannot be undone alone."""
        entries = self._entries
        is_archive_changed = actual.is_available is not (self.properties.ensure == "present")
        return [
            self._variables.real,
            *([] if entries is None else [entries.real]),
            *([ARCHIVE] if is_archive_changed else []),
        ]

    def diff(self, actual: LocaleState) -> str | None:
        return self.diff_together([(self, actual)])

    @classmethod
    def diff_together(cls, members: "Sequence[tuple[Locale, LocaleState]]") -> str | None:
        first, system = members[0][0], members[0][0].context.system
        entries, removals, desired = list[Entry](), set[str](), list[Assignments]()
        for resource, actual in members:
            try:
                entry = resource._possible_entry(actual)
            except ResourceError:
                continue  # the change of this resource fails
            entries += [entry] if entry else []
            removals |= (
                {normal(resource.properties.name)} if resource.properties.ensure == "absent" else set()
            )
            desired.append(resource.properties.assignments)
        edits: list[tuple[EditedFile[Any] | None, Any]] = [
            (first._entries, partial(with_entries, added=entries, removed=removals)),
            (first._variables, partial(with_variables, desired=desired)),
        ]
        texts = []
        for file, edit in edits:
            if file is not None:
                _, before, after = file.plan(system, edit)
                texts.append(unified(before, after, file.path) if before != after else None)
        return "".join(text for text in texts if text) or None

    # Loading

    @classmethod
    def whole(cls, properties: Any) -> Hashable | None:
        del properties
        return cls.type_name

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        del spellings
        return normal(str(properties.name))

    @classmethod
    def agree(cls, first: LocaleProperties, second: LocaleProperties) -> LocaleProperties:
        return agree(first, second, rules={"variables": _same_variables})

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterator[tuple[Any, Any, str]]:
        """Yield locales that both require one variable."""
        owners: dict[str, LocaleProperties] = {}
        for locale in declared(cls.type_name):
            if not isinstance(locale, LocaleProperties):
                continue
            for variable in locale.assignments.variables or ():
                other = owners.setdefault(variable, locale)
                if other is not locale:
                    yield other, locale, f"sets {variable} to another locale"

    @classmethod
    def follows(cls, properties: LocaleProperties, declared: Declared) -> Iterator[Reference]:
        del declared
        language = properties.name.partition("_")[0]
        for package in ("locales", "locales-all", f"glibc-langpack-{language}", "glibc-locale-source"):
            yield Reference.to("package", package)

    @classmethod
    def places(cls, properties: LocaleProperties) -> Iterable[str]:
        is_set = properties.assignments.variables is not None
        return (f"{ETC}/locale.gen", *([f"{ETC}/default/locale", f"{ETC}/locale.conf"] if is_set else []))

    @classmethod
    def subjects(cls, properties: LocaleProperties) -> Iterable[str]:
        return (*cls.places(properties), ARCHIVE, "package")

    @classmethod
    def claims(cls, properties: LocaleProperties) -> Iterator[Claim]:
        use = Use.PART if properties.ensure == "present" else Use.REMOVED_PART
        lines = tuple(f"{variable}={properties.name}" for variable in properties.assignments.variables or ())
        entries, *files = cls.places(properties)
        yield Claim(entries, use, editor=cls.type_name)
        for path in files:
            yield Claim(path, use, editor=cls.type_name, lines=lambda: lines)

    @classmethod
    def is_whole(cls, properties: LocaleProperties) -> bool:
        del properties
        return False

    @classmethod
    def check(cls, properties: LocaleProperties) -> Iterator[PropertyError]:
        name, ensure, variables = properties.name, properties.ensure, properties.variables or ()
        if not is_locale(name) and name not in _BUILT_IN:
            yield PropertyError("name", f"is {name!r}", expected="a locale such as 'en_US.UTF-8'")
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        if ensure == "absent" and normal(name) in _BUILT_IN:
            yield PropertyError("ensure", "is 'absent', and each machine has this locale", because=["name"])
        for variable in variables:
            if variable not in VARIABLES:
                yield PropertyError(
                    "variables", f"has {variable!r}", expected=f"LANG or one of {', '.join(VARIABLES[1:])}"
                )
        if len({*variables}) < len(variables):
            yield PropertyError("variables", "has one name twice")


class LeftoverLocale(Locale):
    """A locale that Puller generated, to be ``absent``."""

    @classmethod
    def claims(cls, properties: LocaleProperties) -> Iterator[Claim]:
        del properties
        return iter(())

    @classmethod
    def places(cls, properties: LocaleProperties) -> Iterable[str]:
        del properties
        return ()


def _same_variables(first: Any, other: Any) -> Any:
    if sorted(first or ()) != sorted(other or ()) or None in (first, other):
        if first is None or other is None:
            return other if first is None else first
        raise ValueError("two lists of variables")
    return tuple(sorted(first))


def _supported(contents: Mapping[str, bytes]) -> dict[str, Entry]:
    result: dict[str, Entry] = {}
    for content in reversed([*contents.values()]):  # the first source has precedence
        result |= parse_entries(content.decode("utf-8", "replace"))
    return result


def _source(entry: Entry, context: Context) -> str:
    """Return the source of a locale, as Debian's locale-gen finds it: with the whole name, or without the charset."""
    base, _, rest = entry.name.partition(".")
    modifier = f"@{rest.partition('@')[2]}" if "@" in rest else ""
    for name in (entry.name, f"{base}{modifier}"):
        for source in SOURCES:
            if context.system.exists(path := f"{source}/locales/{name}"):
                return path
    raise ResourceError(
        f"the source of locale {entry.name} is missing in {SOURCES[-1]}/locales",
        hint="install the package locales, on Red Hat glibc-locale-source",
    )


def _is_debian() -> bool:
    return os.path.lexists(f"{ETC}/debian_version")


def _variables_path() -> str:
    """Return the file with the variables that this machine reads.

    Debian's login programs read ``/etc/default/locale``. Where it is a link, systemd reads its target.
    """
    path = f"{ETC}/default/locale"
    if not _is_debian():
        return f"{ETC}/locale.conf"
    is_new_link = os.path.islink(path) and not os.path.exists(path)
    return os.path.normpath(os.path.join(f"{ETC}/default", os.readlink(path))) if is_new_link else path
