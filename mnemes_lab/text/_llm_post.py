"""One request to a chat-completion interface: sent, bounded, and either bytes or a named failure.

The openai client builds and sends the request; two hooks make it safe. Before sending, headers are
reduced to the ones the exchange needs and the key is added only when the request really goes to the
configured address. On arrival, anything but success is read up to a limit and named; the body of a
success is read piece by piece up to its limits of size and time.
"""

from __future__ import annotations

import email.utils
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mnemes_lab.clock import Clock
from mnemes_lab.errors import LLMError
from mnemes_lab.text._llm_config import LLMConfig, is_loopback
from mnemes_lab.text._replies import strict_json, tidy

_KEPT = {
    "host",
    "accept",
    "content-type",
    "content-length",
    "transfer-encoding",
    "user-agent",
    "x-stainless-raw-response",  # how the client remembers that the body is read piece by piece
}
_EXCERPT_BYTES = 4096  # of a failure's body
_SHORTEST_SECRET = 4  # a shorter key is no secret, and hiding it would garble every message


@dataclass(frozen=True)
class Failure:
    """Why there is no answer.

    Attributes:
        reason: One word.
        what: In words.
        status: HTTP status; 0 when there was none.
        said: What the server said, short and without the key.
        param: The field an OpenAI-style error names.
        wait: Seconds the server asks to wait.
        again: Whether the same request may succeed later.
    """

    reason: str
    what: str
    status: int = 0
    said: str = ""
    param: str = ""
    wait: float | None = None
    again: bool = False

    def refuses(self, body: dict[str, Any]) -> str:
        """The field of a request to leave out and try again; blank when that would not help."""
        if self.reason != "rejected" or self.status not in (400, 415, 422, 501):
            return ""
        if self.param == "temperature" and "temperature" in body:
            return "temperature"
        return "response_format" if "response_format" in body else ""

    def error(self, more: str = "") -> LLMError:
        """The failure as an error; `more` is said instead of the server's words."""
        said = more or self.said
        return LLMError(f"{self.what}." + (f" {said}" if said else ""), reason=self.reason)


class _Stopped(Exception):
    """Carries a failure out of the HTTP client."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


class Postman:
    """Sends requests to the one address of a configuration."""

    def __init__(self, config: LLMConfig, timeout: float, max_bytes: int, clock: Clock) -> None:
        """Remember where and how; nothing is opened yet."""
        self._config, self._timeout, self._max_bytes = config, timeout, max_bytes
        self._clock = clock
        self._client: Any = None

    def send(self, body: dict[str, Any]) -> bytes | Failure:
        """Post one request; what came back, or why nothing usable did."""
        try:
            chat = self._open().chat.completions.with_streaming_response
            stopwatch = self._clock.stopwatch()
            with chat.create(**body) as response:
                return self._drain(response.iter_bytes(), stopwatch)
        except Exception as error:
            failure = self._named(error)
            if failure is None:
                raise
        return failure  # outside the handler: what the client raised may hold the request

    def scrub(self, text: str) -> str:
        """Text without the key."""
        key = self._config.api_key
        return text.replace(key, "[key]") if len(key) >= _SHORTEST_SECRET else text

    def excerpt(self, said: object) -> str:
        """What a server said, as a message may repeat it."""
        if isinstance(said, dict):
            said = said.get("message") or said.get("code") or json.dumps(said)
        return tidy(self.scrub(said if isinstance(said, str) else repr(said)), 200)

    def _open(self) -> Any:
        if self._client is None:
            import openai

            version = self._config.api_version
            scheme, host, _ = self._config.origin
            try:
                http = openai.DefaultHttpxClient(
                    timeout=self._timeout,
                    follow_redirects=False,
                    trust_env=not is_loopback(host),  # no proxy on the way home
                    # Plain http on this computer: no certificate will be looked at, so none is read
                    verify=not (is_loopback(host) and scheme == "http"),
                    event_hooks={"request": [self._on_request], "response": [self._on_response]},
                )
            except (ImportError, ValueError) as error:  # a proxy variable nothing can follow
                why = f"The proxy settings cannot be used: {tidy(str(error), 200)}"
                raise _Stopped(Failure("connection", why.rstrip("."))) from None
            self._client = openai.OpenAI(
                base_url=self._config.endpoint,
                api_key="unused",  # the hook adds the real one; otherwise OPENAI_API_KEY is read
                max_retries=0,
                timeout=self._timeout,
                default_query={"api-version": version} if version else None,
                http_client=http,
            )
        return self._client

    def _on_request(self, request: Any) -> None:
        for name in list(request.headers):
            if name.lower() not in _KEPT:
                del request.headers[name]
        request.headers["accept-encoding"] = "identity"  # so that a size is a size
        request.headers["connection"] = "close"  # no socket is left open between calls
        url = request.url
        port = url.port or {"https": 443, "http": 80}.get(url.scheme, 0)
        if self._config.api_key and (url.scheme, url.host, port) == self._config.origin:
            request.headers["authorization"] = f"Bearer {self._config.api_key}"

    def _on_response(self, response: Any) -> None:
        status = response.status_code
        if 200 <= status < 300:
            return
        body = b""
        for piece in response.iter_bytes(_EXCERPT_BYTES):
            body += piece
            if len(body) >= _EXCERPT_BYTES:
                break
        raise _Stopped(self._failure(status, response.headers, body[:_EXCERPT_BYTES]))

    def _failure(self, status: int, headers: Any, body: bytes) -> Failure:
        """Name what a status and the body that came with it mean."""
        written = body.decode("utf-8", "replace")
        try:
            told = strict_json(written, non_finite=True)
        except LLMError:
            told = written
        error = told.get("error", told) if isinstance(told, dict) else told
        detail = error if isinstance(error, dict) else {}
        said = self.excerpt(error) if error else ""
        low = written.lower()
        if status == 413 or "context_length" in low or "context length" in low:
            return Failure("too_long", f"The request is too long (HTTP {status})", status, said)
        if status in (408, 429) or status >= 500:
            reason = {408: "timeout", 429: "rate_limited"}.get(status, "server_error")
            what = "The server is too busy" if status == 429 else "The server failed"
            # 501 says it never will
            return Failure(
                reason,
                f"{what} (HTTP {status})",
                status,
                said,
                wait=self._wait_of(headers),
                again=status != 501,
            )
        reason, what = {
            401: ("unauthorized", "The key was not accepted"),
            403: ("unauthorized", "Access was denied"),
            404: ("not_found", "There is no such address or model"),
        }.get(status, ("rejected", "The server did not accept the request"))
        if status < 400:
            reason, what, said = "redirected", "The server points to another address", ""
        param = detail.get("param")
        return Failure(reason, f"{what} (HTTP {status})", status, said, tidy(param, 40))

    def _wait_of(self, headers: Any) -> float | None:
        """Seconds of Retry-After; None when absent or unreadable."""
        written = (headers.get("retry-after") or "").strip()
        if written.replace(".", "", 1).isdecimal() and written.isascii() and len(written) < 12:
            return float(written)
        try:
            until = email.utils.parsedate_to_datetime(written)
            stamp = headers.get("date")  # the server's own clock is the one it means
            since = email.utils.parsedate_to_datetime(stamp).timestamp() if stamp else None
            now = self._clock.machine() / 1e6 if since is None else since
            return max(0.0, until.timestamp() - now)
        except (TypeError, ValueError, OverflowError):
            return None

    def _drain(self, pieces: Iterable[bytes], stopwatch: Callable[[], float]) -> bytes | Failure:
        """Collect a body within its limits of size and time."""
        body = bytearray()
        for piece in pieces:
            body += piece
            if len(body) > self._max_bytes:
                return Failure("too_large", f"The reply has more than {self._max_bytes} bytes")
            if stopwatch() > self._timeout * 1000:
                return self._late()
        return bytes(body)

    def _late(self) -> Failure:
        return Failure("timeout", f"No complete answer within {self._timeout:g} s")

    def _named(self, error: BaseException) -> Failure | None:
        """What an exception of the client means; None for one that is not the network's."""
        chain: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None and cause not in chain:
            if isinstance(cause, _Stopped):
                return cause.failure
            chain.append(cause)
            cause = cause.__cause__ or cause.__context__
        # By name: the client stands on one of two HTTP libraries, depending on its version.
        names = {cls.__name__ for thing in chain for cls in type(thing).__mro__}
        if {"APITimeoutError", "TimeoutException"} & names:
            return self._late()
        if {"ConnectError", "ProxyError"} & names:
            return Failure("connection", f"Nobody answers at {self._where()}")
        if {"APIConnectionError", "TransportError", "StreamError", "DecodingError"} & names:
            return Failure("connection", "The connection broke", again=True)
        if "OpenAIError" in names:
            return Failure("bad_reply", f"The client failed: {type(error).__name__}")
        return None

    def _where(self) -> str:
        scheme, host, port = self._config.origin
        return f"{scheme}://{host}:{port}"
