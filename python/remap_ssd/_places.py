"""Where traces are: on the client, at addresses that ``fsspec`` reads, on the workers of a cluster.

Invariants: a worker replays the trace from which the point's key was made, verified by its digest; an address is read once per worker, and
a file that workers cannot read is sent to each of them once. Absent: the contents of a trace.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any, Optional

from . import _native
from ._errors import Failed, not_found

_reading = threading.Lock()


def fetch(address: str, folder: Optional[Path]) -> str:
    """Reads the trace at an address for its digest; keeps it in a folder's ``_traces``, if there is one."""
    with tempfile.TemporaryDirectory(prefix="remap-ssd-") as scratch:
        path = Path(scratch) / "trace"
        _download(address, path)
        digest = _native.digest_of_file(path)
        if folder is not None:
            _keep(path, folder / "_traces" / digest)
    return digest


def local(path: str, digest: str, folder: str) -> str:
    """The path of a trace in this worker: sent or read before, in the folder of the sweep, or its given path."""
    own = _own_folder()
    for kept in [Path(folder) / "_traces" / digest] + ([own / digest] if own else []):
        if kept.exists():
            return str(kept)
    if "://" not in path:
        return path

    if own is None:
        raise Failed(f"{path}: it was read for its digest, and is gone from {folder}")
    with _reading:
        if not (own / digest).exists():
            beside = own / f".{uuid.uuid4().hex}"
            own.mkdir(parents=True, exist_ok=True)
            _download(path, beside)
            if _native.digest_of_file(beside) != digest:
                raise Failed(f"{path} has changed since the sweep began")
            os.replace(beside, own / digest)
    return str(own / digest)


def sees(path: str, digest: str) -> bool:
    """True if this worker has a file at that path with the same content as the client's."""
    try:
        return _native.digest_of_file(path) == digest
    except Failed:
        return False


def deliver(worker: Any, digest: str, content: bytes) -> None:
    """Writes a received trace into a worker's own folder."""
    with tempfile.TemporaryDirectory(prefix="remap-ssd-") as scratch:
        path = Path(scratch) / "trace"
        path.write_bytes(content)
        _keep(path, Path(worker.local_directory) / "remap-ssd" / digest)


def _own_folder() -> Optional[Path]:
    """The folder of this Dask worker."""
    try:
        from distributed import get_worker

        return Path(get_worker().local_directory) / "remap-ssd"
    except (ImportError, ValueError):
        return None


def _download(address: str, path: Path) -> None:
    try:
        import fsspec
    except ImportError:
        raise ImportError("traces at addresses need fsspec: pip install fsspec") from None
    try:
        with fsspec.open(address, "rb") as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except FileNotFoundError:
        raise not_found(address) from None
    except (OSError, ValueError) as error:
        raise Failed(f"{address}: {error}") from None


def _keep(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{uuid.uuid4().hex}")
    shutil.copyfile(path, beside)
    os.replace(beside, place)
