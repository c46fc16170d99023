"""Downloads from mirrors and uploads, with limits of size and time."""
