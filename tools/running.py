"""Engines and a gateway as processes on loopback, with ports that the system gives: what tools that bring real clients share.

The program is the tool's first argument.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

BINARY = sys.argv[1]
processes = []


class Checks:
    """What was found to hold; the first that does not ends the tool."""

    def __init__(self, tool):
        self.tool, self.passed = tool, 0

    def __call__(self, what, fact, more=""):
        if not fact:
            raise SystemExit(f"{self.tool}: {what}: FAILED{f': {more}' if more else ''}")
        self.passed += 1
        print(f"  ok  {what}")


def start(arguments, **pipes):
    process = subprocess.Popen([BINARY, *arguments], text=True, **pipes)
    processes.append(process)
    return process


def start_engine(*more):
    """A simulated engine; its address and that of its control."""
    process = start(["engine", "--model", "llm", "--preset", "h100-8b", "--json", *more], stdout=subprocess.PIPE)
    return json.loads(process.stdout.readline())


def start_gateway(config):
    """`tidegate serve` with this config; where its first listener is."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(config)
    process = start(["serve", "-c", file.name], stderr=subprocess.PIPE)
    said = []
    for line in process.stderr:
        said.append(line)
        if "listening on " in line:
            os.unlink(file.name)
            # Else it would wait for a reader of its log one day.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return line.split("listening on ")[1].split()[0]
    raise SystemExit(f"the gateway did not start:\n{''.join(said)}")


def stop_all():
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(timeout=10)
