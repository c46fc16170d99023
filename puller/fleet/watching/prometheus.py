"""Prometheus as a judge: a query that must hold (its HTTP API, `/api/v1/query`)."""

import json

import requests

_SECONDS = 20
_MOST_BYTES = 4 * 1024 * 1024


def failure_of(url: str, query: str) -> str:
    """Why ``query`` does not hold at the server ``url``; empty when it does.

    It holds when its answer has at least one number, and all of them are other than 0. A server that cannot be asked
    is a reason, too: what nobody knows is not in order.
    """
    try:
        with requests.get(
            f"{url.rstrip('/')}/api/v1/query",
            params={"query": query},
            timeout=_SECONDS,
            stream=True,
            allow_redirects=False,
        ) as response:
            data = response.raw.read(_MOST_BYTES + 1, decode_content=True)
        if response.status_code != 200:
            return f"Prometheus answers with status {response.status_code} to {query}"
        if len(data) > _MOST_BYTES:
            return f"Prometheus answers with more than {_MOST_BYTES} bytes to {query}"
        values = _values(json.loads(data))
    except (requests.RequestException, OSError) as error:
        return f"Prometheus cannot be asked: {type(error).__name__}"
    except (ValueError, KeyError, TypeError, IndexError):
        return f"the answer of Prometheus is not understood, to {query}"
    if not values:
        return f"the query of Prometheus gives nothing: {query}"
    wrong = sum(not value for value in values)
    return (
        f"the query of Prometheus does not hold for {wrong} of {len(values)} series: {query}" if wrong else ""
    )


def _values(answer: dict[str, object]) -> list[bool]:
    """Whether each number of an answer is other than 0; raises ``ValueError`` and the like for another answer."""
    if answer["status"] != "success":
        raise ValueError
    data = answer["data"]
    if not isinstance(data, dict):
        raise ValueError
    kind, result = data["resultType"], data["result"]
    pairs = [result] if kind == "scalar" else [one["value"] for one in result]
    numbers = [float(pair[1]) for pair in pairs]
    return [number != 0 and number == number for number in numbers]  # NaN does not hold
