"""References between resources: ``type#name``."""


class Reference(str):
    """One resource, by its type and its name or alias; compares and hashes as the text ``type#name``."""

    __slots__ = ()

    @classmethod
    def to(cls, type_name: str, name: str) -> "Reference":
        """The reference to a resource."""
        return cls(f"{type_name}#{name}")

    @classmethod
    def parse(cls, text: object) -> "Reference":
        """Read ``type#name``; the name may hold further ``#``. Raises ``ValueError``."""
        if isinstance(text, str):
            kind, mark, name = text.partition("#")
            if mark and kind and name:
                return cls(text)
        raise ValueError(f"is {text!r}, wanted a reference such as 'file#/etc/motd'")
