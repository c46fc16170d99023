"""Check of the free space of a file system, as unprivileged users see it."""

import os

from bundles.deadline import Deadline
from foundation.quantities import bytes_text
from puller.checks.kinds import Answer, Disk, NotCarriedOut, parse_amount


def ask(check: Disk, deadline: Deadline) -> Answer:
    """Query the file system. Raises ``NotCarriedOut`` and ``OSError``."""
    del deadline
    disk = os.statvfs(check.path)
    free = disk.f_bavail * disk.f_frsize
    # As in df: space reserved for root counts neither as free nor as usable.
    usable = (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize
    wrong = []
    if check.free is not None:
        if not usable:
            raise NotCarriedOut(f"{check.path}: cannot determine the size of its file system")
        amount, is_part = parse_amount(check.free)
        if free < (usable * amount / 100 if is_part else amount):
            shown = f"{bytes_text(free)} ({free / usable:.1%})"
            wrong.append(f"{check.path}: {shown} are free, expected {check.free}")
    if check.inodes is not None:
        if not disk.f_files:
            raise NotCarriedOut(f"{check.path}: its file system does not count inodes")
        amount, is_part = parse_amount(check.inodes)
        if disk.f_favail < (disk.f_files * amount / 100 if is_part else amount):
            wrong.append(f"{check.path}: {disk.f_favail} inodes are free, expected {check.inodes}")
    return Answer(wrong, f"{check.path}: {bytes_text(free)} are free")
