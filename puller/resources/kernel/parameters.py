"""Parameters of the kernel by their keys: below ``/proc/sys``, and what must be there for them (sysctl.d(5)).

* A key is written with dots or with slashes. The first of them that it has separates; after a dot the other one stands
  for a dot in a name, as in ``net.ipv4.conf.eth0/100.rp_filter``.
* Values are compared by words: the kernel separates them by tabs.
"""

import os
import re
import stat
from collections.abc import Iterator

from puller.system import kernel_files

_SWAPPED = str.maketrans("./", "/.")
_FORBIDDEN = re.compile(r"[\s=*?\[\]\0]")
_COMMENT_OR_DASH = ("#", ";", "-")

_MODULES = {
    "net/bridge/": "br_netfilter",
    "net/netfilter/nf_conntrack": "nf_conntrack",
    "net/nf_conntrack": "nf_conntrack",
    "net/ipv4/vs/": "ip_vs",
    "net/ipv6/": "ipv6",
    "net/mptcp/": "mptcp",
    "net/sctp/": "sctp",
    "net/dccp/": "dccp",
    "net/rds/": "rds",
    "net/rxrpc/": "rxrpc",
    "net/smc/": "smc",
    "net/tipc/": "tipc",
    "net/x25/": "x25",
    "net/ax25/": "ax25",
    "fs/nfs/nlm_": "lockd",
    "fs/nfs/": "nfs",
    "sunrpc/": "sunrpc",
    "dev/cdrom/": "cdrom",
    "dev/parport/": "parport",
    "dev/raid/": "md_mod",
    "fs/binfmt_misc/": "binfmt_misc",
}
_OF_AN_INTERFACE = re.compile(r"net/(?:ipv4|ipv6|mpls)/(?:conf|neigh)/([^/]+)/.")
_SETS_OTHERS = ("net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding", "net/ipv6/conf/all/forwarding")
"""Parameters whose change gives others their defaults."""


def normalized(key: str) -> str:
    """A key as the path below ``/proc/sys``."""
    first = re.search(r"[./]", key)
    return key.translate(_SWAPPED) if first and first[0] == "." else key


def spellings(normal: str) -> tuple[str, str]:
    """Both ways to write a key."""
    return normal.translate(_SWAPPED), normal


def problem_of_key(key: str) -> str | None:
    """The problem of a key as it was written."""
    if not key or _FORBIDDEN.search(key) or key.startswith(_COMMENT_OR_DASH):
        return "wanted a key such as 'net.ipv4.ip_forward', without blanks, '=' and wildcards"
    if any(name in ("", ".", "..") for name in normalized(key).split("/")):
        return "which has a part without a name"
    return None


def path_of(normal: str) -> str:
    """The file of the kernel for a key."""
    return f"{kernel_files.PROC_SYS}/{normal}"


def same_words(one: str | None, other: str | None) -> bool:
    """Whether two values are the same for the kernel; nothing is not the same as an empty one."""
    return one is not None and other is not None and one.split() == other.split()


def module_of(normal: str) -> str | None:
    """The module that brings a key, as far as that is known."""
    return next((module for start, module in _MODULES.items() if normal.startswith(start)), None)


def why_missing(normal: str) -> str:
    """Why there may be no such key, for a message."""
    interface = _OF_AN_INTERFACE.match(normal)
    if interface and os.path.isdir(path_of(normal[: interface.start(1)])):
        if not os.path.isdir(path_of(normal[: interface.end(1)])):
            return f"there is no network interface {interface[1]}"
    elif module := module_of(normal):
        return f"there is no such key; it comes with the module {module}, which may not be loaded"
    return "there is no such key in this kernel"


def why_not_writable(path: str) -> str:
    """Why a key that is there cannot be changed; empty when it can be."""
    if os.access(path, os.W_OK):
        return ""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if not mode & 0o222:
        return f"is read-only (mode {mode:04o}): the kernel lets nobody change it"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"cannot be changed here: {kernel_files.PROC_SYS} is read-only, as in a container"
    return (
        f"may not be changed by this user (mode {mode:04o}), which in a container is not the machine's root"
    )


def set_before(normal: str) -> Iterator[str]:
    """The keys whose change would undo that of this one, so that they are set first."""
    if normal.startswith(("net/ipv4/conf/", "net/ipv6/conf/")):
        family = normal.split("/")[1]
        yield from (key for key in _SETS_OTHERS if key != normal and key.split("/")[1] == family)
        interface = _OF_AN_INTERFACE.match(normal)
        if interface and interface[1] != "all":
            yield f"{normal[: interface.start(1)]}all{normal[interface.end(1) :]}"
