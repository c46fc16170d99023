"""The version of this agent. The distribution reads it from here."""

__version__ = "0.1.0"
