"""Files that are the kernel's own, and hold one value each: a write gives it another one, and nothing replaces them."""

PROC_SYS = "/proc/sys"
"""The directory of all parameters."""


def is_parameter(path: str) -> bool:
    """Whether a path is that of a kernel parameter."""
    return path.startswith(f"{PROC_SYS}/")
