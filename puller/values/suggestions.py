"""Keys and names that nobody knows: the sentence for one, with the word that may have been meant."""

from collections.abc import Iterable

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a value, from the top of a document."""


def unknown_key(key: object, known: Iterable[str]) -> str:
    """The sentence for a key that nobody knows, with the one that may have been meant."""
    return f"unknown key {key!r}{did_you_mean(str(key), known)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'owner'?)``, or the known words when none is near and they are few."""
    import difflib  # only for messages

    words = sorted(known)
    if near := difflib.get_close_matches(word, words, 1):
        return f" (did you mean {near[0]!r}?)"
    return _all_of(words)


def reference_meant(reference: str, known: Iterable[str]) -> str:
    """``did_you_mean`` for references: one of that type with nearly that name, or of another type with that name."""
    import difflib  # only for messages

    of, _, name = reference.partition("#")
    words = sorted(known)
    named = {word.partition("#")[2]: word for word in words if word.partition("#")[0] == of}
    near = [named[one] for one in difflib.get_close_matches(name, named, 1)]
    near += [word for word in words if word.partition("#")[2] == name]
    return f" (did you mean {near[0]!r}?)" if near else _all_of(words)


def _all_of(words: list[str]) -> str:
    """The known words, where they do not bury the sentence that they are put behind."""
    return f" (known: {', '.join(words)})" if len(words) <= 30 else ""
