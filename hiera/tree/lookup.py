"""Lookup of keys in a Hiera 5 tree.

::

    tree = Tree(facts, environment="/etc/puppetlabs/code/environments/production")
    workers = tree.lookup("nginx::workers", default=4)

* The lookup searches the global layer, the environment and then the module. The data can choose how values are merged
  and converted (``lookup_options``).
* The result is a value. If the caller passes a ``Step``, the same code also records each step below it.
* Every exception is a ``HieraError``, for any content of the files.

A lookup follows the order of Puppet's ``lookup`` function. The numbers appear in the code, here and in the named
modules:

1. A name in ``override`` returns its value unchanged, without merging, interpolation or conversion.
2. ``lookup_options`` is not a valid key for callers.
3. The key is split into its root, which the files contain, and segments that dig into the value
   (``context.explain``).
4. The options of the root are read: ``lookup_options`` of the global layer and the environment, merged as hashes. For
   a key of a module, the options of the module are added with the lowest priority.
5. The strategy comes from the caller, or else from the options, or else is ``first`` (``strategies``).
6. The strategy searches the layers: global, environment, module (``layout``).
7. In a layer it searches the levels of the hierarchy in order, and 7a in a level its files in order (``layers``).
8. For a file, the level's function is called: 8a it reads the file, 8b the value is checked to be data, and 8c it is
   interpolated, which can look up other keys (``backends``, ``context.interpolation``).
9. The remaining segments dig into the merged value.
10. A missing key is searched for in the module's default hierarchy, with its own options and strategy.
11. The value is converted as the options require (``convert_to``).
12. A missing name gets its value from ``default_values``, 12a or else from ``default``, 12b or else is missing.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from foundation.problems import Problem
from hiera import regex
from hiera.errors import HieraError, KeyNotFound, LimitError, LookupFailure
from hiera.sops.identities import NO_IDENTITIES, Identities
from hiera.tree import explain, puppet_convert, puppet_types, ruby_values, strategies
from hiera.tree.backends import DataFiles, Tools
from hiera.tree.explain import ABSENT, SILENT, Absent, Key, Step
from hiera.tree.interpolation import (
    Given,
    Interpolator,
    Invocation,
    Outer,
    Place,
    Scope,
    Warn,
    deep_recursion,
)
from hiera.tree.layers import Holder, Layer, Layout
from hiera.tree.locations import Documents, Files
from hiera.tree.strategies import HASH, Merge, Strategy
from hiera.values import MISSING

# ``lookup_options``: how a key is merged and converted, as defined in the data.
#
# * An entry for the exact key wins over patterns, which begin with ``^``. The first matching pattern wins, in the
#   order of the merged options, which starts with the lowest level. Entries are never combined.
# * The options of a module apply to the keys of that module only.

NAME = "lookup_options"


class LookupOptions:
    """Merged options, with patterns compiled."""

    def __init__(self, options: Mapping[Any, Any] | None) -> None:
        self._exact: dict[str, Any] = {}
        self._patterns: list[re.Pattern[str]] = []
        self._values: list[Any] = []
        for name, value in (options or {}).items():
            if not isinstance(name, str):
                raise LookupFailure(NAME, f"the key {ruby_values.inspect(name)} is not text. Quote it")
            if name.startswith("^"):
                self._patterns.append(ruby_values.compiled(name))
                self._values.append(value)
            else:
                self._exact[name] = value

    def entry(self, root: str) -> Any:
        """Return the options for the key ``root``, or null."""
        exact = self._exact.get(root)
        if exact is not None:
            return exact
        number = regex.find_first(self._patterns, root)
        return None if number is None else self._values[number]

    def option(self, root: str, name: str) -> Any:
        """Return the option ``merge`` or ``convert_to`` for the key ``root``, or null. Raises ``LookupFailure``."""
        entry = self.entry(root)
        if isinstance(entry, Mapping):
            return entry.get(name)
        if isinstance(entry, str):  # as in Ruby, where a text's index by a text is a substring
            return name if name in entry else None
        if entry is None or entry is False:
            return None
        detail = (
            f"the options are {ruby_values.inspect(entry)}, expected a mapping with 'merge' or 'convert_to'"
        )
        raise LookupFailure(f"{NAME}: {root}", detail)


def verified(options: Any | Absent, module: str | None) -> Mapping[Any, Any] | None:
    """Return the checked ``lookup_options`` of a layer, ``None`` for null or absent. Raises ``LookupFailure``."""
    if options is None or options is ABSENT:
        return None
    if not isinstance(options, Mapping):
        raise LookupFailure("", f"value of {NAME} must be a hash")
    for name in options if module else ():
        _verify_own(name, module)
    return options


def _verify_own(name: Any, module: str | None) -> None:
    if not isinstance(name, str):
        raise LookupFailure(NAME, f"the key {ruby_values.inspect(name)} is not text. Quote it")
    if name.startswith((f"{module}::", f"^{module}::")):
        return
    if name.startswith("^"):
        detail = f"all {NAME} patterns must match a key starting with module name '{module}'"
    else:
        detail = f"all {NAME} keys must start with module name '{module}'"
    raise LookupFailure("", f"{detail}: '{name}' does not")


_OPTIONS = explain.parse(NAME)


class Tree:
    """One environment's data for one host. Files are read when needed and then cached."""

    def __init__(
        self,
        facts: Mapping[str, Any],
        *,
        environment: str | None = None,
        config_path: str | None = None,
        global_config: str | None = None,
        module_path: Sequence[str] = (),
        environment_name: str = "production",
        certname: str | None = None,
        private_key: str | None = None,
        identities: Identities = NO_IDENTITIES,
        documents: Documents | None = None,
        warn: Warn | None = None,
    ) -> None:
        """``environment`` is a directory with a ``hiera.yaml``, ``global_config`` the global ``hiera.yaml``.

        ``config_path`` is the environment's configuration if it has another name. ``module_path`` comes before the path
        in ``environment.conf``. ``certname`` is the trusted name of a host whose facts lack ``clientcert``.
        ``private_key`` is the path of the eyaml key for levels without their own key. ``identities`` open files that
        SOPS encrypted. ``documents`` reads the files, by default from the disk. ``warn`` receives each of Puppet's
        warnings once.
        """
        self._said: set[Problem] = set()
        self._tell = warn
        scope = Scope(facts, environment=environment_name, certname=certname)
        interpolator = Interpolator(scope, self._answer_data, self._warn)
        files = DataFiles(documents or Files(), self._warn, identities)
        self._layout = Layout(
            environment,
            config_path,
            global_config,
            module_path,
            Tools(files, interpolator, self._warn, private_key),
        )
        self._options: dict[str | None, LookupOptions] = {}
        self._default_options: dict[str, LookupOptions] = {}
        self._outer_options: Mapping[Any, Any] | Absent | None = ABSENT

    def _warn(self, problem: Problem) -> None:
        if self._tell and problem not in self._said:
            self._said.add(problem)
            self._tell(problem)

    def lookup(
        self,
        *names: str,
        merge: Merge = None,
        default: Any = ABSENT,
        override: Mapping[str, Any] | None = None,
        default_values: Mapping[str, Any] | None = None,
        value_type: str | None = None,
        step: Step | None = None,
        outer: Outer | None = None,
    ) -> Any:
        """Return the value of the first existing key of ``names``. Null is a value.

        ``merge`` is a strategy or a mapping with ``strategy`` and its options. It overrides the strategy in the data.
        ``override`` has priority over the data. ``default_values``, then ``default``, come after the data.
        ``value_type`` is a Puppet type expression that the value must match. ``outer`` answers ``%{lookup('key')}``
        before the tree does, for whole keys. ``step`` records the lookup. Raises ``KeyNotFound``, or another
        ``HieraError``.
        """
        place = " or ".join(names)
        step = SILENT if step is None else step
        try:
            with deep_recursion():
                value = self._answer(
                    names, merge, Invocation(override, default_values, outer), step, value_type
                )
            if value is ABSENT and default is not ABSENT:  # 12a.
                value = _verified("Default value", default, value_type)
        except RecursionError:
            raise LimitError(place, "nested too deeply") from None
        except HieraError as error:
            step.note(str(error))
            raise (error if error.where == place else error.at(place)) from None
        if value is ABSENT:  # 12b.
            raise KeyNotFound(place, _not_found(names))
        return value

    def verify(self) -> None:
        """Read the files of every lookup: the configuration, and the files that the facts select.

        Raises the ``HieraError`` that every lookup would raise.
        """
        with deep_recursion():
            self._lookup_options(_OPTIONS, Invocation(), SILENT)

    def holders(self) -> dict[str, list[Holder]]:
        """Return every top-level key that this host can look up, with its holders by priority, highest first.

        Reads all files that the facts select, including all modules. Raises ``HieraError``.
        """
        held: dict[str, list[Holder]] = {}
        invocation = Invocation()
        with deep_recursion():
            for layer in self._layout.all_layers():
                for holder, names in layer.holders(invocation):
                    for name in names:
                        held.setdefault(name, []).append(holder)
        held.pop(NAME, None)
        return held

    def _answer(
        self, names: Sequence[str], merge: Merge, invocation: Invocation, step: Step, value_type: str | None
    ) -> Any | Absent:
        for name in names:
            if name in invocation.override:  # 1.
                detail = f"Value found for key '{name}' in override hash"
                return _verified(detail, invocation.override[name], value_type)
            value = self._search(name, merge, invocation, step)
            if value is not ABSENT:
                return _verified("Found value", value, value_type)
        for name in names:
            if name in invocation.defaults:  # 12.
                detail = f"Value found for key '{name}' in default values hash"
                return _verified(detail, invocation.defaults[name], value_type)
        return ABSENT

    def _answer_data(self, name: str, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the value of ``%{lookup('name')}``, by the options of its own key."""
        if invocation.outer is not None:
            key = explain.parse(name)
            value = invocation.outer(key.root)
            if value is not MISSING:
                value = explain.dig(name, key.segments, value, step)
                step.add("scope", "Data outside of the tree").found(name, value)
                return Given(value)
        return self._answer((name,), None, invocation, step, None)

    def _search(self, name: str, merge: Merge, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the value of a key, merged and converted by its options."""
        if name == NAME or name.startswith(f"{NAME}."):  # 2.
            step.add("invalid_key", NAME)
            return ABSENT
        key = explain.parse(name)  # 3.
        chosen = self._lookup_options(key, invocation, step)  # 4.
        convert_to = chosen.option(key.root, "convert_to")
        strategy = self._strategy(key, merge, chosen, step)  # 5.
        searched = step.add("data", name)
        try:
            value = self._find(key, strategy, invocation, searched)  # 6. to 10.
        except LookupFailure as error:
            raise error.beside(self._places(key.root, key.module)) from None
        finally:
            if "Sensitive" in str(convert_to):  # including steps recorded before a failure
                searched.conceal()
        if value is ABSENT or convert_to is None:
            return value
        try:  # 11.
            return _converted(name, value, convert_to, step)
        except LookupFailure as error:
            raise error.beside(self._places(NAME, key.module)) from None

    def _strategy(self, key: Key, merge: Merge, chosen: LookupOptions, step: Step) -> Strategy:
        """Return the strategy for a key, from the caller or else from the data."""
        if merge is not None:
            return strategies.strategy(merge)
        merge = chosen.option(key.root, "merge")
        if merge is not None:
            step.add("merge_source", NAME)
        try:
            return strategies.strategy(merge)
        except LookupFailure as error:
            raise error.beside(self._places(NAME, key.module)) from None

    def _places(self, name: str, module: str | None) -> str:
        """Return every place of a key, for messages."""
        results: list[str] = []
        # Errors here would hide the original error.
        with suppress(HieraError):
            for layer in filter(None, (self._layer(place, module, SILENT) for place in _LAYERS)):
                for holder, names in layer.holders(Invocation()):
                    if name in names:
                        results.append(str(Place(holder.path, holder.level, name)))
        return "; ".join(results)

    def _find(self, key: Key, strategy: Strategy, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the value from the layers, or else from a module's default hierarchy. Dig into the merged value."""
        value = strategy.gather(  # 6.
            _LAYERS, lambda layer, inner: self._ask(layer, key, strategy, invocation, inner), step
        )
        if value is not ABSENT:  # 9.
            value = explain.dig(key.text, key.segments, value, step)
        if value is ABSENT:  # 10.
            value = self._find_default(key, invocation, step)
            if value is not ABSENT:
                value = explain.dig(key.text, key.segments, value, step)
        return value

    def _ask(
        self,
        name: str,
        key: Key,
        strategy: Strategy,
        invocation: Invocation,
        step: Step,
        module: str | None = None,
    ) -> Any | Absent:
        """Return one layer's value. The module is the key's module by default."""
        layer = self._layer(name, module or key.module, step)
        if layer is None:
            return ABSENT
        try:
            return layer.find(key, strategy, invocation, step)
        except LookupFailure as error:
            if name == "global":
                error.at(f"Lookup of key '{key.text}' failed")  # in Puppet, for this layer only
            raise

    def _layer(self, name: str, module: str | None, step: Step) -> Layer | None:
        if name == "global":
            return self._layout.global_layer()
        if name == "environment":
            return self._layout.environment_layer()
        return self._layout.module_layer(module, step) if module else None

    def _find_default(self, key: Key, invocation: Invocation, step: Step) -> Any | Absent:
        module = key.module
        layer = self._layout.module_layer(module, SILENT) if module else None
        if module is None or layer is None or not layer.has_default_hierarchy:
            return ABSENT
        step = step.add("scope", f'Searching default_hierarchy of module "{module}"')
        if module not in self._default_options:
            inner = step.add("scope", f'Searching for "{NAME}"')
            default = layer.find_default(_OPTIONS, HASH, invocation, inner)
            self._default_options[module] = LookupOptions(verified(default, module))
        strategy = strategies.strategy(self._default_options[module].option(key.root, "merge"))
        return layer.find_default(key, strategy, invocation, step.add("scope", f'Searching for "{key}"'))

    def _lookup_options(self, key: Key, invocation: Invocation, step: Step) -> LookupOptions:
        """Return the options for keys of the key's module, or for keys without a module."""
        module = key.module
        if module not in self._options:
            step = step.add("options", NAME)
            if self._outer_options is ABSENT:
                self._outer_options = self._collect_outer_options(invocation, step)
                self._options[None] = LookupOptions(self._outer_options)
            if module is not None:
                self._options[module] = self._with_module(module, self._outer_options, invocation, step)
        return self._options[module]

    def _collect_outer_options(self, invocation: Invocation, step: Step) -> Mapping[Any, Any] | None:
        """Return the options of the global layer and the environment together."""
        high, low = (
            verified(self._ask(name, _OPTIONS, HASH, invocation, step), None) for name in _LAYERS[:2]
        )
        if high is None or low is None:
            return low if high is None else high
        merged: Mapping[Any, Any] = HASH.merge(high, low)
        return merged

    def _with_module(
        self, module: str, outer: Mapping[Any, Any] | None, invocation: Invocation, step: Step
    ) -> LookupOptions:
        """Return the options of ``outer`` and the module together."""
        result = self._ask("module", _OPTIONS, HASH, invocation, step, module)
        own = verified(result, module)
        if own is None:  # as in Puppet, null in a module removes the options of the other layers
            return LookupOptions(outer if result is ABSENT else None)
        if outer is None:
            return LookupOptions(own)
        pieces = {"Global and Environment": outer, f"Module {module}": own}

        def show(part: str, step: Step) -> Mapping[Any, Any]:
            step.add("scope", part).found(NAME, pieces[part])
            return pieces[part]

        merged = HASH.gather(list(pieces), show, step)
        return LookupOptions(None if merged is ABSENT else merged)


_LAYERS = ("global", "environment", "module")


def _converted(name: str, value: Any, convert_to: Any, step: Step) -> Any:
    value = puppet_convert.converted(name, value, convert_to)
    step.note(f"Applying convert_to lookup_option with arguments {puppet_convert.described(convert_to)}")
    return value


def _verified(description: str, value: Any, value_type: str | None) -> Any:
    if value_type is not None:
        puppet_types.verify(description, puppet_types.parse(value_type), value)
    return value


def _not_found(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Function lookup() did not find a value for the name '{names[0]}'"
    listed = ", ".join(f"'{name}'" for name in names)
    return f"Function lookup() did not find a value for any of the names [{listed}]"
