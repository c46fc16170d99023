"""Default paths of the configuration and the state.

The agent of the machine uses /etc/puller, /var/lib/puller and /run/puller. The agent of an ordinary user
(``--as-user``) uses the paths of the XDG base directory specification. The module is separate because commands that
need only these paths import little else.
"""

import os
import pwd
from typing import Final

DEFAULT_CONFIGURATION: Final = "/etc/puller/config.yaml"
PRIVATE_KEY: Final = "/etc/puller/keys/private_key.pkcs7.pem"
"""The default path of a host's key for encrypted values of eyaml."""
IDENTITIES: Final = ("/etc/puller/keys/age.txt", "/etc/ssh/ssh_host_ed25519_key")
"""The default paths of a host's keys for files that SOPS encrypted."""


class UserConfigurationFile(str):
    """The path of a configuration that is read for the agent of an ordinary user."""

    __slots__ = ()


def configuration_file(path: str | None, *, as_user: bool) -> str:
    """Return the configuration of a command line: its argument, or the default of the machine or user."""
    if not as_user:
        return path or DEFAULT_CONFIGURATION
    return UserConfigurationFile(path or os.path.join(users_configuration(), "config.yaml"))


def users_configuration() -> str:
    """Return the configuration directory of the running user."""
    return _below("XDG_CONFIG_HOME", ".config")


def places_of_data(*, as_user: bool) -> tuple[str, str]:
    """Return the default file and directory of a host's own data."""
    directory = users_configuration() if as_user else os.path.dirname(DEFAULT_CONFIGURATION)
    return os.path.join(directory, "data.yaml"), os.path.join(directory, "data.d")


def users_private_key() -> str:
    """Return the path of the running user's key for encrypted values."""
    return os.path.join(users_configuration(), "keys/private_key.pkcs7.pem")


def users_identities() -> tuple[str, ...]:
    """Return the paths of the running user's keys for files that SOPS encrypted."""
    return (os.path.join(users_configuration(), "keys/age.txt"),)


def users_facts() -> str:
    """Return the directory of the running user's custom facts."""
    return os.path.join(users_configuration(), "facts.d")


def users_state() -> str:
    """Return the state directory of the running user."""
    return _below("XDG_STATE_HOME", ".local/state")


def users_run() -> str:
    """Return the runtime directory of the login, or a directory in the state if there is none.

    Commands of cron and ``su`` lack the variable, so ``/run/user`` is the fallback: all processes must use the same
    lock.
    """
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    for directory in (named, f"/run/user/{os.geteuid()}"):
        if os.path.isabs(directory) and os.path.isdir(directory) and os.access(directory, os.W_OK):
            return os.path.join(directory, "puller")
    return os.path.join(users_state(), "run")


def _below(variable: str, usual: str) -> str:
    """Return a directory of Puller. The specification ignores variables with relative paths."""
    directory = os.environ.get(variable, "")
    return os.path.join(directory if os.path.isabs(directory) else os.path.join(_home(), usual), "puller")


def _home() -> str:
    home = os.environ.get("HOME", "")
    if os.path.isabs(home):
        return home

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"
