"""Unprivileged worker processes: their restrictions, their start, and the communication with them."""
