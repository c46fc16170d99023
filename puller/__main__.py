"""``python -m puller``: the same as the command ``puller``."""

from puller.cli import main

main()
