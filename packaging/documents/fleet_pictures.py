#!/usr/bin/env python3
"""Writes the pictures of the fleet's pages: ``docs/pictures/fleet-*.png``, from a simulated rollout.

Needs Chromium, Pillow (which the extra ``fleet`` brings) and the tests of the checkout. Run ``python
packaging/documents/fleet_pictures.py`` after a change of the pages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402  # the path above comes first

from tests.simulators import fleet as simulated  # noqa: E402

PICTURES = {"overview": ("index.html", 1280, 1420), "host": ("hosts/{host}.html", 1280, 1120)}
"""Page, width and height in pixels, by the name of the picture."""

COLOURS = 64


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="puller-pictures-") as scratch:
        pages = Path(scratch, "pages")
        make_pages(Path(scratch), pages)
        host = simulated.names(5)[-1]
        for name, (page, width, height) in PICTURES.items():
            picture = ROOT / f"docs/pictures/fleet-{name}.png"
            take_picture(pages / page.format(host=host), picture, width, height)


def make_pages(scratch: Path, pages: Path) -> None:
    """Write the pages of a fleet with problems, in the middle of a rollout."""
    documents = simulated.incident(simulated.now())
    (scratch / "reports").mkdir()
    simulated.deliver(scratch / "reports", documents)
    store = str(scratch / "fleet.db")
    for command in (
        ["import", str(scratch / "reports"), "--store", store],
        ["page", "--to", str(pages), "--store", store],
    ):
        subprocess.run([sys.executable, "-m", "puller", "fleet", *command], check=True)


def take_picture(page: Path, picture: Path, width: int, height: int) -> None:
    """Write a screenshot with few colours, which keeps the file small."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
    ]
    environment = os.environ | {"TZ": "UTC"}
    command = ["chromium", *options, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    Image.open(picture).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
        picture, optimize=True
    )


if __name__ == "__main__":
    main()
