"""Where traces are: on the client, at addresses that ``fsspec`` reads, on the workers of a cluster.

Invariants: what a worker replays is what the point's key was made of, checked by its digest; an address is read once a worker, and
a file that workers do not see is sent to each of them once. Absent: what a trace holds.
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

_reading = threading.Lock()


def fetch(address: str, folder: Optional[Path]) -> str:
    """Reads what is at an address, for its digest; keeps it in a folder's ``_traces``, if there is one."""
    with tempfile.TemporaryDirectory(prefix="remap-ssd-") as scratch:
        path = Path(scratch) / "trace"
        _download(address, path)
        digest = _native.digest_of_file(path)
        if folder is not None:
            _keep(path, folder / "_traces" / digest)
    return digest


def local(path: str, digest: str, folder: str) -> str:
    """The path of a trace in this worker: sent or read before, in the folder of the sweep, or where it was said to be."""
    own = _own_folder()
    for kept in [Path(folder) / "_traces" / digest] + ([own / digest] if own else []):
        if kept.exists():
            return str(kept)
    if "://" not in path:
        return path

    if own is None:
        raise _native.Failed(f"{path}: it was read for its digest, and is gone from {folder}")
    with _reading:
        if not (own / digest).exists():
            beside = own / f".{uuid.uuid4().hex}"
            own.mkdir(parents=True, exist_ok=True)
            _download(path, beside)
            if _native.digest_of_file(beside) != digest:
                raise _native.Failed(f"{path} has changed since the sweep began")
            os.replace(beside, own / digest)
    return str(own / digest)


def sees(path: str, digest: str) -> bool:
    """Has this worker a file of that path, with what is in the client's?"""
    try:
        return _native.digest_of_file(path) == digest
    except _native.Failed:
        return False


def deliver(worker: Any, digest: str, content: bytes) -> None:
    """Writes what was sent into a worker's own folder."""
    with tempfile.TemporaryDirectory(prefix="remap-ssd-") as scratch:
        path = Path(scratch) / "trace"
        path.write_bytes(content)
        _keep(path, Path(worker.local_directory) / "remap-ssd" / digest)


def _own_folder() -> Optional[Path]:
    """The folder of the Dask worker that this is."""
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
    except (OSError, ValueError) as error:
        raise _native.Failed(f"{address}: {error}") from None


def _keep(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{uuid.uuid4().hex}")
    shutil.copyfile(path, beside)
    os.replace(beside, place)
