"""Atomic writes, trees and free space on this machine's disks."""
