"""Which encoder a mesh uses, and changing it without ever mixing two spaces."""

from __future__ import annotations

import logging
import sys

from rich.console import Console
from rich.progress import track
from sqlalchemy import select, update

from mnemes_lab.errors import EncoderMismatchError, MnemesError
from mnemes_lab.store import tables as t
from mnemes_lab.store.operations import noted
from mnemes_lab.store.store import Store
from mnemes_lab.text.cache import VectorCache, encode_cached
from mnemes_lab.text.encode import (
    AbsentEncoder,
    Encoder,
    HashEncoder,
    default_encoder,
    encoder_from,
)

_LOG = logging.getLogger("mnemes_lab")


def recipe(encoder: Encoder) -> str:
    """Text that :func:`encoder_from` turns into an equal encoder."""
    return f"hash:{encoder.dim}" if isinstance(encoder, HashEncoder) else encoder.name


def settle_encoder(store: Store, wanted: Encoder | str | None, *, change: bool) -> Encoder:
    """The encoder of an opened mesh: the one it was made with, or the first one.

    Args:
        store: The open store; learns the fingerprint.
        wanted: What the caller asked for; None takes what is on record.
        change: Re-encode when the mesh was made with another one.

    Raises:
        EncoderMismatchError: the mesh was encoded by another model or size.
    """
    state = store.state()
    recorded = state["encoder"]
    encoder: Encoder
    if wanted is None and recorded is not None:
        encoder = _on_record(state["encoder_name"], state["encoder_dim"], recorded)
    elif wanted is None:
        encoder, notice = default_encoder()
        if notice:
            _LOG.warning(notice)
    else:
        encoder = encoder_from(wanted)
    if recorded is None and not store.read_only:
        with store.writing(), store.pooled() as conn:
            conn.execute(update(t.mesh).values(**_record(encoder)))
    elif recorded is not None and recorded != encoder.fingerprint:
        if not change:
            raise EncoderMismatchError(
                f"The mesh was encoded by {state['encoder_name']!r} ({state['encoder_dim']} "
                f"dimensions, {recorded}), not by {recipe(encoder)!r} ({encoder.dim} dimensions, "
                f"{encoder.fingerprint}).",
                hint="leave encoder out, or re-encode: Mesh.open(..., encoder=..., reencode=True) "
                "or mesh.reencode(...)",
            )
        cache = VectorCache(store.folder / "vectors.db")
        try:
            reencode(store, encoder, cache, progress=sys.stderr.isatty())
        finally:
            cache.close()
    store.encoder = encoder.fingerprint
    return encoder


def _on_record(name: str, dim: int, fingerprint: str) -> Encoder:
    """The encoder a mesh was made with, or what stands in for it where it is not at hand."""
    try:
        encoder = encoder_from(name)
        if encoder.fingerprint == fingerprint:
            return encoder
        problem = None
    except MnemesError as error:
        problem = error
    return AbsentEncoder(name, dim, fingerprint, problem)


def _record(encoder: Encoder) -> dict[str, object]:
    return {
        "encoder": encoder.fingerprint,
        "encoder_name": recipe(encoder),
        "encoder_dim": encoder.dim,
    }


def reencode(store: Store, encoder: Encoder, cache: VectorCache, *, progress: bool) -> None:
    """Encode every fact anew, then change the mesh's encoder in one transaction.

    The new vectors go to the cache beside the old ones, so an interrupted run has changed nothing
    and a rerun continues. Record times stay as they are: nothing becomes recent.
    """
    with store.writing():
        rows = store.rows(select(t.catalogue).order_by(t.catalogue.c.device_id))
        written = [r for r in rows if store.shard_path(r["device_id"]).exists()]
        console = Console(stderr=True)
        for row in track(written, "Encoding", console=console, disable=not progress):
            held = store.shard(row["device_id"]).rows(
                select(t.facts.c.text).where(t.facts.c.redacted == 0).order_by(t.facts.c.row_key)
            )
            encode_cached(encoder, [fact["text"] for fact in held], cache)
        generations = {r["device_id"]: (r["generation"], r["facts"]) for r in written}
        store.announce({d: g for d, (g, _) in generations.items()}, [], "keep")
        try:
            with store.pooled() as conn:
                conn.execute(update(t.mesh).values(**_record(encoder)))
                noted(conn, store, "supersede", "encoder:current", _record(encoder), store.now())
            for device_id in sorted(generations):
                with store.shard(device_id).begin() as conn:
                    conn.execute(update(t.shard_state).values(encoder=encoder.fingerprint))
        except BaseException:
            store.abandon()
            raise
        store.publish(generations)
        store.encoder = encoder.fingerprint
