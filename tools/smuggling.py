"""Ambiguous requests, through the gateway to real servers: it refuses them, or every server reads one and the same request.

Each case is sent to one gateway per server, and to each server without a gateway in between, to show what they make of it by themselves.
Prints a table; fails if two servers read something different behind the gateway, if one reads a request that the case does not have, or
if anything arrives of a request that was refused.
"""

import concurrent.futures
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from smuggling_cases import CASES

BINARY = os.path.abspath(sys.argv[1])
FOLDER = tempfile.mkdtemp(prefix="tidegate-smuggling-")
QUIET_S = 1.0
processes = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(arguments, out=None, **more):
    out = open(out, "ab") if out else subprocess.DEVNULL
    processes.append(subprocess.Popen(arguments, stdout=out, stderr=subprocess.DEVNULL, cwd=FOLDER, **more))


def write(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "w") as file:
        file.write(text)
    return path


NGINX = """
daemon off; master_process off; pid nginx.pid; error_log /dev/null;
events { worker_connections 512; }
http {
  log_format seen escape=json '{"method":"$request_method","target":"$request_uri","host":"$http_host","status":"$status"}';
  access_log nginx.log seen; underscores_in_headers on;
  client_body_temp_path nginx-body; proxy_temp_path nginx-proxy; fastcgi_temp_path nginx-fcgi; uwsgi_temp_path nginx-uwsgi; scgi_temp_path nginx-scgi;
  server { listen 127.0.0.1:PORT; location / { return 200 "$request_method $request_uri $content_length"; } }
}
"""

HAPROXY = """
global
  log stdout format raw local0
defaults
  mode http
  timeout client 5s
  timeout http-request 3s
  timeout http-keep-alive 5s
frontend all
  bind 127.0.0.1:PORT
  log global
  http-request capture hdr(host) len 200
  http-request wait-for-body time 1s
  http-request capture req.body_size len 10
  log-format "%HM %HU %[capture.req.hdr(0)] %[capture.req.hdr(1)] %ST"
  http-request return status 200 content-type text/plain string ok
"""

NODE = """
const http = require('http'), fs = require('fs');
http.createServer((request, answer) => {
  const body = [];
  request.on('data', d => body.push(d)).on('end', () => {
    const seen = { method: request.method, target: request.url, host: request.headers.host, body: Buffer.concat(body).toString('latin1') };
    fs.appendFileSync('node.log', JSON.stringify(seen) + '\\n');
    answer.end('ok');
  });
}).listen(PORT, '127.0.0.1');
"""

ASGI = """
import json, os
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    target = scope["raw_path"].decode("latin-1") + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    with open(os.environ["SEEN"], "a") as log:
        log.write(json.dumps({"method": scope["method"], "target": target, "host": host, "body": body.decode("latin-1")}) + "\\n")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


def peers():
    """Starts what is installed; name -> port."""
    found, missing = {}, []
    for name, program in [("nginx", "nginx"), ("haproxy", "haproxy"), ("node", "node")]:
        path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
        if not path:
            missing.append(name)
            continue
        port = free_port()
        found[name] = port
        if name == "nginx":
            start([path, "-p", FOLDER, "-c", write("nginx.conf", NGINX.replace("PORT", str(port)))])
        elif name == "haproxy":
            start([path, "-f", write("haproxy.conf", HAPROXY.replace("PORT", str(port)))], out=os.path.join(FOLDER, "haproxy.log"))
        else:
            start([path, write("node.js", NODE.replace("PORT", str(port)))])
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        missing.append("uvicorn")
    else:
        write("app.py", ASGI)
        for parser in ["h11", "httptools"]:
            name, port = f"uvicorn-{parser}", free_port()
            found[name] = port
            arguments = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--http", parser, "--log-level", "critical"]
            start(arguments, env={**os.environ, "SEEN": os.path.join(FOLDER, f"{name}.log")})
    for name in missing:
        print(f"  skipped: {name} is not installed")
    return found


def gateway(port):
    own = free_port()
    config = f"""
listeners: [{{ address: "127.0.0.1:{own}" }}]
admin: off
threads: 1
limits: {{ header_timeout: 700ms }}
pools: {{ p: {{ policy: round_robin, endpoints: [{{ url: "http://127.0.0.1:{port}" }}] }} }}
"""
    start([BINARY, "serve", "-c", write(f"gateway-{port}.yaml", config)])
    return own


def reachable(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def send(port, raw):
    """What is answered until nothing comes any more: the statuses, and the code of a refusal."""
    had = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        try:
            s.sendall(raw)
            s.settimeout(QUIET_S)
            while piece := s.recv(65536):
                had += piece
        except OSError:
            pass
    text = had.decode("latin-1")
    statuses = [int(n) for n in re.findall(r"HTTP/1\.[01] (\d\d\d)", text) if n != "100"]
    code = re.search(r'"code":"(\w+)"', text)
    return statuses, code and code.group(1)


def seen_by(name):
    """Every request that a server has read, in order."""
    try:
        with open(os.path.join(FOLDER, f"{name}.log"), encoding="utf-8", errors="replace") as log:
            lines = log.read().splitlines()
    except OSError:
        return []
    if name == "haproxy":
        # Method, target, host, bytes of the body, status; what it cannot parse is BADREQ.
        words = [line.rsplit(" ", 4) for line in lines]
        return [dict(zip(["method", "target", "host", "size"], w)) for w in words if len(w) == 5 and w[4] == "200"]
    entries = [json.loads(line) for line in lines]
    return [e for e in entries if e.get("status", "200") == "200"]


def view(entry):
    """What can be compared between servers: a target without scheme and host, as some leave them and some take them off."""
    target = re.sub(r"^https?://[^/?]*", "", entry["target"])
    return entry["method"], target or "/", (entry.get("host") or "").lower()


def size(entry):
    return int(entry["size"]) if entry.get("size", "-") != "-" else len(entry["body"]) if "body" in entry else None


def grouped(names):
    by = {}
    for name in names:
        for entry in seen_by(name):
            tag = re.search(r"/([gd]\d+)", entry["target"])
            by.setdefault(tag.group(1) if tag else "stray", {}).setdefault(name, []).append(entry)
    return by


def agree(lists):
    """Whether all read the same requests, bodies included where they are known."""
    if len({tuple(view(e) for e in entries) for entries in lists}) > 1:
        return False
    for together in zip(*lists):
        if len({s for s in map(size, together) if s is not None}) > 1 or len({e["body"] for e in together if "body" in e}) > 1:
            return False
    return True


def main():
    found = peers()
    if not found:
        print("  skipped: no server is installed")
        return 0
    gateways = {name: gateway(port) for name, port in found.items()}
    for port in [*found.values(), *gateways.values()]:
        reachable(port)
    said = {}
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        waiting = {}
        for n, (_, raw, _) in enumerate(CASES):
            for name in found:
                waiting[n, "g", name] = pool.submit(send, gateways[name], raw.replace(b"TAG", b"g%02d" % n))
                waiting[n, "d", name] = pool.submit(send, found[name], raw.replace(b"TAG", b"d%02d" % n))
        for key, answer in waiting.items():
            said[key] = answer.result()
    time.sleep(1)
    by, faults, apart = grouped(found), [], 0
    print(f"  {'case':<44} {'gateway':<30} {'servers read':<14} without it")
    for n, (what, _, expected) in enumerate(CASES):
        behind = [by.get(f"g{n:02}", {}).get(name, []) for name in found]
        direct = [by.get(f"d{n:02}", {}).get(name, []) for name in found]
        answers = [said[n, "g", name] for name in found]
        refused = {code for statuses, code in answers if any(s >= 400 for s in statuses)}
        counts = {len(entries) for entries in behind}
        shown = ", ".join(sorted(str(c) for c in refused)) or f"{len(answers[0][0])} answered"
        apart += not agree(direct)
        print(f"  {what:<44} {shown:<30} {'/'.join(map(str, sorted(counts))):<14} {'same' if agree(direct) else 'they differ'}")
        if not agree(behind):
            faults.append(f"{what}: the servers read {dict(zip(found, behind))}")
        if counts != {expected} or len(refused) > 1 or len({tuple(s) for s, _ in answers}) > 1:
            faults.append(f"{what}: {expected} requests were meant, {dict(zip(found, behind))}, answers {answers}")
        if any("smuggled" in e["target"] for entries in behind for e in entries):
            faults.append(f"{what}: a smuggled request was read")
    if "stray" in by:
        faults.append(f"requests of no case: {by['stray']}")
    for fault in faults:
        print(f"  FAULT {fault}")
    print(f"smuggling: {len(CASES)} cases, {len(found)} servers ({', '.join(found)}): {len(faults)} faults; without the gateway they differ on {apart}")
    return 1 if faults else 0


try:
    code = main()
finally:
    for process in processes:
        process.kill()
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(code)
