"""Check of the free space of a file system, as unprivileged users see it."""

import os

from bundles.deadline import Deadline
from puller.checks.check_outcome import Answer, NotCarriedOut
from puller.checks.kinds import Disk, parse_amount
from puller.values.units import bytes_text


def ask(wanted: Disk, deadline: Deadline) -> Answer:
    """Query the file system. Raises ``NotCarriedOut`` and ``OSError``."""
    del deadline
    found = os.statvfs(wanted.path)
    free = found.f_bavail * found.f_frsize
    # As in df: space reserved for root counts neither as free nor as usable.
    usable = (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize
    wrong = []
    if wanted.free is not None:
        if not usable:
            raise NotCarriedOut(f"{wanted.path}: cannot determine the size of its file system")
        amount, is_part = parse_amount(wanted.free)
        if free < (usable * amount / 100 if is_part else amount):
            shown = f"{bytes_text(free)} ({free / usable:.1%})"
            wrong.append(f"{wanted.path}: {shown} are free, expected {wanted.free}")
    if wanted.inodes is not None:
        if not found.f_files:
            raise NotCarriedOut(f"{wanted.path}: its file system does not count inodes")
        amount, is_part = parse_amount(wanted.inodes)
        if found.f_favail < (found.f_files * amount / 100 if is_part else amount):
            wrong.append(f"{wanted.path}: {found.f_favail} inodes are free, expected {wanted.inodes}")
    return Answer(wrong, f"{wanted.path}: {bytes_text(free)} are free")
