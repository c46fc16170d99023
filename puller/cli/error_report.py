"""The report of an exception that ends a command: sentences for an error, and the traceback of a bug."""

import sys
import traceback

from foundation.masking import mask_urls
from puller.reporting.run_log import status_of
from puller.values.colour import coloured, is_wanted
from puller.values.foreign_text import visible


def report_error(error: Exception) -> int:
    """Print the error and return its exit status. Print the traceback of a bug."""
    if (status := status_of(error)) is not None:
        name = coloured("puller:", "red") if is_wanted(sys.stderr) else "puller:"
        for line in str(error).splitlines():
            print(f"{name} {visible(mask_urls(line))}", file=sys.stderr)
        return status
    traceback.print_exception(error)
    print("puller: this is a bug in Puller. Please report it with the lines above", file=sys.stderr)
    return 1
