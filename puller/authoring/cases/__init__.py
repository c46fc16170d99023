"""Tests of a bundle: cases beside it say what it must declare on a machine, and are checked without touching any."""
