"""Supervision of rollouts by the reports of hosts."""
