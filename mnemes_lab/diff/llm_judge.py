"""The judge that asks a language model.

* Pairs go out in batches that fit; a pair that is too long by itself is unjudged, never cut.
* A pair the model lists is a contradiction with the confidence the model gives; the strongest copy
  of a repeated pair counts. A pair it does not list is neutral.
* Silence counts only in a sound reply: where an entry names no pair it was asked about, the pairs
  that are not listed are unjudged; where the entry of one pair cannot be used, that pair is.
* Whatever fails, the pairs it concerns are unjudged, with the reason. After a failure that would
  come again (no key, nobody answers), or the same failure twice in a row, the rest is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnemes_lab.clock import rfc3339
from mnemes_lab.diff.judge import Statement, Verdict, register_judge
from mnemes_lab.errors import InputError, LLMError
from mnemes_lab.text.llm import (
    LLM,
    PAIR_KEYS,
    PAIRS_KEYS,
    LLMConfig,
    PairsReply,
    pair_batches,
    pairs_prompt,
    read_pairs,
    resolve_config,
)

UNLISTED = 0.5  # confidence in neutral: the model names contradictions and is silent on the rest
_SHORTER = {"truncated", "too_long", "too_large"}  # half as many pairs may do
_AGAIN = {"no_key", "connection", "unauthorized", "not_found", "redirected"}


class LLMJudge:
    """Asks a language model which pairs cannot both be true.

    Example:
        >>> judge = LLMJudge(resolve_config("ollama", env={}))
        >>> same = Statement("Ada drinks tea")
        >>> judge.judge([(same, same)])[0].relation, judge.llm.usage.calls  # nothing to ask
        ('entailment', 0)
    """

    def __init__(
        self,
        llm: LLM | LLMConfig | None = None,
        *,
        max_pairs: int = 16,
        max_chars: int = 12_000,
        name: str = "llm",
    ) -> None:
        """Choose the model and the size of a question.

        Args:
            llm: The model, or how to reach it; None for what the environment says.
            max_pairs: Pairs asked at once.
            max_chars: Characters of the statements sent at once.
            name: How the verdicts are signed.

        Raises:
            MissingExtraError: the openai package is absent.
            InputError: a size below 1, or a configuration that cannot be used.
        """
        if max_pairs < 1 or max_chars < 1:
            raise InputError("max_pairs and max_chars must be at least 1.")
        self.llm = llm if isinstance(llm, LLM) else LLM(llm)
        self.name = name
        self._sizes = {"max_pairs": max_pairs, "max_chars": max_chars}

    def __repr__(self) -> str:
        """The model behind it, without the key."""
        return f"LLMJudge({self.llm!r})"

    def judge(self, pairs: Sequence[tuple[Statement, Statement]]) -> list[Verdict]:
        """One verdict for each pair, in order; a failure is ``unjudged``, never an error."""
        known: dict[tuple[Statement, Statement], Verdict] = {}
        to_ask = []
        for pair in dict.fromkeys(pairs):
            if pair[0] == pair[1]:
                known[pair] = Verdict("entailment", 1.0, "the same statement", self.name)
            else:
                to_ask.append(pair)
        known.update(zip(to_ask, self._ask_all(to_ask), strict=True))
        return [known[pair] for pair in pairs]

    def _ask_all(self, pairs: list[tuple[Statement, Statement]]) -> list[Verdict]:
        """Batch after batch, until asking on makes no sense."""
        sent = [(_data(existing), _data(incoming)) for existing, incoming in pairs]
        verdicts = [self._unjudged("not asked")] * len(pairs)
        last = ""
        stopped: LLMError | None = None
        for batch, fits in pair_batches(sent, **self._sizes):
            if not fits:
                limit = self._sizes["max_chars"]
                verdicts[batch[0]] = self._unjudged(f"too_long: more than {limit} characters")
                continue
            if stopped is None:
                answers, failed = self._ask([sent[i] for i in batch])
                if failed and (failed.reason in _AGAIN or failed.reason == last):
                    stopped = failed
                last = failed.reason if failed else ""
            else:
                why = f"not asked, because of an earlier failure: {_why(stopped)}"
                answers = [self._unjudged(why)] * len(batch)
            for i, verdict in zip(batch, answers, strict=True):
                verdicts[i] = verdict
        return verdicts

    def _ask(
        self, pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]], *, split: bool = True
    ) -> tuple[list[Verdict], LLMError | None]:
        """Verdicts of one batch, and the failure when there is one."""
        prompt = pairs_prompt(pairs)
        asked = list(dict.fromkeys(prompt.asked))

        def check(data: dict[str, Any]) -> list[str]:
            return read_pairs(data, asked).problems

        try:
            answer = self.llm.complete_json(
                prompt.system,
                prompt.user,
                keys=PAIRS_KEYS,
                or_keys=PAIR_KEYS if len(asked) == 1 else (),
                check=check,
                non_finite=True,
            )
            reply = read_pairs(answer.data, asked)
        except LLMError as error:
            if error.reason in _SHORTER and split and len(pairs) > 1:
                half = len(pairs) // 2
                first, failed = self._ask(pairs[:half], split=False)
                second, failed_too = self._ask(pairs[half:], split=False)
                return first + second, failed_too or failed
            return [self._unjudged(_why(error))] * len(pairs), error
        return [self._verdict(pair, reply) for pair in prompt.asked], None

    def _verdict(self, pair: tuple[int, int], reply: PairsReply) -> Verdict:
        for finding in reply.found:
            if (finding.s, finding.t) == pair:
                reason = finding.reason or "the model gives no reason"
                return Verdict("contradiction", finding.confidence, reason, self.name)
        if pair in reply.spoilt or not reply.whole:
            return self._unjudged(f"bad_reply: {'; '.join(reply.problems[:3])}")
        return Verdict("neutral", UNLISTED, "the model names no contradiction", self.name)

    def _unjudged(self, why: str) -> Verdict:
        return Verdict("unjudged", 0.0, why, self.name)


def _why(error: LLMError) -> str:
    return f"{error.reason}: {error.what}"


def _data(statement: Statement) -> dict[str, Any]:
    """What the model sees of a statement; instants as people write them."""
    data = statement._asdict()
    for name in ("valid_from", "valid_to"):
        us = data[name]
        if us is not None:
            try:
                data[name] = rfc3339(us)
            except (OverflowError, ValueError):  # outside the years a calendar shows
                data[name] = f"{us} microseconds since 1970"
    return data


def _from_name(argument: str) -> LLMJudge:
    """``llm``, or ``llm:MODEL`` for another model of the configured provider."""
    return LLMJudge(resolve_config(model=argument or None))


register_judge("llm", _from_name)
