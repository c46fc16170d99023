"""Text of others as it may be shown: what a program of a user has printed, or a user has named a file.

Control characters would move the cursor of root's terminal, change what is shown there, or type for root.
"""

import re

_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"


def visible(text: str) -> str:
    """The text with control characters written out, but for tabs and the ends of lines."""
    if text.isprintable():  # as most lines are
        return text
    return re.sub(_CONTROL, lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))
