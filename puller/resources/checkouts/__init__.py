"""Working trees of git: what they are made from, what is there, and how git is called."""
