"""Cache events from a real ZeroMQ publisher to a real gateway.

Two publishers as vLLM has them, one that writes structs as lists and one that writes them as maps, with numbers, topics and hashes as they are
on the wire. The gateway counts what each holds, sees a gap, a cache that is emptied, another process with an empty cache, and a publisher that
is gone; requests go on all the while.
"""

import json
import socket
import threading
import time
import urllib.request
from typing import Any

import msgspec
import zmq

import running
from running import start_engine

check = running.Checks("cache events")


def structs(**kind):
    class EventBatch(msgspec.Struct, omit_defaults=True, gc=False, **kind):
        ts: float
        events: list[Any]
        data_parallel_rank: int | None = None

    class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True, **kind):
        pass

    class BlockStored(KVCacheEvent):
        block_hashes: list[bytes | int]
        parent_block_hash: bytes | int | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None

    class BlockRemoved(KVCacheEvent):
        block_hashes: list[bytes | int]
        medium: str | None

    class AllBlocksCleared(KVCacheEvent):
        pass

    return EventBatch, BlockStored, BlockRemoved, AllBlocksCleared


class Publisher:
    """vLLM's, as far as it is on the wire."""

    def __init__(self, port, hash_of, replay=None, **kind):
        self.kept, self.replay = [], replay
        if replay:
            threading.Thread(target=self.answer, daemon=True).start()
        self.batch, self.block_stored, self.block_removed, self.all_cleared = structs(**kind)
        self.port, self.hash_of = port, hash_of
        self.start()

    def start(self):
        self.number, self.pack = 0, msgspec.msgpack.Encoder()
        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.socket.set_hwm(100_000)
        self.socket.bind(f"tcp://127.0.0.1:{self.port}")

    def stop(self):
        self.socket.close(linger=0)

    def answer(self):
        """Batches that are kept, to whoever asks for them from a number on."""
        router = zmq.Context.instance().socket(zmq.ROUTER)
        router.bind(f"tcp://127.0.0.1:{self.replay}")
        while True:
            who, empty, start = router.recv_multipart()
            for number, payload in list(self.kept):
                if number >= int.from_bytes(start, "big"):
                    router.send_multipart((who, empty, number.to_bytes(8, "big"), payload))
            router.send_multipart((who, empty, (-1).to_bytes(8, "big", signed=True), b""))

    def send(self, *events, arrives=True):
        payload = self.pack.encode(self.batch(time.time(), list(events), 0))
        self.kept.append((self.number, payload))
        if arrives:
            self.socket.send_multipart((b"kv-events", self.number.to_bytes(8, "big"), payload))
        self.number += 1

    def stored(self, blocks, size=16):
        hashes = [self.hash_of(n) for n in range(blocks)]
        return self.block_stored(hashes, None, list(range(blocks * size)), size, None, "GPU", None)

    def removed(self, blocks):
        return self.block_removed([self.hash_of(n) for n in range(blocks)], "GPU")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(path):
    with urllib.request.urlopen(f"http://{admin}{path}") as answer:
        return answer.read().decode()


def endpoints():
    return [e for pool in json.loads(get("/api/pools"))["pools"] for e in pool["endpoints"]]


def until(what, fact):
    """Waits up to 20 s for `fact` of the endpoints."""
    end, seen = time.time() + 20, endpoints()
    while not fact(*seen) and time.time() < end:
        time.sleep(0.05)
        seen = endpoints()
    check(what, fact(*seen), json.dumps([(e["cache"], e.get("signals")) for e in seen]))


def start_gateway(engines, ports, late):
    global admin
    listed = "".join(
        f"      - {{ url: 'http://{e}', cache_events: 'tcp://127.0.0.1:{p}' }}\n" for e, p in zip(engines, ports)
    )
    admin = f"127.0.0.1:{free_port()}"
    config = (
        f"listeners: [{{ address: '127.0.0.1:0' }}]\nadmin: {{ address: '{admin}' }}\npools:\n  chat:\n    policy: adaptive\n"
        f"    prefix_cache: {{ events: {{ topic: kv }} }}\n    endpoints:\n{listed}"
        f"  late:\n    endpoints: [{{ url: 'http://{engines[0]}' }}]\n    prefix_cache:\n"
        f"      events: {{ url: 'tcp://{{host}}:{late.port}', replay: 'tcp://{{host}}:{late.replay}' }}\nroutes: [{{ pool: chat }}]\n"
    )
    return running.start_gateway(config)


def ask(base, prompt):
    body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 2}).encode()
    request = urllib.request.Request(f"{base}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return answer.status


def heard(endpoint, events, tokens):
    return (endpoint["cache"]["events"], endpoint["cache"]["resident_tokens"]) == (events, tokens)


def all_heard(endpoints):
    return all(heard(e, "uncounted", None) for e in endpoints)


def main():
    lists = Publisher(free_port(), lambda n: n.to_bytes(32, "big"), array_like=True)
    maps = Publisher(free_port(), lambda n: n - 2**62)
    late = Publisher(free_port(), lambda n: n, free_port())
    for _ in range(5):
        late.send(late.stored(10))
    base = start_gateway([start_engine()["address"], start_engine()["address"]], [lists.port, maps.port], late)
    until("all are heard and nothing is known yet", lambda *all: all_heard(all))
    # PUB forgets what it says before a subscription has arrived.
    time.sleep(0.2)
    lists.send(lists.stored(40))
    lists.send(lists.stored(1), lists.removed(11))
    maps.send(maps.stored(100, 32))
    until("tokens are counted, of lists and of maps", lambda a, b, _: heard(a, "counted", 480) and heard(b, "counted", 3200))
    prompts = [f"{n} " + "once upon a time there was a gateway " * 120 for n in range(4)]
    assert all(ask(base, p) == 200 for p in prompts)
    noted = [e["cache"]["blocks"] for e in endpoints()]
    assert sum(noted) == 4 * 4, noted
    lists.send(lists.all_cleared())
    maps.send(maps.all_cleared(), maps.stored(2))
    until(
        "a cache that is emptied is forgotten at once",
        lambda a, b, _: heard(a, "counted", 0) and heard(b, "counted", 32) and a["cache"]["blocks"] + b["cache"]["blocks"] == 0,
    )
    lists.number += 3
    lists.send(lists.stored(1))
    until("a gap costs the count", lambda a, *_: heard(a, "uncounted", None) and a["cache"]["gaps"] == 1)
    maps.send(*[maps.stored(3000, 16) for _ in range(20)])
    until("a message of a megabyte comes whole", lambda _, b, __: heard(b, "counted", 32 + 20 * 48_000))
    asked_at = time.time()
    late.send(late.stored(1))
    until("who comes late asks for what was before", lambda *all: heard(all[2], "counted", 51 * 16))
    maps.stop()
    until("a publisher that is gone is missed", lambda _, b, __: heard(b, "missing", None) and "signals" in b)
    trouble = endpoints()[1]["signals"][0]["trouble"]
    assert str(maps.port) in trouble, trouble
    assert all(ask(base, p) == 200 for p in prompts), "requests go on"
    assert f'tidegate_endpoint_cache_events_heard{{pool="chat",endpoint="{endpoints()[1]["url"]}"}} 0' in get("/metrics")
    maps.start()
    until("it is found again", lambda _, b, __: b["cache"]["events"] != "missing")
    time.sleep(0.2)
    maps.send(maps.stored(5))
    until("numbers that begin anew are another process, whose cache was empty", lambda _, b, __: heard(b, "counted", 80))
    # At most one question in ten seconds.
    time.sleep(max(0, asked_at + 10.5 - time.time()))
    late.send(late.stored(3), arrives=False)
    late.send(late.removed(4))
    until("and for what was lost", lambda *all: heard(all[2], "counted", 50 * 16) and all[2]["cache"]["gaps"] == 0)
    print(f"cache events: {check.passed} checks passed")


try:
    main()
finally:
    running.stop_all()
