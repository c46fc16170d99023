"""Tests of a bundle: cases list the expected resources of a machine, and are checked without any machine."""
