"""Requests that could be read in two ways: what they are, their bytes (`TAG` is unique to each time one is sent), and how many requests
a server behind the gateway reads of it. What is hidden in a body has `smuggled` in its target and must never be read as a request."""


def post(fields, body=b"", line=b"POST /TAG HTTP/1.1\r\nHost: a\r\n"):
    return line + b"".join(f + b"\r\n" for f in fields) + b"\r\n" + body


HIDDEN = b"GET /TAG/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
LENGTH = b"Content-Length: %d" % len(HIDDEN)
END = b"0\r\n\r\n"


def chunked(body):
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


CASES = [
    # Plain ones, so that the table shows that something does pass.
    ("a length", post([b"Content-Length: 5"], b"hello"), 1),
    ("chunks", post([CHUNKED], chunked(b"hello")), 1),
    ("two in a row", post([b"Content-Length: 1"], b"x") + post([], line=b"GET /TAG/2 HTTP/1.1\r\nHost: a\r\n"), 2),
    ("a request in a body", post([LENGTH], HIDDEN), 1),
    ("a request in a chunk", post([CHUNKED], chunked(HIDDEN)), 1),
    # Two framings.
    ("length and chunks", post([b"Content-Length: 5", CHUNKED], END + HIDDEN), 0),
    ("chunks and length", post([CHUNKED, LENGTH], END + HIDDEN), 0),
    ("length 0 and chunks", post([b"Content-Length: 0", CHUNKED], END + HIDDEN), 0),
    ("two lengths that differ", post([b"Content-Length: 0", LENGTH], HIDDEN), 0),
    ("two lengths alike", post([LENGTH, LENGTH], HIDDEN), 0),
    ("two lengths in one line", post([b"Content-Length: 5, 5"], b"hello"), 0),
    ("a length with a sign", post([b"Content-Length: +5"], b"hello"), 0),
    ("a negative length", post([b"Content-Length: -1"], HIDDEN), 0),
    ("a length in hex", post([b"Content-Length: 0x5"], b"hello"), 0),
    ("a length with a fraction", post([b"Content-Length: 5.0"], b"hello"), 0),
    ("an empty length", post([b"Content-Length:"], HIDDEN), 0),
    ("a length with a blank within", post([b"Content-Length: 1 0"], b"hello"), 0),
    ("a length with an underscore", post([b"Content-Length: 1_0"], b"hello"), 0),
    ("a length too large for 64 bits", post([b"Content-Length: 18446744073709551621"], b"hello"), 0),
    ("a length with leading zeros", post([b"Content-Length: 0005"], b"hello"), 1),
    ("a length with a vertical tab", post([b"Content-Length: \x0b5"], b"hello"), 0),
    ("a length with a form feed", post([b"Content-Length: \x0c5"], b"hello"), 0),
    ("a length on GET", post([LENGTH], HIDDEN, line=b"GET /TAG HTTP/1.1\r\nHost: a\r\n"), 1),
    # Codings.
    ("chunked and a tab, and a length", post([CHUNKED + b"\t", LENGTH], END + HIDDEN), 0),
    ("chunked and a tab", post([CHUNKED + b"\t"], END), 1),
    ("chunked after a form feed", post([b"Transfer-Encoding: \x0cchunked"], END + HIDDEN), 0),
    ("chunked after a vertical tab", post([b"Transfer-Encoding: \x0bchunked"], END + HIDDEN), 0),
    ("xchunked", post([b"Transfer-Encoding: xchunked"], END + HIDDEN), 0),
    ("chunked in quotes", post([b'Transfer-Encoding: "chunked"'], END + HIDDEN), 0),
    ("CHUNKED", post([b"Transfer-Encoding: CHUNKED"], END), 1),
    ("gzip, chunked", post([b"Transfer-Encoding: gzip, chunked"], END + HIDDEN), 0),
    ("chunked, identity", post([b"Transfer-Encoding: chunked, identity"], END + HIDDEN), 0),
    ("identity", post([b"Transfer-Encoding: identity", LENGTH], HIDDEN), 0),
    ("chunked twice", post([CHUNKED, CHUNKED], END + HIDDEN), 0),
    ("chunked in two lines, one empty", post([CHUNKED, b"Transfer-Encoding:"], END + HIDDEN), 0),
    ("chunked with a parameter", post([b"Transfer-Encoding: chunked;q=1"], END + HIDDEN), 0),
    ("chunked on GET", post([CHUNKED], END, line=b"GET /TAG HTTP/1.1\r\nHost: a\r\n"), 1),
    ("HTTP/1.0 with a coding", post([CHUNKED], END + HIDDEN, line=b"POST /TAG HTTP/1.0\r\nHost: a\r\n"), 0),
    ("HTTP/1.0 with a coding and a length", post([CHUNKED, LENGTH], HIDDEN, line=b"POST /TAG HTTP/1.0\r\nHost: a\r\n"), 0),
    # Lines.
    ("a blank before the colon", post([b"Content-Length : 5"], b"hello"), 0),
    ("a tab before the colon of a coding", post([b"Transfer-Encoding\t: chunked"], END + HIDDEN), 0),
    ("a folded line", post([b"X: y", b" Content-Length: 5"], b"hello"), 0),
    ("a folded coding", post([b"Transfer-Encoding:", b" chunked"], END + HIDDEN), 0),
    ("a blank before the first field", b"POST /TAG HTTP/1.1\r\n Host: a\r\nHost: a\r\n\r\n", 0),
    ("a bare LF after a field", b"POST /TAG HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 5\r\n\r\nhello", 0),
    ("bare LFs only", b"POST /TAG HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello", 0),
    ("a bare CR in a value", post([b"X: y\rContent-Length: 5"], b"hello"), 0),
    ("a NUL in a value", post([b"X: \x00y", b"Content-Length: 5"], b"hello"), 0),
    ("a field without a colon", post([b"Content-Length 5"], b"hello"), 0),
    ("an empty name", post([b": x", b"Content-Length: 5"], b"hello"), 0),
    ("underscores for dashes", post([b"Content_Length: 0", b"Transfer_Encoding: chunked", LENGTH], HIDDEN), 1),
    ("another name, not ASCII", post([b"Content-Length\xc2\xa0: 0", b"Content-Length: 5"], b"hello"), 0),
    # Request lines and hosts.
    ("an absolute target, another host", b"GET http://b/TAG HTTP/1.1\r\nHost: a\r\n\r\n", 1),
    ("two hosts", b"GET /TAG HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 0),
    ("no host", b"GET /TAG HTTP/1.1\r\n\r\n", 0),
    ("a host with a path", b"GET /TAG HTTP/1.1\r\nHost: a/b\r\n\r\n", 0),
    ("a host with a comma and a blank", b"GET /TAG HTTP/1.1\r\nHost: a, b\r\n\r\n", 0),
    ("two blanks in the request line", b"GET  /TAG HTTP/1.1\r\nHost: a\r\n\r\n", 0),
    ("a tab in the request line", b"GET\t/TAG HTTP/1.1\r\nHost: a\r\n\r\n", 0),
    ("a blank in the target", b"GET /TAG HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n", 0),
    ("no version", b"GET /TAG\r\n\r\n", 0),
    ("HTTP/1.10", b"GET /TAG HTTP/1.10\r\nHost: a\r\n\r\n", 0),
    ("HTTP/2.0", b"GET /TAG HTTP/2.0\r\nHost: a\r\n\r\n", 0),
    ("an empty line before", b"\r\nGET /TAG HTTP/1.1\r\nHost: a\r\n\r\n", 1),
    ("a body's bytes too many", post([b"Content-Length: 1"], b"xx\r\n\r\n"), 1),
    ("more than the length, a request", post([b"Content-Length: 1"], b"x" + post([], line=b"GET /TAG/2 HTTP/1.1\r\nHost: a\r\n")), 2),
    # Chunks.
    ("an extension", post([CHUNKED], b"5;a=b\r\nhello\r\n0\r\n\r\n"), 1),
    ("an extension with a bare LF", post([CHUNKED], b"5;a\nhello\r\n0\r\n\r\n" + HIDDEN), 0),
    ("an extension in quotes with CR LF", post([CHUNKED], b'5;a="\r\nhello\r\n0\r\n\r\n'), 1),
    ("a bare LF after a size", post([CHUNKED], b"5\nhello\r\n0\r\n\r\n"), 0),
    ("a bare CR after a size", post([CHUNKED], b"5\rhello\r\n0\r\n\r\n"), 0),
    ("a blank after a size", post([CHUNKED], b"5 \r\nhello\r\n0\r\n\r\n"), 0),
    ("a size with 0x", post([CHUNKED], b"0x5\r\nhello\r\n0\r\n\r\n"), 0),
    ("a size with a sign", post([CHUNKED], b"+5\r\nhello\r\n0\r\n\r\n"), 0),
    ("a size with an underscore", post([CHUNKED], b"0_5\r\nhello\r\n0\r\n\r\n"), 0),
    ("a size too large", post([CHUNKED], b"10000000000000005\r\nhello\r\n0\r\n\r\n"), 0),
    ("no size", post([CHUNKED], b"\r\nhello\r\n0\r\n\r\n"), 0),
    ("a size with leading zeros", post([CHUNKED], b"0000005\r\nhello\r\n0\r\n\r\n"), 1),
    ("more data than the size", post([CHUNKED], b"5\r\nhello!\r\n0\r\n\r\n"), 0),
    ("two bytes for a CR LF after data", post([CHUNKED], b"5\r\nhelloXX0\r\n\r\n" + HIDDEN), 0),
    ("many zeros for the last chunk", post([CHUNKED], b"5\r\nhello\r\n0000\r\n\r\n"), 1),
    ("the last chunk with an extension", post([CHUNKED], b"5\r\nhello\r\n0;a=b\r\n\r\n"), 1),
    ("a bare LF at the end", post([CHUNKED], b"5\r\nhello\r\n0\r\n\n"), 0),
    ("trailers", post([CHUNKED, b"Trailer: X"], b"5\r\nhello\r\n0\r\nX: y\r\n\r\n"), 1),
    ("trailers that frame", post([CHUNKED], b"5\r\nhello\r\n0\r\nContent-Length: 50\r\nTransfer-Encoding: x\r\n\r\n"), 1),
    ("trailers without a name", post([CHUNKED], b"5\r\nhello\r\n0\r\n: y\r\n\r\n"), 0),
    ("a request for a trailer", post([CHUNKED], b"5\r\nhello\r\n0\r\n" + HIDDEN), 0),
    ("chunks, then a request", post([CHUNKED], chunked(b"hello") + post([], line=b"GET /TAG/2 HTTP/1.1\r\nHost: a\r\n")), 2),
    ("a connection option that hides framing", post([b"Connection: content-length", LENGTH], HIDDEN), 1),
    ("an upgrade to h2c with a body", post([b"Connection: upgrade", b"Upgrade: h2c", LENGTH], HIDDEN), 1),
    ("expect, and a body with a request", post([b"Expect: 100-continue", LENGTH], HIDDEN), 1),
    ("another expectation", post([b"Expect: 200-ok", LENGTH], HIDDEN), 1),
]
