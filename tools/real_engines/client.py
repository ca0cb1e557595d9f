"""Completions over plain HTTP, with the times that matter."""

import http.client
import itertools
import json
import time
from urllib.parse import urlsplit

from fleet import MODEL

WORDS = (
    "tide harbour gate stone river signal lantern winter copper letter garden engine morning bridge silver window "
    "paper mountain orange station candle forest mirror thunder basket village pepper compass market feather"
).split()
# Neither the end of the text nor of a turn comes before the length that is asked for.
NO_END = {"1": -100.0, "106": -100.0}
counter = itertools.count(1)


def prompt(words):
    """About as many tokens as words, and different from the first word on: the engine keeps the last prompt's memory."""
    k = next(counter)
    return f"{k} " + " ".join(WORDS[(k * 7 + i * (1 + k % 5)) % len(WORDS)] for i in range(words))


class Answer:
    """How a request went; times in seconds from its start."""

    def __init__(self):
        self.started = time.monotonic()
        self.status = self.endpoint = self.error = self.first_s = self.total_s = self.finish = None
        self.tokens = 0
        self.text = ""

    @property
    def ok(self):
        return self.status == 200 and self.error is None


def call(base, method, path, body=None, headers=None, timeout=120):
    """An answer in one piece: status, JSON or text, headers."""
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=timeout)
    try:
        content = json.dumps(body) if body is not None else None
        connection.request(method, path, content, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read().decode()
        try:
            return answer.status, json.loads(text), answer.headers
        except ValueError:
            return answer.status, text, answer.headers
    finally:
        connection.close()


def stream(base, text, max_tokens, headers=None, leave_after=None, timeout=180):
    """A streamed completion. `leave_after` so many tokens the client closes the connection."""
    answer = Answer()
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=timeout)
    body = {"model": MODEL, "prompt": text, "max_tokens": max_tokens, "stream": True, "temperature": 0.0}
    body["logit_bias"] = NO_END
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        answer.status, answer.endpoint = response.status, response.headers.get("x-tidegate-endpoint")
        if response.status != 200:
            answer.error = f"{response.status} {response.read().decode()[:200]}"
            return answer
        read_events(response, answer, leave_after)
    except (OSError, http.client.HTTPException) as e:
        answer.error = f"{type(e).__name__} {e}"
    finally:
        answer.total_s = time.monotonic() - answer.started
        connection.close()
    return answer


def read_events(response, answer, leave_after):
    while line := response.readline():
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            answer.error = str(event["error"])
            return
        choice = event["choices"][0]
        answer.finish = choice.get("finish_reason") or answer.finish
        if choice.get("text"):
            answer.first_s = answer.first_s or time.monotonic() - answer.started
            answer.tokens += 1
            answer.text += choice["text"]
        if leave_after and answer.tokens >= leave_after:
            return
    answer.error = answer.error or "ended without [DONE]"


def count_tokens(engine, text):
    return call(engine, "POST", "/extras/tokenize/count", {"input": text})[1]["count"]
