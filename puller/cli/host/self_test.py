"""Whether this version of Puller starts on this machine: what a run may import is imported.

Installed packages ask it of a version before the first start, and after the Python of the machine was replaced. Status
0 is *yes*; anything else, or no end, is *no*, and the launcher starts the version before.
"""

import importlib
import pkgutil
from types import ModuleType

import bundles
import hiera
import puller

_EXTRAS = ("puller.fleet", "puller.cli.fleet", "puller.__main__")
"""What no run imports: it needs modules that are no part of the packages, or runs a command."""


def main() -> None:
    """Import all; what keeps a module from that is raised as it is."""
    for package in (bundles, hiera, puller):
        import_all(package)


def import_all(package: ModuleType) -> None:
    """Import every module below a package, but for the extras; raises whatever an import raises."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name not in _EXTRAS:
            found = importlib.import_module(module.name)
            if module.ispkg:
                import_all(found)
