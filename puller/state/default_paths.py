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
"""Where a host's key for encrypted values is, unless something else is said."""


class UserConfigurationFile(str):
    """The path of a configuration that is read for the agent of an ordinary user."""

    __slots__ = ()


def configuration_file(path: str | None, *, as_user: bool) -> str:
    """The configuration of a command line: what it names, else the machine's or, with ``as_user``, one's own."""
    if not as_user:
        return path or DEFAULT_CONFIGURATION
    return UserConfigurationFile(path or os.path.join(users_configuration(), "config.yaml"))


def users_configuration() -> str:
    """The directory of the running user's configuration."""
    return _below("XDG_CONFIG_HOME", ".config")


def places_of_data(*, as_user: bool) -> tuple[str, str]:
    """The file and the directory of a host's own data, unless a configuration names others."""
    directory = users_configuration() if as_user else os.path.dirname(DEFAULT_CONFIGURATION)
    return os.path.join(directory, "data.yaml"), os.path.join(directory, "data.d")


def users_private_key() -> str:
    """Where the running user's key for encrypted values is."""
    return os.path.join(users_configuration(), "keys/private_key.pkcs7.pem")


def users_facts() -> str:
    """The directory of the running user's custom facts."""
    return os.path.join(users_configuration(), "facts.d")


def users_state() -> str:
    """The directory of the running user's state."""
    return _below("XDG_STATE_HOME", ".local/state")


def users_run() -> str:
    """The directory of what does not survive a reboot: that of the login, or one in the state where there is none.

    The system's directory of the user is taken also by those who are not told of it, as commands of cron and of
    ``su`` are: what looks for a lock must look where it is.
    """
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    for directory in (named, f"/run/user/{os.geteuid()}"):
        if os.path.isabs(directory) and os.path.isdir(directory) and os.access(directory, os.W_OK):
            return os.path.join(directory, "puller")
    return os.path.join(users_state(), "run")


def _below(variable: str, usual: str) -> str:
    """A directory of ours; what is not absolute does not count, as the specification wants it."""
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
