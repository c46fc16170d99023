"""Notifications of halted rollouts, by a command or a URL. A failed notification does not prevent the halt."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import requests
import urllib3

from bundles.adapter import session
from bundles.deadline import Deadline, aside
from puller.values.visible import visible, visible_line

_SECONDS = 20


def tell_command(command: Sequence[str], sentence: str, seconds: float = _SECONDS) -> str:
    """Call ``command`` with the sentence as its last argument. Return the reason for a failure, or an empty text.

    After ``seconds`` it is ended, together with its children.
    """
    try:
        # A sentence contains texts of hosts. It must stay one line, without control sequences for terminals or mail
        # headers.
        called = subprocess.Popen(
            [*command, visible_line(sentence)],
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
    """POST ``message`` as JSON to ``url``. Return the reason of a failure, without the URL: it may have a token."""
    try:
        shown = {key: _visible(value) for key, value in message.items()}
        status = aside(lambda: _post(url, shown, seconds), Deadline(seconds))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return f"the URL of watch: tell cannot be reached: {type(error).__name__}"
    return "" if 200 <= status < 300 else f"the URL of watch: tell answers with status {status}"


def _visible(value: object) -> object:
    """Return a value whose texts are safe to display."""
    if isinstance(value, Mapping):
        return {visible(str(key)): _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return visible(value) if isinstance(value, str) else value


def _post(url: str, message: Mapping[str, object], seconds: float) -> int:
    with (
        session() as opened,
        opened.post(url, json=dict(message), timeout=seconds, allow_redirects=False, stream=True) as response,
    ):
        return response.status_code
