#!/usr/bin/env python3
"""A gateway under mixed load for a long time, with faults and reloads: does its memory stay flat, does everything come back to zero?

    tools/soak.py BINARY [MINUTES]

Four simulated engines; embeddings and streamed chat by `tidegate load`; clients that leave in the middle of their streams; every 10 s a
new config (endpoints come and go, limits and the policy change); every 15 s a fault of some kind at one engine for 5 s. Memory is read
every 10 s. The last two minutes are without faults; then everything must be at zero. Exit code 1 if memory grew by more than a tenth
after the first fifth of the time, a reload was rejected, or anything was left.
"""

import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ENGINES = 4
POLICIES = ["adaptive", "round_robin", "least_connections", "peak_ewma", "random"]
FAULTS = [
    {"kind": "refuse", "for_s": 5},
    {"kind": "hang", "for_s": 5},
    {"kind": "slow", "factor": 8, "for_s": 5},
    {"kind": "status", "status": 500, "rate": 0.6, "for_s": 5},
    {"kind": "status", "status": 429, "rate": 0.5, "retry_after_s": 1, "for_s": 5},
    {"kind": "cut", "rate": 0.5, "for_s": 5},
    {"kind": "reset", "for_s": 5},
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, deadline=30):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nobody listens on {port}")


def ask(url, body=None, timeout=10):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"} if data else {})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read().decode()


def config(users, gateway, admin, generation, rng):
    few = users if generation % 3 else [u for u in users if u != users[generation % len(users)]]
    endpoints = "\n".join(f'      - {{ url: "http://127.0.0.1:{port}" }}' for port in few)
    return f"""listeners: [{{ address: "127.0.0.1:{gateway}" }}]
admin: {{ address: "127.0.0.1:{admin}" }}
reload: {{ watch: 1s }}
rate_limits:
  - {{ name: everybody, limit: {rng.choice([2000, 3000, 4000])} requests/s }}
pools:
  chat:
    policy: {rng.choice(POLICIES)}
    health: {{ http: {{ path: /health }}, interval: 2s }}
    timeouts: {{ between_tokens: 5s, first_byte: 20s }}
    endpoints:
{endpoints}
"""


def leave_early(port, stop, counts, rng):
    """Asks for streams and leaves in their middle, at every moment once."""
    body = json.dumps({"model": "m", "stream": True, "max_tokens": 200, "messages": [{"role": "user", "content": "x"}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    request = head + body
    while not stop.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as s:
                s.settimeout(5)
                part = rng.choice([1, 20, len(head), len(request) - 3, len(request), len(request), len(request)])
                s.sendall(request[:part])
                if part == len(request) and rng.random() < 0.7:
                    s.recv(rng.choice([1, 400, 4000]))
            counts["left"] += 1
        except OSError:
            counts["refused"] += 1
        stop.wait(0.1)


def main():
    binary, minutes = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    total, rng = minutes * 60, random.Random(1)
    children, folder = [], tempfile.TemporaryDirectory(prefix="tidegate-soak-")

    def start(*args, **kept):
        children.append(subprocess.Popen([binary, *args], stderr=subprocess.DEVNULL, **kept))
        return children[-1]

    def quiet(**more):
        return {"stdout": subprocess.DEVNULL, **more}

    try:
        users, controls = [free_port() for _ in range(ENGINES)], [free_port() for _ in range(ENGINES)]
        for k, (user, control) in enumerate(zip(users, controls)):
            start("engine", "--model", "llm", "--speed", "8", "--output-tokens", "60", "--seed", str(k), "--name", f"e{k}",
                  "--address", f"127.0.0.1:{user}", "--control", f"127.0.0.1:{control}", **quiet())
        for port in users + controls:
            wait_for(port)
        gateway, admin = free_port(), free_port()
        path = os.path.join(folder.name, "gateway.yaml")

        def write(generation):
            with open(path + ".new", "w") as file:
                file.write(config(users, gateway, admin, generation, rng))
            os.replace(path + ".new", path)

        write(0)
        served = start("serve", "-c", path, **quiet())
        wait_for(gateway)
        wait_for(admin)
        url, seconds = f"http://127.0.0.1:{gateway}", str(int(total - 20))
        loads = [
            start("load", url, "--path", "/v1/embeddings", "--rate", "60", "--duration", seconds, "--json", stdout=subprocess.PIPE),
            start("load", url, "--stream", "--rate", "12", "--duration", seconds, "--json", stdout=subprocess.PIPE),
        ]
        stop, counts = threading.Event(), {"left": 0, "refused": 0}
        leaver = threading.Thread(target=leave_early, args=(gateway, stop, counts, random.Random(2)))
        leaver.start()
        memory, generation, faults, begun, next_fault = [], 0, {}, time.monotonic(), 15.0
        while (now := time.monotonic() - begun) < total:
            status = open(f"/proc/{served.pid}/status").read()
            memory.append((now, int(re.search(r"VmRSS:\s+(\d+)", status)[1])))
            generation += 1
            write(generation)
            if now >= next_fault and now < total - 120:
                next_fault += 15.0
                fault = rng.choice(FAULTS)
                faults[fault["kind"]] = faults.get(fault["kind"], 0) + 1
                ask(f"http://127.0.0.1:{rng.choice(controls)}/fault", fault)
            time.sleep(max(0.0, begun + 10.0 * (generation) - time.monotonic()))
        stop.set()
        leaver.join()
        results = [json.loads(load.communicate(timeout=180)[0]) for load in loads]
        time.sleep(12)
        metrics = ask(f"http://127.0.0.1:{admin}/metrics")
        left = {
            line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in metrics.splitlines()
            if not line.startswith("#") and re.match(r"tidegate_(endpoint_in_flight|in_flight|queue_length|queued)", line)
        }
        reloads = [line for line in metrics.splitlines() if line.startswith("tidegate_config_reloads_total")]
        outcomes = [line for line in metrics.splitlines() if line.startswith("tidegate_requests_total")]
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()
        for child in children:
            try:
                child.wait(timeout=40)
            except subprocess.TimeoutExpired:
                child.kill()
        folder.cleanup()

    print(f"{minutes:g} minutes; faults: {faults}; clients that left early: {counts}")
    print("\n".join(reloads))
    for name, result in zip(["embeddings", "streams"], results):
        print(name, json.dumps(result)[:900])
    print("\n".join(outcomes)[:3000])
    step = max(1, len(memory) // 10)
    for k in range(0, len(memory), step):
        part = memory[k : k + step]
        mean = sum(kib for _, kib in part) / len(part)
        print(f"{part[0][0] / 60:5.1f} to {part[-1][0] / 60:5.1f} min: resident {mean / 1024:6.2f} MiB, most {max(k for _, k in part) / 1024:6.2f}")
    settled = [kib for at, kib in memory if at > total / 5]
    fifth = len(settled) // 5 or 1
    growth = (sum(settled[-fifth:]) / fifth) / (sum(settled[:fifth]) / fifth) - 1
    remaining = {name: value for name, value in left.items() if value != 0}
    print(f"growth from the second fifth of the time to the last: {growth:+.1%}; left at the end: {remaining or 'nothing'} of {len(left)} gauges")
    rejected = any('"rejected"' in line and not line.endswith(" 0") for line in reloads)
    sys.exit(1 if growth > 0.1 or remaining or rejected or not left else 0)


main()
