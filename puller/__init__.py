"""The agent: all code of a run, from the timer to the report."""
