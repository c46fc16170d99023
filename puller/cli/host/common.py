"""Shared functions of a host operator's commands: configuration, state, user, and reasons."""

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from foundation.suggestions import meant
from puller.cli.options import configuration_option
from puller.config.configuration import BundleChoice, Configuration, load_configuration
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.state import Directories

config_option = configuration_option("The configuration to use.")


def load_host(path: str) -> tuple[Configuration, Directories]:
    """Return the configuration and its state directories. Raises ``ConfigurationError``."""
    configuration = load_configuration(path)
    return configuration, Directories(Path(configuration.state_directory), Path(configuration.run_directory))


def chosen(configuration: Configuration, bundle: str) -> BundleChoice:
    """Return the entry of a bundle in the configuration. Raises ``UsageError`` if it is missing."""
    names = {choice.name: choice for choice in configuration.bundles}
    if bundle not in names:
        raise UsageError(f"{bundle}: the configuration names no such bundle", **meant(bundle, names))
    return names[bundle]


@contextlib.contextmanager
def state_in_use(verb: str) -> Iterator[None]:
    """Raise ``ConfigurationError`` with the state file that could not be ``read`` or ``written``."""
    try:
        yield
    except OSError as error:
        hint = "try as root" if isinstance(error, PermissionError) else ""
        where = error.filename or "the state directory"
        problem = file_problem(error, f"cannot be {verb}", where=where)
        raise ConfigurationError(problem, hint=hint) from error


def one_line(option: str, text: str) -> str:
    """Return a reason as one line, for journals and status lines. Raises ``UsageError``."""
    line = " ".join(text.split())
    if not line or not line.isprintable():
        raise UsageError(f"{option} is {text!r}", expected="words that people can read")
    return line


def user() -> str:
    """Return the user, as far as the environment identifies it. ``sudo`` keeps the name of its caller."""
    with contextlib.suppress(KeyError):
        name = os.environ.get("SUDO_USER", "")
        return name if name and name.isprintable() else pwd.getpwuid(os.getuid()).pw_name
    return f"user {os.getuid()}"
