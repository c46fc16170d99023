"""A kernel parameter that Puller has written and nobody declares any more: its line goes, the running value stays."""

from collections.abc import Iterable, Iterator

from puller.resources.claims import Claim
from puller.resources.kernel.edited_file import EditedFile
from puller.resources.kernel.parameters import normalized
from puller.resources.kernel.places import find_place
from puller.resources.kernel.sysctl import Sysctl, SysctlProperties
from puller.resources.kernel.sysctl_files import parse


class LeftSysctl(Sysctl):
    """A parameter that was written, to be ``absent``."""

    @property
    def _file(self) -> EditedFile[dict[str, str]]:
        known = find_place(normalized(self.properties.name), self.context)
        return EditedFile.of(self.context, known or self.properties.path, parse)

    @classmethod
    def claims(cls, properties: SysctlProperties) -> Iterator[Claim]:
        del properties
        return iter(())

    @classmethod
    def places(cls, properties: SysctlProperties) -> Iterable[str]:
        del properties
        return ()  # of its own: what others keep in the file stays
