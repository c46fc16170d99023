"""Deep merging, with the results of the Ruby library ``deep_merge`` 1.1.1, which Puppet uses.

* The arguments stay unchanged, since the merge works on copies.
* The copies are changed in place in the library's order, aliases included. Its results for knockouts inside new keys
  come from lists that change during iteration, and existing data rely on these results.

The numbers follow the library's function ``deep_merge!``:

1. Null in the source changes nothing.
2. Null or false in the destination is replaced by the source.
3. A mapping is merged key by key. A new key goes through the same steps, with a copy of its own value.
4. A list: 4a optionally overwritten whole · 4b optionally joined and split again · 4c cleared by a bare prefix · 4d put
   over a value that is not a list · 4e knocked out by prefixed texts · 4f optionally merged item by item if all are
   mappings, or else united, the destination's items first · 4g optionally sorted.
5. Anything else is optionally appended to a list.
6. Anything else overwrites. A text with the prefix becomes the empty text.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hiera import regex
from hiera.errors import LookupFailure
from hiera.tree.ruby import values


class Options(NamedTuple):
    """The settings of ``merge`` besides ``strategy: deep``, which itself allows only the first three."""

    knockout_prefix: str | None = None
    sort_merged_arrays: bool = False
    merge_hash_arrays: bool = False
    preserve_unmergeables: bool = False
    overwrite_arrays: bool = False
    extend_existing_arrays: bool = False
    unpack_arrays: str | None = None


def options(given: Mapping[str, Any]) -> Options:
    """Return the options in ``given``. Null means the default. Raises ``LookupFailure`` for an empty prefix."""
    names = Options._fields
    chosen = Options(**{name: value for name, value in given.items() if name in names and value is not None})
    if chosen.knockout_prefix == "":
        raise LookupFailure("", "knockout_prefix cannot be an empty string in deep_merge!")
    return chosen


def merge(source: Any, dest: Any, chosen: Options) -> Any:
    """Return ``source``, which has priority, merged into ``dest``."""
    return _Merger(chosen).merge(_copy(source), _copy(dest))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


class _Merger:
    def __init__(self, chosen: Options) -> None:
        self._options = chosen
        # As in the library, the prefix is an expression: ``.`` is any character and a leading ``+`` repeats nothing.
        self._pattern = values.compiled(f"(?:^){chosen.knockout_prefix or ''}")

    def merge(self, source: Any, dest: Any) -> Any:
        if source is None:  # 1.
            return dest
        if (dest is None or dest is False) and not self._options.preserve_unmergeables:  # 2.
            return source
        if isinstance(source, dict):  # 3.
            return self._hash(source, dest)
        if isinstance(source, list):  # 4.
            return self._list(source, dest)
        if isinstance(dest, list) and self._options.extend_existing_arrays:  # 5.
            dest.append(source)
            return dest
        return self._overwrite(source, dest)  # 6.

    def _hash(self, source: dict[Any, Any], dest: Any) -> Any:
        for name, value in source.items():
            if isinstance(dest, dict):
                held = dest.get(name)
                if held is None or held is False:
                    # Without a value in dest, merge value with a shallow copy of itself, to sort it and apply
                    # knockouts.
                    held = value.copy() if isinstance(value, (dict, list)) else value
                dest[name] = self.merge(value, held)
            elif isinstance(dest, list) and self._options.extend_existing_arrays:
                dest.append(source)
            elif not self._options.preserve_unmergeables:
                dest = self._overwrite(source, dest)  # from here on, dest is source itself
        return dest

    def _list(self, source: list[Any], dest: Any) -> Any:
        if self._options.overwrite_arrays:  # 4a.
            return source
        source, dest = self._unpacked(source, dest)  # 4b.
        prefix = self._options.knockout_prefix
        if prefix and prefix in source:  # 4c.
            dest = _cleared(dest)
            source[:] = [item for item in source if item != prefix]
        if not isinstance(dest, list):  # 4d.
            return dest if self._options.preserve_unmergeables else self._overwrite(source, dest)
        self._knock_out(source, dest)  # 4e.
        # 4f.
        if self._options.merge_hash_arrays and all(isinstance(item, dict) for item in (*source, *dest)):
            merged = [self.merge(source[i] if i < len(source) else {}, held) for i, held in enumerate(dest)]
            dest = merged + source[len(dest) :]
        else:
            dest = values.unique(dest + source)
        # 4g.
        return values.sort(dest) if self._options.sort_merged_arrays else dest

    def _unpacked(self, source: list[Any], dest: Any) -> tuple[list[Any], Any]:
        separator = self._options.unpack_arrays
        if not separator:
            return source, dest
        return _repacked(source, separator), _repacked(dest, separator) if isinstance(dest, list) else dest

    def _knock_out(self, source: list[Any], dest: list[Any]) -> None:
        """Remove each prefixed text from ``source``, and the item that it names from ``dest``."""
        if not self._options.knockout_prefix:
            return

        def knocks_out(item: Any) -> bool:
            bare = self._bare(item) if isinstance(item, str) else item
            if bare == item:
                return False
            dest[:] = [held for held in dest if held not in (bare, item)]
            return True

        _delete_if(source, knocks_out)

    def _overwrite(self, source: Any, dest: Any) -> Any:
        if self._options.preserve_unmergeables:
            return dest
        if self._options.knockout_prefix and isinstance(source, str):
            return source if self._bare(source) == source else ""
        if self._options.knockout_prefix and isinstance(source, list):
            _delete_if(source, lambda item: isinstance(item, str) and regex.is_found(self._pattern, item))
        return source

    def _bare(self, text: str) -> str:
        """Return ``text`` without all matches of the prefix, which is an expression."""
        return regex.bounded(self._pattern, text, lambda: self._pattern.sub("", text))


def _delete_if(items: list[Any], condition: Callable[[Any], bool]) -> None:
    """Ruby's ``Array#delete_if``, for a condition that may shorten ``items`` while it runs."""
    read = kept = 0
    while read < len(items):
        item = items[read]
        if not condition(item):
            if read != kept:
                items[kept] = item
            kept += 1
        read += 1
    if kept < len(items) and kept < read:
        del items[kept:read]


def _cleared(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        value.clear()
        return value
    return "" if isinstance(value, str) else None


def _repacked(items: list[Any], separator: str) -> list[Any]:
    parts = _joined(items, separator).split(separator)
    while parts and not parts[-1]:  # Ruby's split drops empty texts at the end
        parts.pop()
    return list(parts)


def _joined(value: Any, separator: str) -> str:
    return (
        separator.join(_joined(item, separator) for item in value)
        if isinstance(value, list)
        else values.to_s(value)
    )
