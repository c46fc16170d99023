"""Names of units as systemd completes them: ``cron`` is ``cron.service`` (systemctl(1))."""

SUFFIXES = frozenset(
    (
        "service",
        "socket",
        "device",
        "mount",
        "automount",
        "swap",
        "target",
        "path",
        "timer",
        "slice",
        "scope",
    )
)


def unit_of(name: str) -> str:
    """Return the full name of a unit."""
    return name if name.rpartition(".")[2] in SUFFIXES and "." in name else f"{name}.service"
