"""Checks of a bundle before publication: lint, tests, previews. They do not change the machine."""
