"""Many runs: every combination of a grid of options, run once, with results in files that a later sweep reuses.

Points, their keys and their files are those of ``remap-ssd sweep FILE.toml``, made by the same code. Invariants: a
point's file is written under a temporary name and renamed, so it is whole or absent; its name is a hash of everything that determines
the run, so that no point is run twice, by this sweep or a later one. Absent: how a point is run (``_native``), what runs them
(``_engines``), how a trace gets to a worker (``_places``).
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Optional, Union

from . import _engines, _native, _places
from ._compare import as_json
from ._config import Config
from ._results import Run
from ._trace import as_trace, is_trace

PathLike = Union[str, "os.PathLike[str]"]


class Sweep:
    """The points of a sweep and their results, one Parquet file each in a folder.

    ``len(sweep)`` are the points; ``sweep.done`` and ``sweep.to_do`` (before or after ``run``) say which have results; iterating
    yields (point, run) of those done, in the grid's order.
    """

    def __init__(self, folder: Path, points: dict[str, dict[str, Any]], files: dict[str, Path]) -> None:
        self.folder = folder
        #: The points by their keys, in the grid's order: options as given.
        self.points = points
        self._files = files

    @property
    def done(self) -> list[str]:
        """Keys of the points that have results."""
        return [key for key in self.points if self._files[key].exists()]

    @property
    def to_do(self) -> list[str]:
        """Keys of the points that do not."""
        return [key for key in self.points if not self._files[key].exists()]

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Run]]:
        parquet = _parquet()
        for key in self.done:
            row = parquet.ParquetFile(self._files[key]).read(["run"])
            yield self.points[key], Run(json.loads(row["run"][0].as_py()))

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``: a row for each point done, in the grid's order.

        Columns: ``key``; the options, as text, as ``option.NAME``; every figure with a number or text, inner ones with a dot
        (``latency_us.p99``); ``run``, the whole run as JSON; ``scheme``.
        """
        pyarrow, parquet = _pyarrow(), _parquet()
        done = self.done
        if not done:
            return pyarrow.table({"key": pyarrow.array([], pyarrow.string())})
        rows = [parquet.ParquetFile(self._files[key]).read() for key in done]
        schemes = [self._files[key].parent.name.partition("=")[2] for key in done]
        return pyarrow.concat_tables(rows, promote_options="default").append_column("scheme", pyarrow.array(schemes))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """The same as a ``pandas.DataFrame``."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} points in {self.folder}, {len(self.done)} done>"


def sweep(
    grid: Union[Mapping[str, Any], PathLike],
    into: Optional[PathLike] = None,
    *,
    skip: Iterable[Mapping[str, Any]] = (),
    workers: Optional[int] = None,
    scheduler: Any = None,
    progress: bool = False,
    **options: Any,
) -> Sweep:
    """Runs every combination of the grid's values that has no result in ``into`` yet, and returns all results.

    grid
        Lists of values by option: ``{"scheme": ["none", "remap-ssd"], "log_size": ["20MiB", "80MiB"], "seed": range(3)}``.
        Options are those of ``run``; a name with a dot is a value of the device (``"flash.read_ns"``, ``"firmware.watermark"``).
        ``trace`` may be a path, an address that ``fsspec`` knows (``"s3://bucket/mail.fiu"``), a ``Trace`` or a table. Or the
        path of a file as ``remap-ssd sweep`` reads it, which then says everything but how it is run.
    into
        A folder: made if it is missing; beside a grid's file by default. It is a Parquet data set, partitioned by scheme, one
        file for each point: ``FILE.sweep`` of the command line.
    skip
        Combinations to leave out: ``[{"scheme": "wal-ssd", "workload": ["randwrite", "oltp"]}]``.
    workers
        Processes; by default one for each core, as far as memory allows. Each runs one point at a time.
    scheduler
        Instead of processes: a ``dask.distributed.Client``, or the address of a Dask scheduler (``"tcp://host:8786"``). Workers
        need this package, and ``into`` on a file system that they share. A worker runs points side by side as far as its
        resource ``memory`` goes, in bytes; where workers declare none, it is their memory limit.
    options
        The same for all points.

    A point is identified by a hash of everything that determines its run: options, device, contents of the trace and of the job file, and
    the simulator's sources. A sweep that was killed goes on where it was, a larger grid extends a smaller one, and no point is done twice. A
    worker that is killed loses the points under way, which are done again.

    Raises ``ValueError``, with all that is wrong with the grid, before anything runs; ``Failed`` if a point fails (the others'
    results are kept). Ctrl-C stops the workers. Needs ``pyarrow``.
    """
    _parquet()
    if isinstance(grid, (str, os.PathLike)):
        if options or list(skip):
            raise TypeError("a grid in a file has its options there")
        folder = Path(grid).with_suffix(".sweep") if into is None else Path(into)
    elif into is None:
        raise TypeError("`into` is missing: the folder for the results")
    else:
        folder = Path(into)
    folder.mkdir(parents=True, exist_ok=True)

    found = _points(grid, list(skip), options, folder, keep=scheduler is None)
    files = {point["key"]: folder / f"scheme={point['scheme']}" / f"{point['key']}.parquet" for point in found}
    swept = Sweep(folder, {point["key"]: dict(point["values"]) for point in found}, files)

    missing = set(swept.to_do)
    tasks = [{**point, "folder": str(folder.absolute())} for point in found if point["key"] in missing]
    with _engines.counting(progress, len(found), len(found) - len(tasks)) as count:
        if scheduler is None:
            _engines.processes(do_point, tasks, workers, count)
        elif tasks:
            _engines.dask(do_point, tasks, scheduler, count)
    return swept


def do_point(task: dict[str, Any]) -> str:
    """Runs one point and writes its file, in a worker."""
    given = {**task["given"], "threads": 1}
    if task["trace"] is not None:
        path, digest = task["trace"]
        given["trace"] = str(_places.local(path, digest, task["folder"]))
    options = [(name, word) for name, word in task["options"]]
    _native.sweep_point(task["folder"], task["key"], task["scheme"], options, json.dumps(given))
    return str(task["key"])


def _points(
    grid: Union[Mapping[str, Any], PathLike],
    skip: list[Mapping[str, Any]],
    options: dict[str, Any],
    folder: Path,
    *,
    keep: bool = False,
) -> list[dict[str, Any]]:
    """All points, in order, as described by ``_native``."""

    def fetch(address: str) -> str:
        return _places.fetch(address, folder if keep else None)

    if isinstance(grid, (str, os.PathLike)):
        return json.loads(_native.sweep_of_file(os.fspath(grid), fetch))

    def table(names: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
        lists = ((name, [_stored(name, one, folder) for one in _values(value)]) for name, value in names.items())
        found = [(name, values) for name, values in lists if values != [None]]
        for name, values in found:
            as_json(name, values)  # Raises for NaN, and names the option.
        return found

    given = {"grid": table(grid), "options": table(options), "skip": [table(names) for names in skip]}
    return json.loads(_native.sweep_of_json(json.dumps(given), fetch))


def _values(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Config, os.PathLike)) or is_trace(value) or not hasattr(value, "__iter__"):
        value = [value]
    return [one.item() if hasattr(one, "item") else one for one in value]


def _stored(name: str, value: Any, folder: Path) -> Any:
    """A value that can be passed to another process: devices and requests become files, named by their contents."""
    if isinstance(value, Config):
        return _store(folder / "_devices", ".toml", lambda path: path.write_text(value.to_toml(), encoding="utf-8"))
    if name == "trace" and is_trace(value):
        return _store(folder / "_traces", ".session", as_trace(value).save)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _store(folder: Path, suffix: str, write: Any) -> str:
    folder.mkdir(exist_ok=True)
    beside = folder / f".{uuid.uuid4().hex}"
    write(beside)
    path = folder / f"{_native.digest_of_file(beside)}{suffix}"
    os.replace(beside, path)
    return str(path.absolute())


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError("sweeps need pyarrow: pip install pyarrow") from None
    return pyarrow


def _parquet() -> Any:
    _pyarrow()
    import pyarrow.parquet

    return pyarrow.parquet
