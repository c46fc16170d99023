"""Values of each thread."""

from _thread import _local


class PerThread(_local):
    """Attributes with a value for each thread, as those of ``threading.local``, which is slow to import."""
