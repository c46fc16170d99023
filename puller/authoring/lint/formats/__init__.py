"""The forms in which findings are told: to people, and to programs."""
