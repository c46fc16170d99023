"""`glance` for a worker that speaks HTTP and no TLS: importing ``ssl`` is a third of all that it would import."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in ``bundles.deadline``
if TYPE_CHECKING:
    from typing import Any

    from bundles.transport.glance import Glance


def open_glance(arguments: Any) -> Glance:
    """As `glance.open_glance`, in a process that is for this alone: it cannot import ``ssl`` any more."""
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]  # http.client does without
    from bundles.transport import glance

    return glance.open_glance(arguments)
