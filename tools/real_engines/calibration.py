"""The simulator's engine, fitted to a real one.

Measured: one stream at a time, prompts of several lengths, each with a first word of its own so that nothing of the last prompt is used again.
Other work on the machine only adds time, so of the runs of a length the fastest counts.

A step of the model takes step + per_token (tokens) + per_kv_token (tokens in memory). A prompt of P tokens is computed in chunks of B; chunk i
finds i B tokens in memory, and the last chunk gives the first token. What a server does once per request, such as reading it and cutting the
prompt into tokens, comes on top; the simulator has it as the network's two ways:

    first(P)  = once + n step + per_token P + per_kv_token (0 + B + 2 B ... + (n-1) B),   n = ceil(P / B)
    each next = step + per_token + per_kv_token (P + k)

Two equations for each length, four unknowns none of which is negative: least squares of the relative errors.
"""

import itertools
import json
import math
import subprocess
import tempfile
from pathlib import Path

import numpy

from client import count_tokens, prompt, stream
from fleet import BATCH, CONTEXT

FITTED = (24, 96, 300, 700, 1400)
PREDICTED = (48, 180, 450, 1000)
OUTPUT = 32
ROUNDS = 3


def measure(engine, rounds):
    """Per length in words: tokens of the prompt, seconds to the first token, seconds in all; the fastest of all rounds."""
    found = {}
    stream(engine.url, prompt(20), 8)
    for _, words in itertools.product(range(rounds), sorted(FITTED + PREDICTED)):
        text = prompt(words)
        answer = stream(engine.url, text, OUTPUT)
        if not answer.ok or answer.finish != "length":
            raise SystemExit(f"calibration: {words} words: {answer.error or answer.finish}")
        # The answer's text may join tokens of one letter; its length is what was asked for.
        tokens = count_tokens(engine.url, text)
        found.setdefault(words, []).append((tokens, answer.first_s, answer.total_s))
    fastest = lambda runs: (runs[0][0], min(r[1] for r in runs), min(r[2] - r[1] for r in runs))
    return {words: fastest(runs) for words, runs in found.items()}


def equations(tokens):
    """Coefficients of (step, per_token, per_kv_token, once) for the first token, and for the mean of those after it."""
    chunks = math.ceil(tokens / BATCH)
    first = [chunks, tokens, BATCH * chunks * (chunks - 1) / 2, 1.0]
    return first, [1.0, 1.0, tokens + OUTPUT / 2, 0.0]


def fit(measured):
    rows, values = [], []
    for words in FITTED:
        tokens, first_s, rest_s = measured[words]
        for row, seconds in zip(equations(tokens), (first_s, rest_s / (OUTPUT - 1))):
            rows.append(numpy.array(row) / seconds)
            values.append(1.0)
    return non_negative(numpy.array(rows), numpy.array(values))


def non_negative(a, b):
    """Least squares without negative unknowns: the best of all ways to leave some at zero, as there are few."""
    best = None
    unknowns = a.shape[1]
    for size in range(unknowns, 0, -1):
        for kept in itertools.combinations(range(unknowns), size):
            x, *_ = numpy.linalg.lstsq(a[:, kept], b, rcond=None)
            error = numpy.sum((a[:, kept] @ x - b) ** 2)
            if (x >= 0).all() and (best is None or error < best[0]):
                full = numpy.zeros(unknowns)
                full[list(kept)] = x
                best = (error, full)
    return best[1]


def fleet_yaml(step, per_token, per_kv_token, once):
    time = lambda s: f"{round(s * 1e9)}ns"
    return (
        f"fleet: [{{ llm: {{ step: {time(step)}, per_token: {time(per_token)}, free_tokens: 0, per_kv_token: {time(per_kv_token)}, "
        f"token_budget: {BATCH}, max_running: 1, kv_tokens: {CONTEXT} }} }}]\nnetwork: {time(once / 2)}\n"
    )


def simulate(binary, fleet, tokens):
    """What `tidegate sim` says of one request: seconds to the first token, and in all."""
    with tempfile.TemporaryDirectory() as folder:
        trace, file = Path(folder, "one.csv"), Path(folder, "fleet.yaml")
        trace.write_text(f"t_ms,input_tokens,output_tokens\n0,{tokens},{OUTPUT}\n")
        file.write_text(fleet)
        command = [binary, "sim", "--trace", trace, "--fleet", file, "--policy", "round_robin", "--json"]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["policies"][0]
    return row["mean_ttft_s"], row["mean_latency_s"]


def run(binary, engine, rounds):
    """Prints what was fitted and what it predicts; the largest error of a prediction, per cent."""
    measured = measure(engine, rounds)
    step, per_token, per_kv_token, once = fit(measured)
    fleet = fleet_yaml(step, per_token, per_kv_token, once)
    print(f"fitted on {len(FITTED)} lengths, {rounds} runs each: step {step * 1e3:.2f} ms, {per_token * 1e3:.3f} ms per token, "
          f"{per_kv_token * 1e6:.3f} us per token in memory, {once * 1e3:.1f} ms once per request")
    print("".join(f"    {line}\n" for line in fleet.splitlines()), end="")
    print("| prompt tokens | | TTFT s measured | simulated | error % | total s measured | simulated | error % |")
    print("|---|---|---|---|---|---|---|---|")
    worst = 0.0
    for words in sorted(measured):
        tokens, first_s, rest_s = measured[words]
        sim_first_s, sim_total_s = simulate(binary, fleet, tokens)
        total_s = first_s + rest_s
        errors = [(sim_first_s / first_s - 1) * 100, (sim_total_s / total_s - 1) * 100]
        if words in PREDICTED:
            worst = max(worst, *map(abs, errors))
        kind = "fitted" if words in FITTED else "**predicted**"
        print(f"| {tokens} | {kind} | {first_s:.3f} | {sim_first_s:.3f} | {errors[0]:+.1f} | "
              f"{total_s:.3f} | {sim_total_s:.3f} | {errors[1]:+.1f} |")
    return worst
