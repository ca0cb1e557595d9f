"""The official OpenAI client through a real gateway: chat, streams (byte-exact), completions, embeddings, models, errors."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request

import openai

BINARY = sys.argv[1]
passed = 0
processes = []


def check(what, fact):
    global passed
    if not fact:
        raise SystemExit(f"openai client: {what}: FAILED")
    passed += 1
    print(f"  ok  {what}")


def start_engine(name):
    process = subprocess.Popen(
        [BINARY, "engine", "--model", "llm", "--preset", "h100-8b", "--name", name, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    processes.append(process)
    return json.loads(process.stdout.readline())


def start_gateway(engines):
    endpoints = "".join(f"      - {{ url: \"http://{e['address']}\" }}\n" for e in engines)
    config = f"listeners: [{{ address: '127.0.0.1:0' }}]\nadmin: off\npools:\n  chat:\n    policy: adaptive\n    endpoints:\n{endpoints}"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(config)
    process = subprocess.Popen([BINARY, "serve", "-c", file.name], stderr=subprocess.PIPE, text=True)
    processes.append(process)
    for line in process.stderr:
        if "listening on http://" in line:
            os.unlink(file.name)
            return line.split("listening on ")[1].split()[0]
    raise SystemExit("the gateway did not start")


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


def run():
    engines = [start_engine(f"e{n}") for n in range(3)]
    base = start_gateway(engines)
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test", max_retries=0)
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

    with client.chat.completions.create(model=model, messages=question, max_tokens=4000, stream=True) as stream:
        next(iter(stream))
    check("a stream left early", True)

    try:
        client.chat.completions.create(model=model, messages=[], max_tokens=-1)
        check("errors arrive as the client's own exceptions", False)
    except openai.BadRequestError as error:
        check("errors arrive as the client's own exceptions", error.status_code == 400)

    body = {"model": model, "messages": question, "stream": True, "stream_options": {"include_usage": True}}
    through, direct = raw_stream(base, body), raw_stream(f"http://{engines[0]['address']}", body)
    check("a stream through the gateway is the engine's, event by event", [len(t) for t in without_identity(through)] == [len(t) for t in without_identity(direct)] and through.endswith(b"data: [DONE]\n\n"))


try:
    run()
    print(f"{passed} passed, 0 failed")
finally:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(timeout=10)
