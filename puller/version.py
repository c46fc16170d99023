"""The version of this agent, from the metadata of its distribution: one place to change it, ``pyproject.toml``."""

from functools import cache


@cache
def version() -> str:
    """As in ``puller --version``."""
    from importlib.metadata import version as installed_version  # 10 ms, and only reports need it

    return installed_version("puller")
