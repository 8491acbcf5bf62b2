"""The door to language models: any OpenAI-compatible server, reached through the openai client.

Nothing here runs unless a caller builds an :class:`LLM` and asks it something; only then is openai
imported. Rules of an exchange:

* One system and one user message, temperature 0, a JSON object wanted. A server that refuses the
  wish for JSON is asked once more without it, and not again.
* The key goes to the configured address only: redirects are not followed, variables of other tools
  (keys, headers) are ignored, and a server on this computer is reached without a proxy.
* 429, 408 and server errors are tried again after the wait the server names, or 1, 2, 4 ...
  seconds; a longer wait than the caller allows is not waited at all.
* An answer that cannot be read is asked for once more with the problem named.
* Every failure is an :class:`~mnemes_lab.errors.LLMError` with a reason of one word (`REASONS`).
  None shows the key.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mnemes_lab.clock import Clock, SystemClock
from mnemes_lab.errors import InputError, LLMError, MissingExtraError
from mnemes_lab.text._llm_config import PRESETS, LLMConfig, describe_config, resolve_config
from mnemes_lab.text._llm_post import Failure, Postman
from mnemes_lab.text._pairs import (
    PAIR_KEYS,
    PAIRS_KEYS,
    Finding,
    PairsPrompt,
    PairsReply,
    pair_batches,
    pairs_prompt,
    read_confidence,
    read_pairs,
    read_pairs_reply,
)
from mnemes_lab.text._replies import kind, parse_json_object, strict_json, tidy

__all__ = [
    "LLM",
    "PAIRS_KEYS",
    "PAIR_KEYS",
    "PRESETS",
    "REASONS",
    "Finding",
    "LLMConfig",
    "PairsPrompt",
    "PairsReply",
    "Reply",
    "Usage",
    "describe_config",
    "pair_batches",
    "pairs_prompt",
    "parse_json_object",
    "read_confidence",
    "read_pairs",
    "read_pairs_reply",
    "resolve_config",
]

REASONS: dict[str, str] = {
    "no_key": "the provider wants a key and none may be used there",
    "connection": "no connection, or it broke",
    "timeout": "no complete answer in time",
    "rate_limited": "too many requests, also after waiting",
    "server_error": "the server failed",
    "unauthorized": "the key was not accepted",
    "not_found": "no such address or model",
    "redirected": "the server points elsewhere; the key does not follow",
    "rejected": "the server did not accept the request",
    "too_long": "the request is longer than the model reads",
    "bad_reply": "what came back is not a chat completion",
    "too_large": "the answer is larger than allowed",
    "truncated": "the model stopped in the middle",
    "refused": "the model or a filter declined",
    "empty": "the model wrote nothing",
    "no_json": "no JSON object in the answer",
    "bad_json": "an object that is not strict JSON",
    "too_deep": "nested too deeply",
    "several_objects": "several answers in one",
    "missing_keys": "an object without the wanted names",
    "wrong_type": "another kind of value than was asked for",
}
# Reasons a second, changed question may cure.
_CURABLE = {
    "empty",
    "no_json",
    "bad_json",
    "too_deep",
    "several_objects",
    "missing_keys",
    "wrong_type",
}
_AGAIN = (
    "\n\nYour previous answer could not be used: {why}. Answer again with exactly one JSON object "
    "as described, in strict JSON, and nothing else."
)


class Usage(NamedTuple):
    """What was spent so far.

    Attributes:
        calls: Requests sent, the failed ones included.
        answers: Chat completions received.
        prompt_tokens: As the server counts.
        completion_tokens: As the server counts.
        uncounted: Answers that came without a count.
        waited_s: Seconds waited because a server was busy.
    """

    calls: int = 0
    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    waited_s: float = 0.0


@dataclass(frozen=True)
class Reply:
    """A usable answer.

    Attributes:
        data: The JSON object.
        text: What the model wrote.
        problems: What the caller's check still finds wrong with it.
        model: The model that answered, when the server says.
        second: Whether it answers the second, changed question.
    """

    data: dict[str, Any]
    text: str
    problems: tuple[str, ...] = ()
    model: str | None = None
    second: bool = False


Check = Callable[[dict[str, Any]], Iterable[str]]
"""Names what is wrong with an object; raises LLMError when nothing of it can be used."""


class LLM:
    """A language model behind an OpenAI-compatible interface.

    Building one opens no connection and imports nothing. Calls from several threads are fine.

    Example:
        >>> LLM(resolve_config("ollama", env={})).usage.calls
        0
    """

    def __init__(
        self,
        config: LLMConfig | None = None,
        *,
        timeout: float = 60.0,
        max_reply_bytes: int = 1 << 20,
        retries: int = 2,
        max_wait_s: float = 60.0,
        clock: Clock | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Choose the model.

        Args:
            config: From :func:`resolve_config`; None resolves it from the environment.
            timeout: Seconds one request may take.
            max_reply_bytes: Larger replies are dropped while they arrive.
            retries: How often a busy or failing server is tried again within one call.
            max_wait_s: The longest single wait for a busy server.
            clock: Measures the requests.
            sleep: Does the waiting.

        Raises:
            MissingExtraError: the openai package is absent.
            InputError: a limit that makes no sense.
        """
        if importlib.util.find_spec("openai") is None:
            raise MissingExtraError.of("A language model", "openai", "llm")
        limits = {"timeout": timeout, "max_reply_bytes": max_reply_bytes}
        for name, value in limits.items():
            if not value > 0:
                raise InputError(f"{name} must be above 0.", found=value)
        if retries < 0 or not max_wait_s >= 0:
            raise InputError("retries and max_wait_s must be 0 or more.")
        self.config = resolve_config() if config is None else config
        self._post = Postman(self.config, timeout, max_reply_bytes, clock or SystemClock())
        self._retries, self._max_wait, self._sleep = retries, max_wait_s, sleep
        self._without: tuple[str, ...] = ()  # wishes the server refuses
        self._spent = Usage()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """The configuration, without the key."""
        return f"LLM({self.config!r})"

    @property
    def usage(self) -> Usage:
        """What was spent so far."""
        return self._spent

    def complete_json(
        self,
        system: str,
        user: str,
        *,
        keys: Sequence[str] = (),
        or_keys: Sequence[str] = (),
        check: Check | None = None,
        non_finite: bool = False,
    ) -> Reply:
        """Ask for one JSON object.

        An answer that cannot be read, or that `check` finds fault with, is asked for once more with
        the fault named; the answer with fewer faults counts.

        Args:
            system: The instructions.
            user: The data.
            keys: Names the object must have.
            or_keys: Other names that do as well.
            check: Looks at the object.
            non_finite: Let NaN and Infinity through to `check`.

        Raises:
            LLMError: no usable answer; `reason` is one of `REASONS`.
        """

        def ask(question: str, second: bool) -> Reply:
            text, model = self._ask(system, question)
            data = parse_json_object(text, keys=keys, or_keys=or_keys, non_finite=non_finite)
            problems = tuple(check(data)) if check else ()
            return Reply(data, text, problems, model, second)

        first: Reply | None = None
        try:
            first = ask(user, False)
            why = "; ".join(first.problems[:10])
        except LLMError as error:
            if error.reason not in _CURABLE:
                raise
            why = error.what
        if first is not None and not why:
            return first
        try:
            second = ask(user + _AGAIN.format(why=why.rstrip(".")), True)
        except LLMError:
            if first is None:
                raise
            return first
        better = first is None or len(second.problems) <= len(first.problems)
        return second if better or first is None else first

    def _ask(self, system: str, user: str) -> tuple[str, str | None]:
        """The text of one answer and the model that wrote it; waits for a busy server."""
        if self.config.needs_key and not self.config.api_key:
            why = dict(self.config.sources).get("api_key", "none")
            raise LLMError(
                f"{self.config.provider} wants a key.",
                reason="no_key",
                hint=f"set LLM_API_KEY or give api_key=... (now: {why})",
            )
        body: dict[str, Any] = {
            "model": self.config.model,
            "messages": [
                {"role": role, "content": text.encode("utf-8", "replace").decode()}
                for role, text in (("system", system), ("user", user))
            ],
            "temperature": 0,
            "response_format": {"type": "json_object"},
        }
        for name in self._without:
            del body[name]
        refused: list[str] = []
        tried = 0
        while True:
            self._count(calls=1)
            got = self._post.send(body)
            if isinstance(got, bytes):
                if refused:
                    self._without = (*self._without, *refused)
                return self._read(got)
            if field := got.refuses(body):
                del body[field]
                refused.append(field)
            elif got.again and tried < self._retries:
                self._wait(got, tried)
                tried += 1
            else:
                raise got.error()

    def _wait(self, failure: Failure, tried: int) -> None:
        seconds = float(2**tried) if failure.wait is None else failure.wait
        if seconds > self._max_wait:
            raise failure.error(
                f"It asks to wait {seconds:g} s, more than the {self._max_wait:g} s allowed."
            )
        self._count(waited_s=seconds)
        self._sleep(seconds)

    def _count(self, **more: float) -> None:
        with self._lock:
            spent = self._spent._asdict()
            self._spent = Usage(**{name: spent[name] + more.get(name, 0) for name in spent})

    def _read(self, body: bytes) -> tuple[str, str | None]:
        """The text inside a chat completion; counts its tokens before anything is refused."""
        try:
            answer = strict_json(body.decode(), non_finite=True)
        except (UnicodeDecodeError, LLMError):
            raise LLMError("The server did not send JSON.", reason="bad_reply") from None
        if not isinstance(answer, dict):
            raise LLMError(f"The server sent {kind(answer)}.", reason="bad_reply")
        if answer.get("error"):  # some servers report failures with status 200
            raise Failure("server_error", "The server reports an error").error(
                self._post.excerpt(answer["error"])
            )
        self._count_tokens(answer.get("usage"))
        choices = answer.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            raise LLMError("The reply holds no message.", reason="bad_reply")
        self._refuse_unfinished(choice.get("finish_reason"), message.get("refusal"))
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            raise LLMError(f"The answer is {kind(content)}, not text.", reason="wrong_type")
        model = self._post.scrub(tidy(answer.get("model"), 100)) or None
        return self._post.scrub(content or ""), model

    def _refuse_unfinished(self, finish: object, refusal: object) -> None:
        if finish == "content_filter" or refusal:
            said = self._post.excerpt(refusal) if refusal else "a content filter stopped it"
            raise LLMError(f"The model declined: {said}.", reason="refused")
        if finish == "length":
            raise LLMError("The answer was cut off at the length limit.", reason="truncated")

    def _count_tokens(self, usage: object) -> None:
        counts = [
            usage.get(name) if isinstance(usage, dict) else None
            for name in ("prompt_tokens", "completion_tokens")
        ]
        known = [
            n if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 10**9 else None
            for n in counts
        ]
        self._count(
            answers=1,
            prompt_tokens=known[0] or 0,
            completion_tokens=known[1] or 0,
            uncounted=int(None in known),
        )
