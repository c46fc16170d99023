"""Evaluation of a Prometheus query that must hold (HTTP API, `/api/v1/query`)."""

import json
from dataclasses import dataclass

import requests
import urllib3

from bundles.adapter import session
from bundles.deadline import Deadline, aside

_SECONDS = 20
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Doubt:
    """The reason for which a query does not hold."""

    why: str
    is_told: bool = False
    """Whether the response shows the problem. False for a missing response."""


def doubt_of(url: str, query: str, seconds: float = _SECONDS) -> Doubt | None:
    """Return why ``query`` does not hold at the server ``url``, or ``None`` if it holds.

    It holds if its response has at least one number, and all numbers differ from 0. An unreachable server, or no
    response within ``seconds``, is also a reason, because an unknown state is not in order.
    """
    try:
        status, data = aside(lambda: _fetch(url, query, seconds), Deadline(seconds))
        if status != 200:
            return Doubt(f"Prometheus answers with status {status} to {query}")
        if len(data) > _MOST_BYTES:
            return Doubt(f"Prometheus answers with more than {_MOST_BYTES} bytes to {query}")
        values = _values(json.loads(data))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        return Doubt(f"Prometheus cannot be asked: {type(error).__name__}")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Doubt(f"the answer of Prometheus is not understood, to {query}")
    if not values:
        return Doubt(f"the query of Prometheus gives nothing: {query}")
    if not (wrong := sum(not value for value in values)):
        return None
    return Doubt(
        f"the query of Prometheus does not hold for {wrong} of {len(values)} series: {query}", is_told=True
    )


def _fetch(url: str, query: str, seconds: float) -> tuple[int, bytes]:
    """Return the status and the body."""
    with (
        session() as opened,
        opened.get(
            f"{url.rstrip('/')}/api/v1/query",
            params={"query": query},
            timeout=seconds,
            stream=True,
            allow_redirects=False,
        ) as response,
    ):
        return response.status_code, response.raw.read(_MOST_BYTES + 1, decode_content=True)


def _values(answer: dict[str, object]) -> list[bool]:
    """Return whether each number of a response differs from 0. Raises ``ValueError`` and the like."""
    if answer["status"] != "success":
        raise ValueError
    data = answer["data"]
    if not isinstance(data, dict):
        raise ValueError
    kind, result = data["resultType"], data["result"]
    pairs = [result] if kind == "scalar" else [one["value"] for one in result]
    numbers = [float(pair[1]) for pair in pairs]
    return [number != 0 and number == number for number in numbers]  # NaN does not hold
