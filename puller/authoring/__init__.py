"""Checks of a bundle before it is published: lint, tests, previews. Nothing here touches the machine."""
