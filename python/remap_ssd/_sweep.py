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
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Sequence, Union

from . import _engines, _html, _native, _places, _schema
from ._config import Config
from ._errors import Failed, UsageError, not_found, with_text
from ._results import Run
from ._trace import as_trace, is_trace
from ._values import as_json, plain

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from ._figures import Column

PathLike = Union[str, "os.PathLike[str]"]


class Sweep:
    """The points of a sweep and their results, one Parquet file each in a folder.

    >>> study = Sweep.open("study")
    >>> study.to_pandas(["option.seed", "iops"])
    >>> [(point["scheme"], run.write_amplification) for point, run in study]

    ``len(sweep)`` are the points; ``sweep.done`` and ``sweep.to_do`` (before or after ``run``) say which have results; iterating
    yields (point, run) of those done, in the grid's order.
    """

    def __init__(self, folder: Path, points: dict[str, dict[str, Any]], files: dict[str, Path], titles: dict[str, str]) -> None:
        self.folder = folder
        #: The points by their keys, in the grid's order: options with the types of the columns, sizes as numbers of bytes.
        self.points = points
        #: Names of the points by their keys: the values of the grid.
        self.titles = titles
        #: Points that failed, with ``on_error="keep"``: ``key``, ``point`` and ``error`` of each.
        self.failures: list[dict[str, str]] = []
        self._files = files

    @classmethod
    def open(cls, folder: PathLike) -> "Sweep":
        """The results in a folder, of a finished or an interrupted sweep, without running anything.

        Its points are those that have results, of all builds of the simulator: the column ``sources`` tells them apart, and is
        null for results of versions without this column. ``NotFound`` if there is no such folder.
        """
        path, parquet = Path(folder), _parquet()
        try:
            os.listdir(path)
        except FileNotFoundError:
            raise not_found(path) from None
        found = []
        for file in path.glob("scheme=*/[!._]*.parquet"):
            try:
                row = parquet.ParquetFile(file)
                names = [name for name in row.schema_arrow.names if name.startswith("option.")]
                values = row.read(names).to_pylist()[0]
            except (IndexError, OSError, ValueError) as error:
                raise Failed(f"{file}: {error}") from None
            typed = (_typed(name.partition(".")[2], value) for name, value in values.items() if value is not None)
            options = {"scheme": file.parent.name.partition("=")[2], **dict(typed)}
            found.append((file, options))

        found.sort(key=lambda one: [(name, isinstance(value, str), value) for name, value in sorted(one[1].items())])
        points = {file.stem: options for file, options in found}
        titles = {key: " ".join(f"{name}={value}" for name, value in options.items()) for key, options in points.items()}
        return cls(path, points, {file.stem: file for file, _ in found}, titles)

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
        for key in self.done:
            yield self.points[key], Run(self._row(key)["run"])

    def _row(self, key: str) -> dict[str, Any]:
        """A file's columns that are no options, with the run as a dict."""
        file = _parquet().ParquetFile(self._files[key])
        # Older files lack some.
        names = [name for name in ("key", "program_version", "sources", "run") if name in file.schema_arrow.names]
        row = file.read(names).to_pylist()[0]
        return {**row, "run": json.loads(row["run"])}

    def to_arrow(self, columns: Optional[Sequence[Column]] = None) -> "pyarrow.Table":
        """A ``pyarrow.Table``: a row for each point done, in the grid's order.

        Every table has all columns with the same types, those of the files: ``key``; ``program_version`` and ``sources``, a digest of
        the simulator's sources; the options as ``option.NAME``, sizes as numbers of bytes, null if not given; every figure with a number
        or text, inner ones with a dot (``latency_us.p99``), null if not measured; ``run``, the whole run as JSON; ``scheme``.
        ``columns`` are those wanted.
        """
        fields = _schema.chosen(columns)
        rows = []
        for key in self.done:
            row, scheme = self._row(key), self._files[key].parent.name.partition("=")[2]
            options = {f"option.{name}": value for name, value in self.points[key].items()}
            own = {**row, **options, "option.scheme": scheme, "scheme": scheme, "run": json.dumps(row["run"])}
            rows.append({name: own[name] if name in own else _figure(row["run"], name) for name, _ in fields})
        return _schema.arrow_package("sweeps").Table.from_pylist(rows, schema=_schema.arrow(fields))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self, columns: Optional[Sequence[Column]] = None) -> "pandas.DataFrame":
        """The same as a ``pandas.DataFrame``."""
        return self.to_arrow(columns).to_pandas()

    def _repr_html_(self) -> str:
        figures = [("write amplification", "write_amplification"), ("bandwidth, MiB/s", "bandwidth_mib_s"), ("IOPS", "iops")]
        done = self.done[:_HTML_ROWS]
        rows = [[self.titles[key], *(_figure(self._row(key)["run"], name) for _, name in figures)] for key in done]
        return _html.table(["point", *(head for head, _ in figures)], rows, repr(self)[1:-1])

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"<Sweep of {len(self)} points in {self.folder}, {len(self.done)} done{failed}>"


#: Points of a table in a notebook.
_HTML_ROWS = 50


def _typed(name: str, value: Any) -> tuple[str, Any]:
    """An option of a file; older files have all of them as text."""
    typed = _native.typed_option(name, value) if isinstance(value, str) else None
    return (name, value) if typed is None else tuple(json.loads(typed))


def _figure(run: Any, name: str) -> Any:
    """A figure by its name with dots; ``None`` if it was not measured."""
    for part in name.split("."):
        run = run.get(part) if isinstance(run, dict) else None
    return run


def sweep(
    grid: Union[Mapping[str, Any], PathLike],
    into: Optional[PathLike] = None,
    *,
    skip: Iterable[Mapping[str, Any]] = (),
    workers: Optional[int] = None,
    scheduler: Any = None,
    progress: bool = False,
    on_error: str = "stop",
    dry_run: bool = False,
    **options: Any,
) -> Sweep:
    """Runs every combination of the grid's values that has no result in ``into`` yet, and returns all results.

    >>> study = sweep({"scheme": ["none", "remap-ssd"], "seed": range(3)}, into="study", scale="1/256")
    >>> study.to_pandas(["scheme", "option.seed", "write_amplification"])

    grid
        Lists of values by option: ``{"scheme": ["none", "remap-ssd"], "log_size": ["20MiB", "80MiB"], "seed": range(3)}``.
        Options are those of ``run``; a name with a dot is a value of the device (``"flash.read_ns"``, ``"firmware.watermark"``).
        ``trace`` may be a path, an address that ``fsspec`` knows (``"s3://bucket/mail.fiu"``), a ``Trace`` or a table. Or the
        path of a file as ``remap-ssd sweep`` reads it, which then says everything but how it is run.
    into
        A folder: made if it is missing; beside a grid's file by default. It is a Parquet data set, partitioned by scheme, one
        file for each point: ``FILE.sweep`` of the command line.
    skip
        Combinations to leave out: ``[{"scheme": "wal-ssd", "workload": ["randwrite", "oltp"]}]``. Warns of values that the grid does
        not have.
    workers
        Processes; by default one for each core, as far as memory allows. Each runs one point at a time.
    scheduler
        Instead of processes: a ``dask.distributed.Client``, or the address of a Dask scheduler (``"tcp://host:8786"``). Workers
        need this package, and ``into`` on a file system that they share. A worker runs points side by side as far as its
        resource ``memory`` goes, in bytes; where workers declare none, it is their memory limit.
    on_error
        ``"stop"``: the first point that fails ends the sweep, with an error that names it. ``"keep"``: the others run on, and
        ``failures`` of the result is the table of those that failed.
    dry_run
        Runs nothing: ``len``, ``done``, ``to_do`` and ``titles`` of the result say what a run would do.
    options
        The same for all points.

    A point is identified by a hash of everything that determines its run: options, device, contents of the trace and of the job file, and
    the simulator's sources. A sweep that was killed goes on where it was, a larger grid extends a smaller one, and no point is done twice. A
    worker that is killed loses the points under way, which are done again.

    Warns of results in ``into`` that other sources of the simulator, or another version, have made: they are not reused.

    Raises ``UsageError`` (a ``ValueError``), with all that is wrong with the grid, before anything runs; ``NotFound`` if a file is missing; ``Failed`` if a point fails (the others'
    results are kept). Ctrl-C stops the workers. Needs ``pyarrow``.
    """
    _parquet()
    skip = [skip] if isinstance(skip, Mapping) else list(skip)
    if on_error not in ("stop", "keep"):
        raise UsageError(f"`on_error` is 'stop' or 'keep', and not {on_error!r}")
    if isinstance(grid, (str, os.PathLike)):
        if options or skip:
            raise TypeError("a grid in a file has its options there")
        folder = Path(grid).with_suffix(".sweep") if into is None else Path(into)
    elif into is None:
        raise TypeError("`into` is missing: the folder for the results")
    elif not isinstance(grid, Mapping):
        raise TypeError(f"`grid` is a dict of lists, or the path of a file, and not {type(grid).__name__}")
    else:
        folder = Path(into)
        skip = _as_in_grid(skip, grid)
    folder.mkdir(parents=True, exist_ok=True)

    found = _points(grid, skip, options, folder, keep=scheduler is None)
    files = {point["key"]: folder / f"scheme={point['scheme']}" / f"{point['key']}.parquet" for point in found}
    titles = {point["key"]: point["title"] for point in found}
    swept = Sweep(folder, {point["key"]: dict(point["values"]) for point in found}, files, titles)
    others = _native.sweep_others(folder, [(point["key"], point["scheme"]) for point in found])
    if others:
        said = f"{others} result{'s' if others > 1 else ''} in {folder} of other sources or another version: kept, not reused; the column `sources` tells them apart"
        warnings.warn(said, stacklevel=2)
    if dry_run:
        return swept

    def fail(task: dict[str, Any], error: Exception) -> None:
        if on_error == "stop":
            raise with_text(error, f"{task['title']}: {error}") from error
        swept.failures.append({"key": task["key"], "point": task["title"], "error": str(error)})

    missing = set(swept.to_do)
    shared = {"folder": str(folder.absolute()), "sources": _native.SOURCES}
    tasks = [{**point, **shared} for point in found if point["key"] in missing]
    with _engines.counting(progress, len(found), len(found) - len(tasks)) as count:
        if scheduler is None:
            _engines.processes(run_point, tasks, workers, count, fail)
        elif tasks:
            _engines.dask(run_point, tasks, scheduler, count, fail)
    return swept


def run_point(task: dict[str, Any]) -> None:
    """Runs one point and writes its file, in a worker."""
    given = {**task["given"], "threads": 1}
    if task["trace"] is not None:
        path, digest = task["trace"]
        given["trace"] = str(_places.local(path, digest, task["folder"]))
    options = [(name, word) for name, word in task["options"]]
    _native.sweep_point(task["sources"], task["folder"], task["key"], task["scheme"], options, json.dumps(given))


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
        lists = ((name, [_stored(name, one, folder) for one in _values(name, value)]) for name, value in names.items())
        found = [(name, values) for name, values in lists if values != [None]]
        for name, values in found:
            as_json(name, values)  # Raises for NaN, and names the option.
        return found

    given = {"grid": table(grid), "options": table(options), "skip": [table(names) for names in skip]}
    return json.loads(_native.sweep_of_json(json.dumps(given), fetch))


def _as_in_grid(skip: list[Mapping[str, Any]], grid: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Combinations to leave out, with values as the grid spells them (40 MiB as text or as bytes); warns of those that it has not."""
    combinations: list[Mapping[str, Any]] = []
    for at, names in enumerate(skip):
        if not isinstance(names, Mapping):
            raise TypeError(f"`skip[{at}]` is a dict, and not {names!r}")
        spelled = {}
        for name, values in names.items():
            known = {_same(name, one): one for one in _values(name, grid.get(name, ()))}
            spelled[name] = [known.get(_same(name, one), one) for one in _values(name, values)]
            for one in spelled[name]:
                if name in grid and _same(name, one) not in known:
                    said = f"`skip[{at}]` leaves nothing out for {name}={one}: the grid has no such value"
                    warnings.warn(said, stacklevel=3)
        combinations.append(spelled)
    return combinations


def _same(name: str, value: Any) -> str:
    """A text that is the same for equal values of an option."""
    if isinstance(value, (Config, os.PathLike)) or is_trace(value):
        return repr(value)
    text = str(plain(name, value))
    text = text.lower() if isinstance(value, bool) else text
    return _native.typed_option(name, text) or text


def _values(name: str, value: Any) -> list[Any]:
    """The values of a list, or a single one."""
    is_one = isinstance(value, (str, bytes, Config, os.PathLike)) or (name == "trace" and is_trace(value)) or callable(value)
    if is_one or not hasattr(value, "__iter__"):
        value = [value]
    return [one if isinstance(one, Config) or name == "trace" else plain(name, one) for one in value]


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


def _parquet() -> Any:
    _schema.arrow_package("sweeps")
    import pyarrow.parquet

    return pyarrow.parquet
