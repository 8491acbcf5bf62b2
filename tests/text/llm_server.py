"""A scripted OpenAI-compatible server on this computer: one step of the script per request.

Loaded by path (``runpy.run_path``), because tests do not import one another.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Step = Callable[["_Handler"], None]


class Seen(NamedTuple):
    """A request that arrived."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def user(self) -> str:
        return self.body["messages"][1]["content"]


def raw(status: int, body: bytes | str, **headers: str) -> Step:
    """Send exactly this; underscores in header names become hyphens."""
    data = body.encode() if isinstance(body, str) else body

    def step(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return step


def fails(status: int, message: str = "no", **headers: str) -> Step:
    return raw(status, json.dumps({"error": {"message": message}}), **headers)


def says(content: Any, finish: str = "stop", usage: Any = (10, 5), **message: Any) -> Step:
    """A chat completion; content that is not text is sent as JSON text, None as null."""
    text = content if content is None or isinstance(content, str) else json.dumps(content)
    body: dict[str, Any] = {
        "model": "scripted-1",
        "choices": [{"message": {"content": text, **message}, "finish_reason": finish}],
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return raw(200, json.dumps(body))


def finds(*entries: Any) -> Step:
    """A reply about pairs; an entry is (s, t, confidence) or whatever is sent as it is."""
    listed = [
        {"sIndex": e[0], "tIndex": e[1], "confidence": e[2], "reason": "clash"}
        if isinstance(e, tuple)
        else e
        for e in entries
    ]
    return says({"contradictions": listed})


def hangs(handler: _Handler) -> None:
    """Say nothing until the test is over."""
    handler.server.over.wait()


def drops(handler: _Handler) -> None:
    """Promise a body and close the connection in the middle of it."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')


def endless(handler: _Handler, status: int = 200) -> None:
    """Send until nobody listens any more."""
    handler.send_response(status)
    handler.end_headers()
    while not handler.server.over.is_set():
        handler.wfile.write(b" " * 65536)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_POST(self) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.lock:
            seen = self.server.seen
            seen.append(Seen(self.path, headers, json.loads(body)))
            script = self.server.script
            step = script[len(seen) - 1] if len(seen) <= len(script) else None
        with contextlib.suppress(ConnectionError):  # the client had enough
            (step or fails(410, "the script is over"))(self)

    do_GET = do_POST

    def log_message(self, *args: Any) -> None:
        """Keep the terminal clean."""


class Server:
    """Runs a script while it is open; `seen` holds the requests."""

    def __init__(self, *script: Step) -> None:
        self._server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.script, self._server.seen = list(script), []
        self._server.lock, self._server.over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def seen(self) -> list[Seen]:
        return self._server.seen

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
