"""Which language model, where, and with which key: presets, environment and who wins.

There are three layers: what the caller passes, what a file of settings says, the environment.

* The nearest layer that sets a value wins. Blank text sets nothing.
* provider: the nearest name; else guessed from the endpoint; else ``openai``.
* endpoint, model: a layer farther away than the one that names the provider counts only when that
  layer by itself means the same provider. Otherwise the provider's preset is used.
* key: one that was not passed belongs to the provider and address its own layer means, and is
  used there only.

Guesses: ``groq`` or ``ollama`` anywhere in the address; this computer at port 11434 is ollama, at
another port lm-studio; api.openai.com is openai; any other address is custom.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import polars as pl

from mnemes_lab.errors import InputError


class Preset(NamedTuple):
    """What a provider means when nothing else is said."""

    endpoint: str
    model: str
    needs_key: bool


CUSTOM = "custom-openai-compatible"
PRESETS: dict[str, Preset] = {
    "openai": Preset("https://api.openai.com/v1", "gpt-4o-mini", True),
    "groq": Preset("https://api.groq.com/openai/v1", "llama-3.1-8b-instant", True),
    "lm-studio": Preset("http://localhost:1234/v1", "local-model", False),
    "ollama": Preset("http://localhost:11434/v1", "llama3.2", False),
    CUSTOM: Preset("", "gpt-4o-mini", False),  # nobody's address: it must be given
}
VARIABLES: dict[str, tuple[str, ...]] = {  # the second of two is the older name
    "provider": ("LLM_PROVIDER",),
    "endpoint": ("LLM_ENDPOINT", "OPENAI_URL"),
    "model": ("LLM_MODEL",),
    "api_key": ("LLM_API_KEY", "OPENAI_TOKEN"),
    "api_version": ("LLM_API_VERSION",),
}
_LOCAL = ("lm-studio", "ollama")
_LAST = {
    "provider": "guess from the endpoint > openai",
    "endpoint": "preset",
    "model": "preset",
    "api_key": "none",
    "api_version": "none",
}
_Layer = Mapping[str, tuple[str, str]]  # setting -> (value, where it was found)


@dataclass(frozen=True, repr=False)
class LLMConfig:
    """How to reach a language model. Neither repr nor str shows the key.

    Attributes:
        provider: A name in :data:`PRESETS`.
        endpoint: Address of the OpenAI-compatible interface, without ``/chat/completions``.
        model: Name of the model there.
        api_key: Empty for none.
        api_version: Sent as ``api-version`` when set.
        sources: Where each setting came from, in words.
    """

    provider: str
    endpoint: str
    model: str
    api_key: str = ""
    api_version: str | None = None
    sources: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def is_local(self) -> bool:
        """Whether the provider runs on the user's own computer: lm-studio and ollama."""
        return self.provider in _LOCAL

    @property
    def needs_key(self) -> bool:
        """Whether nobody is answered there without a key; known for presets only."""
        preset = PRESETS.get(self.provider)
        return bool(preset and preset.needs_key and _origin(preset.endpoint) == self.origin)

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: the only place the key may go."""
        return _origin(self.endpoint)

    def __repr__(self) -> str:
        """Everything but the key."""
        return (
            f"LLMConfig(provider={self.provider!r}, endpoint={self.endpoint!r}, "
            f"model={self.model!r}, api_key={_shown(self.api_key)}, "
            f"api_version={self.api_version!r})"
        )


def resolve_config(
    provider: str | None = None,
    endpoint: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    api_version: str | None = None,
    *,
    settings: Mapping[str, str | None] | None = None,
    env: Mapping[str, str] | None = None,
) -> LLMConfig:
    """Settle which model to use. Reads, and changes nothing.

    Args:
        provider: openai, groq, lm-studio, ollama, custom-openai-compatible (or ``custom``).
        endpoint: Address of the interface; required for a custom provider.
        model: Name of the model.
        api_key: Used as it is passed, with whatever the other settings say.
        api_version: For servers that want one.
        settings: The same five names, as read from a file: after the arguments, before `env`.
        env: The environment; None for the process's own.

    Raises:
        InputError: an unknown provider, a custom one without an address, an address that is not
            http(s) or carries a password, a key no header can hold.

    Example:
        >>> resolve_config("ollama", env={})
        LLMConfig(provider='ollama', endpoint='http://localhost:11434/v1', model='llama3.2',
        api_key=not set, api_version=None)
        >>> theirs = {"LLM_PROVIDER": "groq", "LLM_API_KEY": "gsk-1"}
        >>> resolve_config(env=theirs).api_key, resolve_config("openai", env=theirs).api_key
        ('gsk-1', '')
    """
    passed = {
        "provider": provider,
        "endpoint": endpoint,
        "model": model,
        "api_key": api_key,
        "api_version": api_version,
    }
    unknown = sorted(set(settings or ()) - set(VARIABLES))
    if unknown:
        raise InputError(
            "The settings hold unknown names.", found=unknown, hint=f"use {', '.join(VARIABLES)}"
        )
    here = os.environ if env is None else env
    found = {
        name: [(here[variable], variable) for variable in variables if variable in here]
        for name, variables in VARIABLES.items()
    }
    layers: list[_Layer] = [
        _layer({name: [(value, "argument")] for name, value in passed.items()}),
        _layer({name: [(value, "settings")] for name, value in (settings or {}).items()}),
        _layer(found),
    ]
    return _checked(_resolve(layers))


def describe_config(config: LLMConfig) -> pl.DataFrame:
    """What is used and why, as a frame; of the key only whether there is one.

    Returns:
        setting, value, source (where the value came from), precedence (who could have set it).

    Example:
        >>> config = resolve_config("groq", env={"LLM_API_KEY": "sk-1"})
        >>> describe_config(config)["value"].to_list()[:1], describe_config(config)["source"][3]
        (['groq'], 'LLM_API_KEY not used: it belongs to openai at https://api.openai.com')
    """
    sources = dict(config.sources)
    rows = [
        {
            "setting": name,
            "value": _shown(config.api_key)
            if name == "api_key"
            else getattr(config, name) or "not set",
            "source": sources.get(name, "argument"),
            "precedence": " > ".join(["argument", "settings", *variables, _LAST[name]]),
        }
        for name, variables in VARIABLES.items()
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(rows[0], pl.String))


def _shown(key: str) -> str:
    return "set" if key else "not set"


def _layer(given: Mapping[str, Sequence[tuple[str | None, str]]]) -> _Layer:
    """The first value of each setting that says something."""
    layer: dict[str, tuple[str, str]] = {}
    for name, values in given.items():
        for value, source in values:
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name} must be text, not {type(value).__name__}.")
            if value and value.strip() and name not in layer:
                layer[name] = (value.strip(), source)
    return layer


def _resolve(layers: Sequence[_Layer]) -> LLMConfig:
    """One configuration from layers, the nearest first."""
    below = [_alone(layers[i:]) for i in range(1, len(layers))]
    provider, said, rank = _provider(layers)
    sources = {"provider": said}
    values = {}
    for name in ("endpoint", "model"):
        values[name], sources[name] = getattr(PRESETS[provider], name), "preset"
        for i, layer in enumerate(layers):
            if name in layer and (i <= rank or below[i - 1].provider == provider):
                values[name], sources[name] = layer[name]
                break
    config = LLMConfig(provider, values["endpoint"].rstrip("/"), values["model"])
    version, sources["api_version"] = next(
        (layer["api_version"] for layer in layers if "api_version" in layer), (None, "none")
    )
    key, sources["api_key"] = _key(config, layers, below)
    return LLMConfig(
        config.provider, config.endpoint, config.model, key, version, tuple(sources.items())
    )


def _alone(layers: Sequence[_Layer]) -> LLMConfig:
    """What farther layers mean by themselves; nothing usable where they contradict themselves."""
    try:
        return _resolve(layers)
    except InputError:
        return LLMConfig("", "", "")


def _provider(layers: Sequence[_Layer]) -> tuple[str, str, int]:
    """The provider, who says so, and the rank of the layer that names it."""
    for rank, layer in enumerate(layers):
        if "provider" in layer:
            name, source = layer["provider"]
            name = CUSTOM if name.lower() == "custom" else name.lower()
            if name not in PRESETS:
                raise InputError(
                    f"The provider named by {source} is unknown.",
                    found=name,
                    hint=f"use {', '.join(PRESETS)}",
                )
            return name, source, rank
    for layer in layers:
        if "endpoint" in layer:
            endpoint, source = layer["endpoint"]
            return _guess(endpoint), f"guessed from the endpoint ({source})", len(layers)
    return "openai", "default", len(layers)


def _guess(endpoint: str) -> str:
    address = endpoint.lower()
    scheme, host, port = _origin(address)
    for name in ("groq", "ollama"):
        if name in address:
            return name
    if is_loopback(host):
        return "ollama" if port == 11434 else "lm-studio"
    return "openai" if (scheme, host) == ("https", "api.openai.com") else CUSTOM


def _key(
    config: LLMConfig, layers: Sequence[_Layer], below: Sequence[LLMConfig]
) -> tuple[str, str]:
    """The nearest key that may go where the configuration points."""
    why_not = "none"
    for i, layer in enumerate(layers):
        if "api_key" not in layer:
            continue
        key, source = layer["api_key"]
        if i == 0:
            return key, source
        own = below[i - 1]
        if (own.provider, own.origin) == (config.provider, config.origin):
            return key, source
        if why_not == "none":
            whose = f"{own.provider} at {_address(own)}" if own.provider else "no known provider"
            why_not = f"{source} not used: it belongs to {whose}"
    return "", why_not


def is_loopback(host: str) -> bool:
    """Whether a host name is this computer.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost.example.org")
        (True, False)
    """
    return host in ("localhost", "::1") or bool(
        host.endswith(".localhost") or re.fullmatch(r"127(\.\d{1,3}){3}", host)
    )


def _split(endpoint: str) -> tuple[SplitResult, int]:
    """The parts of an address and its port, or ValueError."""
    parts = urlsplit(endpoint)
    port = parts.port  # raises for a port that is none
    return parts, port if port is not None else {"https": 443, "http": 80}.get(parts.scheme, 0)


def _origin(endpoint: str) -> tuple[str, str, int]:
    try:
        parts, port = _split(endpoint)
    except ValueError:
        return "", "", 0
    return parts.scheme, parts.hostname or "", port


def _address(config: LLMConfig) -> str:
    """An origin to show; never a user name, a password or a query."""
    scheme, host, port = config.origin
    usual = {"https": 443, "http": 80}.get(scheme) == port
    return f"{scheme}://{host}" + ("" if usual else f":{port}")


def _checked(config: LLMConfig) -> LLMConfig:
    """Refuse what cannot work or would leak; messages never quote an address with a secret."""
    source = dict(config.sources)["endpoint"]
    if not config.endpoint:
        raise InputError(
            f"The provider {config.provider} has no address of its own: an endpoint is required.",
            hint="give endpoint=..., or set LLM_ENDPOINT",
        )
    try:
        parts, _ = _split(config.endpoint)
    except ValueError:
        raise InputError(f"The endpoint ({source}) is not an address.") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InputError(
            f"The endpoint ({source}) carries more than an address.",
            hint="leave out user names, passwords, ?queries and #fragments; give api_key=...",
        )
    bare = not re.search(r"[\s\x00-\x1f\x7f]", config.endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or not bare:
        raise InputError(
            f"The endpoint ({source}) is not an http or https address.", found=config.endpoint
        )
    if not re.fullmatch(r"[!-~]*", config.api_key):  # and so it never reaches a library's error
        raise InputError(
            f"The key ({dict(config.sources)['api_key']}) holds characters no key has.",
            hint="visible ASCII only, without spaces",
        )
    return config
