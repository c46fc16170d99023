"""Telling somebody that a rollout was halted: a command, or a URL. What fails here keeps nothing from being halted."""

import subprocess
from collections.abc import Mapping, Sequence

import requests

_SECONDS = 20


def tell_command(command: Sequence[str], sentence: str) -> str:
    """Call ``command`` with the sentence as its last argument; gives why that failed, or nothing."""
    try:
        done = subprocess.run(
            [*command, sentence],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]}: has not ended within {_SECONDS} s"
    except (OSError, ValueError) as error:
        return f"{command[0]}: cannot be called: {error}"
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        return f"{command[0]}: ended with status {done.returncode}{''.join(f': {line}' for line in last)}"
    return ""


def tell_url(url: str, message: Mapping[str, object]) -> str:
    """POST ``message`` as JSON to ``url``; gives why that failed, without the URL: it may hold a token."""
    try:
        response = requests.post(
            url, json=dict(message), timeout=_SECONDS, allow_redirects=False, stream=True
        )
        response.close()
    except (requests.RequestException, OSError) as error:
        return f"the URL of watch: tell cannot be reached: {type(error).__name__}"
    if not 200 <= response.status_code < 300:
        return f"the URL of watch: tell answers with status {response.status_code}"
    return ""
