"""A property of the machine that exists once, such as its host name. The name of the resource is the value."""

from collections.abc import Hashable
from typing import Any, TypeVar

from puller.resources.base import Properties, Resource
from puller.resources.claims import Contradiction, agree
from puller.system.local_paths import Spellings

P = TypeVar("P", bound=Properties)
S = TypeVar("S")


class SingleValue(Resource[P, S]):
    """A resource type of which a machine has exactly one object."""

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        del properties, spellings
        return cls.type_name

    @classmethod
    def agree(cls, first: Any, second: Any) -> Any:
        """Refuse two values. Raises ``Contradiction``."""
        if first.name != second.name:
            raise Contradiction([("name", first.name, second.name)])
        return agree(first, second)
