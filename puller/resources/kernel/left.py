"""A kernel parameter that Puller has written and nobody declares any more: its line goes, the running value stays."""

from collections.abc import Iterable

from puller.resources.kernel.parameters import normalized
from puller.resources.kernel.places import find_place
from puller.resources.kernel.sysctl import Sysctl, SysctlProperties
from puller.resources.kernel.sysctl_files import ParameterFile


class LeftSysctl(Sysctl):
    """A parameter that was written, to be ``absent``."""

    @property
    def _file(self) -> ParameterFile:
        known = find_place(normalized(self.properties.name), self.context)
        return ParameterFile.of(self.context, known or self.properties.path)

    @classmethod
    def places(cls, properties: SysctlProperties) -> Iterable[str]:
        del properties
        return ()  # of its own: what others keep in the file stays
