"""Refuse mounts whose paths another user can lead elsewhere.

* mount(8) follows links, now and at every boot. A path that passes through a directory of a user leads where this user
  likes: root's files appear at a mount point that everybody reads, or a file system is mounted over /etc.
* The directory at the end of a path may be anyone's. It is the way to it that counts.
"""

from collections.abc import Iterator

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.kernel.fstab import Fields
from puller.resources.kernel.mount_options import content_of_overlay
from puller.resources.kernel.mount_plan import Change
from puller.system.trusted import distrust_of_way


def refuse_paths_of_users(change: Change) -> None:
    """Raise ``ResourceError`` if a user can change what is mounted, or where."""
    for name, path in paths_of(change.wanted):
        if reason := distrust_of_way(path):
            raise ResourceError(
                f"{name} {path} can be led elsewhere by another user, now or at boot: {reason}",
                code=ProblemCode.UNTRUSTED_PATH,
            )


def paths_of(wanted: Fields) -> Iterator[tuple[str, str]]:
    """Return the paths that a mount follows, each with the name of its property."""
    yield "mount point", wanted.point
    if wanted.device.startswith("/") and not wanted.device.startswith("//"):
        yield "device", wanted.device
    for option in sorted(content_of_overlay(wanted.options)):
        key, _, value = option.partition("=")
        for path in value.strip('"').replace("\\:", "\0").split(":"):
            if path.startswith("/"):
                yield key.rstrip("+"), path.replace("\0", ":")
