"""``python -m puller``: an alias of the command ``puller``."""

from puller.cli import main

main()
