"""Real engines behind the gateway: see tools/real-engines.

Parts: `routing` (all engines used, streams, a client that leaves, what engines offer to be read, an engine killed under load), `embeddings`,
`latency` (first token, direct and through the gateway), `calibration` (the simulator's engine fitted to a real one).
"""

import argparse
import collections
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

import calibration
import fleet
from client import NO_END, call, prompt, stream

PARTS = ("routing", "embeddings", "latency", "calibration")
passed = 0


def check(what, fact, more=""):
    global passed
    if not fact:
        raise SystemExit(f"real engines: {what}: FAILED {more}")
    passed += 1
    print(f"  ok  {what}{f': {more}' if more else ''}", flush=True)


def at_once(count, work):
    """Runs `work(k)` on as many threads, and gives their results in order."""
    results = [None] * count
    def one(k):
        results[k] = work(k)
    threads = [threading.Thread(target=one, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def what_engines_offer(engine):
    for path in ("/v1/models", "/health", "/metrics"):
        print(f"      GET {path} at the engine: {call(engine.url, 'GET', path)[0]}")


def routing(gateway, engines, has_embedder):
    what_engines_offer(engines[0])
    # An engine that has not said yet what it serves may have any model.
    unknown, end = {"model": "gemma-3-27b", "prompt": "x", "max_tokens": 1}, time.monotonic() + 60
    while (refused := call(gateway.url, "POST", "/v1/completions", unknown))[0] != 404 and time.monotonic() < end:
        time.sleep(0.1)
    message = refused[1]["error"]["message"] if refused[0] == 404 else refused[:2]
    check("a model that none of them has", f"`{fleet.MODEL}`" in message, message)
    status, found, headers = call(gateway.url, "GET", "/v1/models")
    names = [model["id"] for model in found["data"]]
    wanted = [fleet.EMBEDDINGS, fleet.MODEL] if has_embedder else [fleet.MODEL]
    check("the engines' models, in one list", names == wanted and headers["x-tidegate-reason"] == "models;merged", " ".join(names))
    body = {"model": fleet.MODEL, "prompt": prompt(12), "max_tokens": 8, "logit_bias": NO_END}
    status, answer, headers = call(gateway.url, "POST", "/v1/completions", body)
    check("an answer in one piece", status == 200 and answer["usage"]["completion_tokens"] == 8, f"reason {headers['x-tidegate-reason']}")
    body = {"model": fleet.MODEL, "messages": [{"role": "user", "content": "Where does the tide go?"}], "max_tokens": 8}
    status, answer, _ = call(gateway.url, "POST", "/v1/chat/completions", body)
    # A model that was never taught to chat may say nothing.
    check("a chat", status == 200 and answer["choices"][0]["message"]["role"] == "assistant" and answer["usage"]["prompt_tokens"] > 5)
    answers = at_once(12, lambda k: stream(gateway.url, prompt(24), 12))
    check("twelve streams at once, whole", all(a.ok and a.finish == "length" for a in answers), next((a.error for a in answers if not a.ok), ""))
    shares = collections.Counter(a.endpoint for a in answers)
    check("every engine got some", len(shares) == len(engines), " ".join(str(n) for n in shares.values()))
    a_stream(gateway, engines[0])
    leave(gateway, engines[0])


def a_stream(gateway, engine):
    """Tokens come one by one and not at the end, and the text is the engine's own."""
    text = prompt(30)
    # The second time the prompt is in the engine's memory, which moves the last bits of its numbers: both that count find it there.
    stream(engine.url, text, 40)
    direct = stream(engine.url, text, 40)
    through = stream(gateway.url, text, 40, {"x-pool": "one"})
    check("a stream is the engine's, word for word", through.ok and direct.text == through.text,
          f"{len(through.text)} bytes" if direct.text == through.text else f"{direct.text!r} {through.error or repr(through.text)}")
    check("its first token is long there when the last comes", through.first_s < through.total_s / 2, f"{through.first_s:.3f} of {through.total_s:.3f} s")


def leave(gateway, engine):
    """The client closes after three tokens of a thousand: the engine stops, and is free for the next."""
    begin = len(engine.lines)
    left = stream(gateway.url, prompt(20), 1000, {"x-pool": "one"}, leave_after=3)
    closed = time.monotonic()
    seen = engine.wait_for("Disconnected from client", 20, begin)
    took_s = time.monotonic() - closed
    check("a client that leaves is told to the engine", left.tokens == 3 and seen, f"{took_s * 1e3:.0f} ms later, as the engine's log says")
    after = stream(gateway.url, prompt(20), 4, {"x-pool": "one"})
    check("the engine is free for the next", after.ok, f"first token after {after.first_s:.2f} s")


def kill(gateway, engines):
    """A process is killed while a stream is under way at it. Only streams that had begun there may fail."""
    begins = [len(engine.lines) for engine in engines]
    killed = []
    def ask(k):
        return stream(gateway.url, prompt(30), 24)
    def killer():
        while not killed:
            for engine, begin in zip(engines, begins):
                # The engine's log names a request when its answer begins.
                if not killed and engine.wait_for("POST /v1/completions", 0.02, begin):
                    engine.kill()
                    killed.append(engine)
    executioner = threading.Thread(target=killer, daemon=True)
    executioner.start()
    waves = [answer for _ in range(3) for answer in at_once(9, ask)]
    executioner.join(10)
    check("the killed engine had a stream", killed)
    victim = killed[0]
    whole = sum(a.ok and a.finish == "length" for a in waves)
    begun = [a for a in waves if not a.ok and a.tokens > 0]
    lost = [a for a in waves if not a.ok and a.tokens == 0]
    check("an engine killed under load", not lost and whole >= len(waves) - 2 and victim.process.poll() is not None,
          f"{len(waves)} streams, {whole} whole, {len(begun)} broken off after their first token, {len(lost)} lost before it"
          + "".join(f"; {a.error}" for a in lost))
    late = at_once(4, ask)
    check("the others go on", all(a.ok and a.endpoint != victim.url for a in late))


def embeddings(gateway):
    texts = ["A kitten sleeps on the sofa.", "The cat is napping on the couch.", "Interest rates rose by half a point."]
    status, answer, _ = call(gateway.url, "POST", "/v1/embeddings", {"model": fleet.EMBEDDINGS, "input": texts})
    check("embeddings through the gateway", status == 200 and [len(d["embedding"]) for d in answer["data"]] == [384] * 3)
    near, far = (sum(a * b for a, b in zip(answer["data"][0]["embedding"], answer["data"][k]["embedding"])) for k in (1, 2))
    check("what is alike is near", near > 0.5 > 0.3 > far, f"cosine {near:.3f} for alike, {far:.3f} for unlike texts")
    answers = at_once(40, lambda k: call(gateway.url, "POST", "/v1/embeddings", {"model": fleet.EMBEDDINGS, "input": texts[k % 3]}))
    shares = collections.Counter(headers["x-tidegate-endpoint"] for _, _, headers in answers)
    failed = [answer for answer in answers if answer[0] != 200]
    check("forty at once over two servers", not failed and len(shares) == 2, " ".join(map(str, shares.values()))
          + "".join(f"; {status} {body} {headers['x-tidegate-reason']}" for status, body, headers in failed))


def latency(gateway, engine, pairs):
    """Time to the first token of the same engine, direct and through the gateway in turns."""
    direct, through = [], []
    for k in range(pairs):
        for way in ((engine.url, None, direct), (gateway.url, {"x-pool": "one"}, through))[:: 1 if k % 2 else -1]:
            answer = stream(way[0], prompt(24), 2, way[1])
            check_quietly(answer)
            way[2].append(answer.first_s)
    print(f"| TTFT, {pairs} each | median ms | p90 ms | fastest ms |\n|---|---|---|---|")
    for name, times in (("direct", direct), ("through Tidegate", through)):
        print(f"| {name} | {statistics.median(times) * 1e3:.1f} | {statistics.quantiles(times, n=10)[-1] * 1e3:.1f} | {min(times) * 1e3:.1f} |")
    added_ms = (statistics.median(through) - statistics.median(direct)) * 1e3
    check("what the gateway adds is little beside a token", added_ms < statistics.median(direct) * 1e3 * 0.25, f"{added_ms:+.1f} ms at the median")


def check_quietly(answer):
    if not answer.ok or answer.first_s is None:
        raise SystemExit(f"real engines: {answer.error}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--requests", type=int, default=40, help="pairs for the latency part")
    parser.add_argument("--rounds", type=int, default=calibration.ROUNDS)
    args = parser.parse_args()
    parts = args.only.split(",")
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"real engines: no part {' '.join(unknown)}; there are {', '.join(PARTS)}")
    model = fleet.model_file(Path(sys.prefix))
    few = not {"routing"} & set(parts)
    engines = [fleet.start_engine(model) for _ in range(1 if few else 3)]
    embedders = [fleet.start_embedder() for _ in range(2)] if "embeddings" in parts else []
    gateway = fleet.start_gateway(args.binary, engines, embedders or engines)
    if "latency" in parts:
        latency(gateway, engines[0], args.requests)
    if "embeddings" in parts:
        embeddings(gateway)
    if "routing" in parts:
        routing(gateway, engines, bool(embedders))
    if "calibration" in parts:
        worst = calibration.run(args.binary, engines[0], args.rounds)
        # Generous: a machine that is busy with something else moves the measured times by more than the model is wrong.
        check("the fitted engine predicts lengths it has not seen", worst < 30.0, f"at most {worst:.1f} % off")
    if "routing" in parts:
        kill(gateway, engines)
    fleet.stop_all()
    print(f"real engines: {passed} passed, 0 failed")


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
