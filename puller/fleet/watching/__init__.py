"""Rollouts, watched by what hosts report of them."""
