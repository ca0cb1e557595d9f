"""Real clients through a real gateway.

The official OpenAI client: chat, streams (byte-exact), completions, embeddings, models (of engines that differ, too), errors; in clear over HTTP/1.1, and over TLS and
HTTP/2. A call of gRPC and a conversation by WebSocket, in clear and over TLS.
"""

import asyncio
import concurrent.futures
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request

import grpc
import httpx
import openai
import trustme
import websockets.asyncio.client
import websockets.sync.server

import running
from running import start_engine

check = running.Checks("openai client")


def start_gateway(engines, listener="", pool=""):
    endpoints = "".join(f"      - {{ url: \"http://{e['address']}\" }}\n" for e in engines)
    return running.start_gateway(
        f"listeners: [{{ address: '127.0.0.1:0'{listener} }}]\nadmin: off\npools:\n  chat:\n    policy: adaptive\n{pool}    endpoints:\n{endpoints}"
    )


def raw_stream(base, body):
    request = urllib.request.Request(
        f"{base}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "x-engine-output-tokens": "6"},
    )
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def without_identity(stream):
    events = [e for e in stream.split(b"\n\n") if e]
    texts = []
    for event in events:
        if event != b"data: [DONE]":
            fields = json.loads(event.removeprefix(b"data: "))
            fields.pop("id"), fields.pop("created")
            texts.append(json.dumps(fields, sort_keys=True))
    return texts


def run(base, http, version):
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test", max_retries=0, http_client=http)
    question = [{"role": "user", "content": "Where does the tide go?"}]
    model = "tidegate-sim-8b"

    answer = client.chat.completions.create(model=model, messages=question, max_tokens=7)
    check("chat", answer.choices[0].message.content and answer.usage.completion_tokens == 7)

    stream = client.chat.completions.create(
        model=model, messages=question, max_tokens=9, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    words = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    check("chat, streaming", len(words) == 9 and chunks[-1].usage.completion_tokens == 9)

    answer = client.completions.create(model=model, prompt="Once", max_tokens=5)
    check("completions", answer.choices[0].text and answer.usage.completion_tokens == 5)

    one = client.embeddings.create(model=model, input=["a", "b"])
    two = client.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
    close = all(abs(x - y) < 1e-6 for x, y in zip(one.data[0].embedding, two.data[0].embedding))
    check("embeddings, base64 and float", len(one.data) == 2 and close)
    check("models", [m.id for m in client.models.list()] == [model])

    raw = client.chat.completions.with_raw_response.create(model=model, messages=question, max_tokens=1)
    check("x-request-id, x-tidegate-endpoint, x-tidegate-reason", raw.headers["x-request-id"] and raw.headers["x-tidegate-endpoint"].startswith("http://127.0.0.1:") and raw.headers["x-tidegate-reason"].startswith("adaptive"))

    check(f"spoken: {version}", raw.http_response.http_version == version)

    with client.chat.completions.create(model=model, messages=question, max_tokens=4000, stream=True) as stream:
        next(iter(stream))
    check("a stream left early", True)

    try:
        client.chat.completions.create(model=model, messages=[], max_tokens=-1)
        check("errors arrive as the client's own exceptions", False)
    except openai.BadRequestError as error:
        check("errors arrive as the client's own exceptions", error.status_code == 400)


def run_node(base, trusted="", models=None):
    """The client for Node, where there is one; tools/openai-client puts it beside the virtual environment."""
    folder = os.environ.get("OPENAI_NODE", "")
    if not folder:
        return print("  --  Node: skipped, as node or npm is not installed")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "openai_client.mjs")
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": trusted} if trusted else None
    done = subprocess.run(["node", script, base, folder, *(models or [])], stdout=subprocess.PIPE, text=True, timeout=60, env=environment)
    print(done.stdout, end="")
    if done.returncode:
        raise SystemExit("openai client for Node: FAILED")
    check.passed += done.stdout.count("  ok  ")


def run_models():
    """Two engines with different models, known by asking them: one list, and every model in it can be asked for."""
    question = [{"role": "user", "content": "Where does the tide go?"}]
    names = ["sim-small", "org/sim-large"]
    engines = [start_engine("--name", name.replace("/", "-"), "--served-model", name) for name in names]
    base = start_gateway(engines, pool="    models: { interval: 1s }\n")
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test", max_retries=0)
    # Until both have been asked the list is one engine's, or has one of both.
    end = time.monotonic() + 20
    while [m.id for m in client.models.list()] != names and time.monotonic() < end:
        time.sleep(0.05)
    listed = list(client.models.list())
    check("models of two engines in one list", [m.id for m in listed] == names, str(listed))
    check("a model is whole", all(m.object == "model" and m.owned_by == "tidegate" and isinstance(m.created, int) for m in listed))
    for name, engine in zip(names, engines):
        check(f"one model, {name}", client.models.retrieve(name).id == name)
        answer = client.chat.completions.with_raw_response.create(model=name, messages=question, max_tokens=1)
        check(f"{name} is asked where it is served", answer.headers["x-tidegate-endpoint"] == f"http://{engine['address']}")
    for ask in [
        lambda: client.models.retrieve("sim-smal"),
        lambda: client.chat.completions.create(model="sim-smal", messages=question, max_tokens=1),
    ]:
        try:
            ask()
            check("a model that nobody has is not found", False)
        except openai.NotFoundError as error:
            told = error.code == "model_not_found" and error.param == "model" and "`sim-smal` does not exist" in error.message and "`sim-small`, " in error.message
            check("a model that nobody has is not found, and the nearest is named", told, error.message)
    run_node(base, models=names)


def run_byte_exact(base, engine):
    question = [{"role": "user", "content": "Where does the tide go?"}]
    body = {"model": "tidegate-sim-8b", "messages": question, "stream": True, "stream_options": {"include_usage": True}}
    through, direct = raw_stream(base, body), raw_stream(f"http://{engine['address']}", body)
    same = [len(t) for t in without_identity(through)] == [len(t) for t in without_identity(direct)]
    check("a stream through the gateway is the engine's, event by event", same and through.endswith(b"data: [DONE]\n\n"))


class Echo(grpc.GenericRpcHandler):
    """A service of gRPC without a schema: messages are bytes."""

    def service(self, details):
        if details.method != "/engine.V1/Ask":
            return None

        def ask(message, context):
            context.set_trailing_metadata((("x-usage", str(len(message))),))
            if message == b"fail":
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not that")
            return message

        return grpc.unary_unary_rpc_method_handler(ask)


def run_grpc(channel):
    ask = channel.unary_unary("/engine.V1/Ask")
    answer, call = ask.with_call(b"x" * 100_000, timeout=10)
    check("gRPC: a call", answer == b"x" * 100_000 and dict(call.trailing_metadata())["x-usage"] == "100000")
    calls = [ask.future(str(n).encode(), timeout=10) for n in range(50)]
    check("gRPC: calls at once", [c.result() for c in calls] == [str(n).encode() for n in range(50)])
    for method, message, code in [
        ("/engine.V1/Ask", b"fail", grpc.StatusCode.FAILED_PRECONDITION),
        ("/engine.V1/Missing", b"", grpc.StatusCode.UNIMPLEMENTED),
    ]:
        try:
            channel.unary_unary(method)(message, timeout=10)
            check(f"gRPC: {code.name}", False)
        except grpc.RpcError as error:
            check(f"gRPC: {code.name}", error.code() == code)


async def talk(url, context):
    # Not the library's client with threads: it reads and writes one TLS object from two of them, which Python 3.11 does not
    # guard, and a session ticket that arrives while the request is written loses the request before it is sent.
    async with websockets.asyncio.client.connect(f"{url}/v1/realtime", ssl=context, proxy=None) as socket:
        for message in ["hello", b"\x00" * 300_000, "again"]:
            await socket.send(message)
            answer = await asyncio.wait_for(socket.recv(), 10)
            check(f"WebSocket: {len(message)} bytes there and back", answer == message)


def run_websocket(url, context):
    asyncio.run(talk(url, context))


def main():
    engines = [start_engine("--name", f"e{n}") for n in range(3)]
    base = start_gateway(engines)
    run(base, httpx.Client(), "HTTP/1.1")
    run_byte_exact(base, engines[0])
    run_node(base)
    run_models()
    with tempfile.TemporaryDirectory() as folder:
        authority, cert, key = trustme.CA(), f"{folder}/gateway.pem", f"{folder}/gateway.key"
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(key)
        for part in issued.cert_chain_pems:
            part.write_to_path(cert, append=True)
        tls = f", tls: {{ certificates: [{{ cert: '{cert}', key: '{key}' }}] }}"
        trust = authority.cert_pem.bytes()
        context = httpx.create_ssl_context()
        context.load_verify_locations(cadata=trust.decode())
        secure = start_gateway(engines, tls)
        run(secure, httpx.Client(http2=True, verify=context), "HTTP/2")
        authority.cert_pem.write_to_path(f"{folder}/authority.pem")
        run_node(secure, f"{folder}/authority.pem")

        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Echo()])
        engine = {"address": f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"}
        server.start()
        try:
            address = start_gateway([engine], pool="    protocol: h2\n").split("//")[1]
            with grpc.insecure_channel(address) as channel:
                run_grpc(channel)
            address = start_gateway([engine], tls, "    protocol: h2\n").split("//")[1]
            with grpc.secure_channel(address, grpc.ssl_channel_credentials(trust)) as channel:
                run_grpc(channel)
        finally:
            server.stop(None)

        def repeat(socket):
            for message in socket:
                socket.send(message)

        with websockets.sync.server.serve(repeat, "127.0.0.1", 0) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            engine = {"address": f"127.0.0.1:{server.socket.getsockname()[1]}"}
            run_websocket(start_gateway([engine]).replace("http", "ws"), None)
            # Of its own: the other offers HTTP/2, which this client does not speak.
            context = ssl.create_default_context(cadata=trust.decode())
            run_websocket(start_gateway([engine], tls).replace("http", "ws"), context)
            server.shutdown()


try:
    main()
    print(f"{check.passed} passed, 0 failed")
finally:
    running.stop_all()
