"""Decisions of the operator and the publisher: selection, holds, pins, quarantine, disable."""
