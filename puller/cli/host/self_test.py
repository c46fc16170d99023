"""Self-test: import all modules of a run, to test whether this version of Puller starts on this machine.

Installed packages test a version before its first start, and after an update of the machine's Python. Status 0 means
success. After any other status, or a timeout, the launcher starts the previous version.
"""

import importlib
import pkgutil
from types import ModuleType

import bundles
import hiera
import puller

_EXTRAS = ("puller.fleet", "puller.cli.fleet", "puller.__main__")
"""Modules that no run imports: they need modules outside the packages, or run a command."""


def main() -> None:
    """Import all modules. Raises the errors of the imports."""
    for package in (bundles, hiera, puller):
        import_all(package)


def import_all(package: ModuleType) -> None:
    """Import every module below a package, except the extras. Raises the errors of the imports."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name not in _EXTRAS:
            result = importlib.import_module(module.name)
            if module.ispkg:
                import_all(result)
