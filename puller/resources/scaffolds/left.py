"""A scaffold that nobody declares any more: what it has made is removed by its receipt, without its templates."""

from puller.resources.left_files import LeftFiles
from puller.resources.receipts import SCAFFOLDS


class LeftScaffold(LeftFiles):
    """A scaffold's own files and directories, to be ``absent``."""

    type_name = "scaffold"
    receipts = SCAFFOLDS
    noun = "scaffold files"
