"""What the columns of frames are made of: their kinds, and the words they may hold."""

from __future__ import annotations

from typing import Any

import dataframely as dy

STATUSES = ["active", "quarantined", "revoked"]
FACT_STATUSES = ["active", "superseded", "retracted", "expired", "redacted"]
KINDS = [
    "durable_fact",
    "preference",
    "project_state",
    "instruction_policy",
    "correction",
    "observation",
    "episode_summary",
    "skill_procedure",
    "ephemeral_inference",
]
SENSITIVITIES = ["public", "internal", "confidential", "restricted"]
OUTCOMES = ["stored", "duplicate", "refused"]
TOOL_PROFILES = ["agent", "operator"]
REASONS = ["budget", "exhaustive", "expanded", "over_budget", "failed"]
CERTIFICATES = ["exact", "calibrated", "none"]
OPERATION_KINDS = ["observe", "assert", "supersede", "revoke", "redact", "adjudicate"]
EDGE_TYPES = [
    "observed_by",
    "recorded_by",
    "derived_from",
    "supports",
    "contradicts",
    "supersedes",
    "retrieved_from",
]
CHECKS = ["ok", "pending", "broken"]


def instant(description: str, *, nullable: bool = False) -> Any:
    """An instant, microseconds UTC."""
    return dy.Datetime(time_unit="us", time_zone="UTC", nullable=nullable, description=description)


def key(description: str) -> Any:
    """Text that is (part of) the key."""
    return dy.String(primary_key=True, min_length=1, description=description)


def text(description: str, *, nullable: bool = False) -> Any:
    """Text."""
    return dy.String(nullable=nullable, description=description)


def digest(description: str, *, nullable: bool = False) -> Any:
    """`sha256:` and 64 hex digits."""
    return dy.String(nullable=nullable, min_length=71, max_length=71, description=description)


def real(description: str, *, nullable: bool = False) -> Any:
    """A finite real number."""
    return dy.Float64(nullable=nullable, allow_inf=False, allow_nan=False, description=description)


def count(description: str, *, key: bool = False, nullable: bool = False) -> Any:
    """A whole number of 0 or more."""
    return dy.Int64(min=0, primary_key=key, nullable=nullable, description=description)


def enum(categories: list[str], description: str, *, nullable: bool = False) -> Any:
    """One of some words."""
    return dy.Enum(categories, nullable=nullable, description=description)
