r"""Evidence as a folder of Parquet files that anybody can check without the mesh.

The folder holds one file per frame and ``manifest.json``. The manifest gives each file's size,
SHA-256, columns and *content digest*, and its own digest: the SHA-256 of its canonical JSON
(RFC 8785) without the member ``digest``. A digest shows damage; who wrote the folder it does not.

The content digest depends neither on how Parquet was written nor on the order of rows, so two
machines compare what they hold by it. It is the SHA-256 of lines, each ended by ``\n``: first the
names of the columns as a JSON array, then every row as a JSON array of its values in that order,
the lines of rows sorted by their bytes. JSON is UTF-8 without spaces and escapes only what it
must; instants are whole microseconds since 1970 in UTC, floats the shortest text that reads back
the same, with ``.0`` where they are whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl

from mnemes_lab import frames, schemas
from mnemes_lab.digest import canonical_json, compact_json, sha256_hex
from mnemes_lab.errors import (
    CorruptStoreError,
    InputError,
    NotAMeshError,
    ReadOnlyError,
    SchemaAheadError,
    SchemaError,
)
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.evidence import Evidence
from mnemes_lab.view.export import FRAMES, as_of_texts, checked
from mnemes_lab.view.plain import json_text

FORMAT, FORMAT_VERSION = "mnemes-lab evidence", 1
_MANIFEST = "manifest.json"
_MAX_MANIFEST = 1_000_000  # bytes; ours have a few thousand
_AXES = set(AsOf._fields)


def write_parquet(evidence: Evidence, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Write evidence as a folder of Parquet files with a manifest, whole or not at all.

    A process that dies on the way leaves only a folder ``.evidence-….new`` beside the name.

    Args:
        evidence: What ``mesh.evidence()`` gives.
        folder: A name not taken yet, or an empty folder.

    Returns:
        The manifest: format, format_version, package_version, mesh_id, as_of, frames (per frame
        its file, rows, columns, bytes, sha256 and content_digest) and digest.

    Raises:
        InputError: not evidence, or not a path.
        SchemaError: a frame of another shape, or with columns that its schema does not have.
        NotAMeshError: the folder is not empty, or is a file.
        ReadOnlyError: the folder cannot be written.

    Example:
        >>> import tempfile
        >>> evidence = Evidence("m-1", None, *(schemas.empty(s) for s in FRAMES.values()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = write_parquet(evidence, folder)
        >>> manifest["frames"]["facts"]["rows"], manifest["as_of"]
        (0, None)
    """
    checked(evidence)
    place = _path(folder)
    _need_free(place)  # said before the work, and seen to again after it
    files, listed = {}, {}
    for name, schema in FRAMES.items():
        table = _table(getattr(evidence, name), name, schema)
        out = io.BytesIO()
        table.write_parquet(out)
        files[f"{name}.parquet"] = out.getvalue()
        listed[name] = _entry(name, table, out.getvalue())
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "package_version": _package_version(),
        "mesh_id": evidence.mesh_id,
        "as_of": as_of_texts(evidence.as_of),
        "frames": listed,
    }
    manifest["digest"] = sha256_hex(canonical_json(manifest))
    files[_MANIFEST] = (json_text(manifest, indent=2) + "\n").encode()
    _place(place, files)
    return manifest


def read_parquet(folder: str | os.PathLike[str]) -> Evidence:
    """Read a folder that :func:`write_parquet` wrote, after checking every digest.

    The times of `as_of` come back as RFC 3339 text.

    Raises:
        NotAMeshError: the folder holds no exported evidence.
        SchemaAheadError: it was written by a newer version.
        CorruptStoreError: files are missing, damaged, or not what the manifest says; all of them
            are named.

    Example:
        >>> import tempfile
        >>> evidence = Evidence("m-1", None, *(schemas.empty(s) for s in FRAMES.values()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = write_parquet(evidence, folder)
        ...     read_parquet(folder).facts.equals(evidence.facts)
        True
    """
    place = _path(folder)
    manifest = _read_manifest(place)
    listed = dict(manifest["frames"])
    tables: dict[str, pl.DataFrame] = {}
    problems = []
    for name, schema in FRAMES.items():
        try:
            tables[name] = _read_frame(place, name, schema, listed.pop(name, None))
        except (CorruptStoreError, SchemaError) as error:
            problems.append(f"{name}.parquet {error}")
    problems += [f"frame {name!r} is unknown" for name in sorted(listed)]
    known = {f"{name}.parquet" for name in FRAMES}
    problems += [
        f"{path.name} is not in the manifest"
        for path in sorted(place.glob("*.parquet"))
        if path.name not in known
    ]
    if problems:
        raise _damaged(" ".join(told if told.endswith(".") else f"{told}." for told in problems))
    as_of = manifest["as_of"]
    return Evidence(manifest["mesh_id"], None if as_of is None else AsOf(**as_of), **tables)


def content_digest(table: pl.DataFrame) -> str:
    """The digest of a frame's rows that the module's description defines.

    Example:
        >>> frame = pl.DataFrame({"query_id": ["q-1", "q-2"], "gain": [1.0, None]})
        >>> content_digest(frame) == content_digest(frame.reverse())
        True
    """
    numbers = table.with_columns(pl.col(pl.Datetime("us", "UTC")).cast(pl.Int64))
    lines = sorted(compact_json(row) for row in numbers.iter_rows())
    return hashlib.sha256(b"\n".join([compact_json(table.columns), *lines, b""])).hexdigest()


# --- what a file is said to be -------------------------------------------------------------------
def _table(frame: Any, name: str, schema: type[dy.Schema]) -> pl.DataFrame:
    table = frames.read(frame, schema)
    unknown = [str(column) for column in frame.columns if column not in table.columns]
    if unknown:
        what = f"The frame {name} has column(s) that no reader could check: {unknown}."
        raise SchemaError(what, hint="drop them, or keep them in a file of their own")
    return table


def _entry(name: str, table: pl.DataFrame, raw: bytes) -> dict[str, Any]:
    """What the manifest says of one file."""
    return {
        "file": f"{name}.parquet",
        "rows": table.height,
        "columns": {column: _dtype(dtype) for column, dtype in table.schema.items()},
        "bytes": len(raw),
        "sha256": sha256_hex(raw),
        "content_digest": content_digest(table),
    }


def _dtype(dtype: pl.DataType) -> str:
    """A type in words of our own, which no release of a library changes."""
    if isinstance(dtype, pl.Enum):
        return f"enum: {', '.join(dtype.categories)}"
    names = {pl.Datetime("us", "UTC"): "instant", pl.String: "text"}
    return names.get(dtype) or str(dtype).lower()


def _package_version() -> str | None:
    try:
        return version("mnemes-lab")
    except PackageNotFoundError:  # run from its source
        return None


# --- reading -------------------------------------------------------------------------------------
def _damaged(what: str) -> CorruptStoreError:
    return CorruptStoreError(
        f"The exported evidence is damaged: {what}", hint="export it again, or copy it again"
    )


def _read_manifest(place: Path) -> dict[str, Any]:
    path = place / _MANIFEST
    if not path.is_file():
        raise NotAMeshError(
            "The folder holds no exported evidence.",
            found=place.name,
            hint=f"give the folder that holds {_MANIFEST}",
        )
    if path.stat().st_size > _MAX_MANIFEST:
        raise _damaged(f"{_MANIFEST} is longer than {_MAX_MANIFEST} bytes.")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise _damaged(f"{_MANIFEST} is not JSON.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise NotAMeshError(f"{_MANIFEST} belongs to something else.", found=found)
    written = manifest.get("format_version")
    if isinstance(written, int) and written > FORMAT_VERSION:
        raise SchemaAheadError(
            f"The evidence was written in a newer format than {FORMAT_VERSION}.",
            found=written,
            hint="upgrade mnemes-lab",
        )
    if not _is_whole(manifest):
        raise _damaged(f"{_MANIFEST} does not match its own digest.")
    return manifest


def _is_whole(manifest: dict[str, Any]) -> bool:
    """Whether a manifest of this version matches its digest and has the shape of one."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    try:
        if manifest.get("digest") != sha256_hex(canonical_json(rest)):
            return False
        as_of = manifest.get("as_of")
        if as_of is not None and (set(as_of) != _AXES or as_of_texts(AsOf(**as_of)) != as_of):
            return False
    except (InputError, RecursionError, TypeError):
        return False
    mesh_id = manifest.get("mesh_id")
    return (
        manifest.get("format_version") == FORMAT_VERSION
        and isinstance(mesh_id, str)
        and isinstance(manifest.get("frames"), dict)
    )


def _read_frame(place: Path, name: str, schema: type[dy.Schema], entry: Any) -> pl.DataFrame:
    """One frame, read only if its file is the one the manifest speaks of."""
    path = place / f"{name}.parquet"
    if not isinstance(entry, dict):
        raise CorruptStoreError("is not in the manifest.")
    if entry.get("file") != path.name:  # no manifest sends us elsewhere
        raise CorruptStoreError("has another name in the manifest.", found=entry.get("file"))
    if not path.is_file():
        raise CorruptStoreError("is missing.")
    if path.stat().st_size != entry.get("bytes"):
        raise CorruptStoreError(f"has {path.stat().st_size} bytes, not {entry.get('bytes')!r}.")
    raw = path.read_bytes()
    if sha256_hex(raw) != entry.get("sha256"):
        raise CorruptStoreError("does not match its SHA-256.")
    try:
        table = pl.read_parquet(io.BytesIO(raw))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise CorruptStoreError("is not a Parquet file.") from None
    wanted = schemas.dtypes(schema)
    for column, dtype in table.schema.items():
        if column not in wanted:
            raise CorruptStoreError(f"has an unknown column {column!r}.")
        if dtype != wanted[column] and not isinstance(dtype, pl.Enum):
            raise CorruptStoreError(f"has {column} as {dtype}, not {wanted[column]}.")
    checked_table = frames.read(table, schema)
    told = _entry(name, table, raw)
    differs = [key for key in told if told[key] != entry.get(key)]
    if differs:
        raise CorruptStoreError(f"differs from the manifest in {', '.join(differs)}.")
    return checked_table


# --- writing -------------------------------------------------------------------------------------
def _path(folder: str | os.PathLike[str]) -> Path:
    try:
        return Path(os.path.realpath(folder))
    except (TypeError, ValueError):  # bytes, or a NUL
        raise InputError("This is not the path of a folder.", found=folder) from None


def _place(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files beside the folder's name and move them there together."""
    fresh = folder.parent / f".evidence-{uuid.uuid4().hex}.new"
    try:
        _need_free(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh.mkdir()
        for name, content in files.items():
            with (fresh / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _flush(fresh)
        if folder.exists():
            folder.rmdir()  # it is empty, and Windows does not rename onto it
        os.rename(fresh, folder)
        _flush(folder.parent)
    except OSError as error:
        _need_free(folder)  # somebody else may have taken the name meanwhile
        raise ReadOnlyError(f"The folder cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # there only after a failure


def _need_free(folder: Path) -> None:
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        hint = "give a new name or an empty folder; an export overwrites nothing"
        raise NotAMeshError("There is something here already.", found=folder.name, hint=hint)


def _flush(folder: Path) -> None:
    """Make names durable; only POSIX lets a folder be opened for this."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


__all__ = ["content_digest", "read_parquet", "write_parquet"]
