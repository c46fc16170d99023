"""Telling somebody that a rollout was halted: a command, or a URL. What fails here keeps nothing from being halted."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import requests
import urllib3

from bundles.deadline import Deadline, aside

_SECONDS = 20


def tell_command(command: Sequence[str], sentence: str, seconds: float = _SECONDS) -> str:
    """Call ``command`` with the sentence as its last argument; gives why that failed, or nothing.

    After so many seconds it is ended, with what it has started.
    """
    try:
        # A sentence has what hosts wrote: a null character in it is no reason to tell nobody.
        called = subprocess.Popen(
            [*command, sentence.replace("\0", "")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"{command[0]}: cannot be called: {error}"
    with called:
        try:
            _, errors = called.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(called.pid, signal.SIGKILL)
            return f"{command[0]}: has not ended within {seconds:g} s"
    if called.returncode:
        last = errors.strip().splitlines()[-1:]
        return f"{command[0]}: ended with status {called.returncode}{''.join(f': {line}' for line in last)}"
    return ""


def tell_url(url: str, message: Mapping[str, object], seconds: float = _SECONDS) -> str:
    """POST ``message`` as JSON to ``url``; gives why that failed, without the URL: it may hold a token."""
    try:
        status = aside(lambda: _post(url, message, seconds), Deadline(seconds))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return f"the URL of watch: tell cannot be reached: {type(error).__name__}"
    return "" if 200 <= status < 300 else f"the URL of watch: tell answers with status {status}"


def _post(url: str, message: Mapping[str, object], seconds: float) -> int:
    with requests.post(
        url, json=dict(message), timeout=seconds, allow_redirects=False, stream=True
    ) as response:
        return response.status_code
