"""Where the targets of a repository are: each under a name with its hash in it (consistent snapshots of TUF, 6.2.1)."""

from bundles.format.tuf import TargetFile


def target_path(info: TargetFile) -> str:
    """Where a target is on a mirror of a site."""
    return f"targets/{hashed_path(info)}"


def hashed_path(info: TargetFile) -> str:
    """A target's path with its hash in it, so that no URL ever changes its contents."""
    directory, slash, name = info.path.rpartition("/")
    return f"{directory}{slash}{digest_of(info)}.{name}"


def digest_of(info: TargetFile) -> str:
    """SHA-256, which every site of Puller has; other repositories may have others."""
    return info.hashes.get("sha256") or next(iter(info.hashes.values()))
