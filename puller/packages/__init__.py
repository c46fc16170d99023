"""Package managers: what is installed, what could be, and how to change it."""
