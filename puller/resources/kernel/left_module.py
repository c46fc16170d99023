"""Modules that nobody declares any more: their files go, and what is loaded stays until the machine starts again."""

from collections.abc import Iterator, Sequence

from foundation.differences import Difference
from puller.resources.kernel.kernel_module import KernelModule, ModuleState


class LeftKernelModule(KernelModule):
    """A module whose files were written, to be ``absent``."""

    def _of_kernel(self, actual: ModuleState) -> Iterator[Difference]:
        yield from ()  # it may have been loaded for something else, such as the disk

    def _refuse_what_cannot_be(self, actual: ModuleState) -> None:
        """What other files say of it is nobody's business any more."""

    @property
    def notes(self) -> Sequence[str]:
        return ()
