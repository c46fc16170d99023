"""The agent: one run, from timer tick to report."""
