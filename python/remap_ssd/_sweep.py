"""Many runs: a grid of options, done once each, kept in files that a later sweep finds.

Invariants: a point's file is written beside and renamed, so it is whole or absent; its name is a hash of everything that
decides the run, so that no point is done twice, by this sweep or a later one. Absent: how a point is run (``_compare``).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import uuid
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Union

from . import _engines, _native
from ._compare import check_options, run
from ._config import Config
from ._results import Run
from ._trace import as_trace, is_trace

# How a run is done and what it leaves besides its figures: no part of a point.
_NO_PART = {"threads", "progress", "report", "save_aged", "age", "schemes"}

#: What a sweep's key stands for: changed when the meaning of a point changes.
_FORMAT = 1


class Sweep:
    """The points of a sweep and their results, one Parquet file each in a folder.

    ``len(sweep)`` are the points; ``sweep.done`` and ``sweep.to_do`` (before or after ``run``) say which have results; iterating
    yields (point, run) of those done, in the grid's order.
    """

    def __init__(self, folder: Path, points: dict[str, dict[str, Any]]) -> None:
        self.folder = folder
        #: The points by their keys, in the grid's order: options as given.
        self.points = points

    @property
    def done(self) -> list[str]:
        """Keys of the points that have results."""
        return [key for key in self.points if _file(self.folder, key, self.points[key]).exists()]

    @property
    def to_do(self) -> list[str]:
        """Keys of those that do not."""
        return [key for key in self.points if not _file(self.folder, key, self.points[key]).exists()]

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Run]]:
        parquet = _parquet()
        for key in self.done:
            row = parquet.ParquetFile(_file(self.folder, key, self.points[key])).read(["run"])
            yield self.points[key], Run(json.loads(row["run"][0].as_py()))

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``: a row for each point done, in the grid's order.

        Columns: ``key``; the options of the grid, as text, as ``option.NAME``; every figure with a number or text, inner
        ones with a dot (``latency_us.p99``); ``run``, the whole run as JSON.
        """
        pyarrow, parquet = _pyarrow(), _parquet()
        files = [_file(self.folder, key, self.points[key]) for key in self.done]
        if not files:
            return pyarrow.table({"key": pyarrow.array([], pyarrow.string())})
        return pyarrow.concat_tables([parquet.ParquetFile(file).read() for file in files], promote_options="default")

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """The same as a ``pandas.DataFrame``."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} points in {self.folder}, {len(self.done)} done>"


def sweep(
    grid: Mapping[str, Any],
    into: Union[str, "os.PathLike[str]"],
    *,
    workers: Optional[int] = None,
    scheduler: Any = None,
    progress: bool = False,
    **options: Any,
) -> Sweep:
    """Runs every combination of the grid's values that has no result in ``into`` yet, and returns all results.

    grid
        Lists of values by option: ``{"scheme": ["none", "remap-ssd"], "log_size": ["20MiB", "80MiB"], "seed": range(3)}``.
        Options are those of ``run``; a name with a dot is a value of the device (``"flash.read_ns"``, ``"firmware.watermark"``).
        ``trace`` may be a path, a ``Trace`` or a table.
    into
        A folder: made if it is missing. It is a Parquet data set, partitioned by scheme, one file for each point.
    workers
        Processes; by default one for each core. Each runs one point at a time.
    scheduler
        Instead of processes: a ``dask.distributed.Client``, or the address of a Dask scheduler (``"tcp://host:8786"``). Workers
        need this package, and ``into`` on a file system that they share.
    options
        The same for all points.

    A point is known by a hash of everything that decides its run: options, device, what is in the trace, and the simulator's
    sources. A sweep that was killed goes on where it was, a larger grid extends a smaller one, and no point is done twice. A
    worker that is killed loses the points under way, which are done again.

    Raises ``ValueError`` and ``TypeError`` as ``run`` does, before anything runs; ``Failed`` if a point fails (the others' results
    are kept). Ctrl-C stops the workers. Needs ``pyarrow``.
    """
    _parquet()
    folder = Path(into)
    folder.mkdir(parents=True, exist_ok=True)
    points = dict(_points(grid, options, folder))
    swept = Sweep(folder, points)

    tasks = [(str(folder), key, points[key]) for key in swept.to_do]
    engine = _engines.processes if scheduler is None else _engines.dask
    with _engines.counting(progress, len(points), len(points) - len(tasks)) as count:
        engine(do_point, tasks, workers if scheduler is None else scheduler, count)
    return swept


def do_point(folder: str, key: str, point: dict[str, Any]) -> str:
    """Runs one point and writes its file, in a worker."""
    pyarrow = _pyarrow()
    file = _file(Path(folder), key, point)
    if not file.exists():
        measured = run(**_options(point), threads=1).to_dict()
        row: dict[str, Any] = {"key": key, **{f"option.{name}": str(value) for name, value in point.items()}}
        row.update(_flat(measured))
        row["run"] = json.dumps(measured)

        # Beside, then renamed: a file of this name is whole. Killed in between, the name beside is nobody's.
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{key}-{uuid.uuid4().hex}")
        _parquet().write_table(pyarrow.Table.from_pylist([row]), beside)
        os.replace(beside, file)
    return key


def _points(grid: Mapping[str, Any], options: dict[str, Any], folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Keys and points, in order: the last name of the grid changes fastest."""
    for name in {**grid, **options}:
        if name in _NO_PART:
            raise TypeError(f"sweep() has no option `{name}`")
    twice = sorted(set(grid) & set(options))
    if twice:
        raise TypeError(f"`{twice[0]}` is given twice")

    lists = {name: _values(value) for name, value in grid.items()}
    for values in itertools.product(*lists.values()):
        point = {**options, **dict(zip(lists, values))}
        point = {name: _stored(name, value, folder) for name, value in point.items() if value is not None}
        check_options(_options(point))  # What is no option is said before anything runs.
        yield _key(point), point


def _values(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Config)) or is_trace(value) or not hasattr(value, "__iter__"):
        return [value]
    return [one.item() if hasattr(one, "item") else one for one in value]


def _stored(name: str, value: Any, folder: Path) -> Any:
    """A value that another process can take: requests become a file, whose name is a hash of what is in it."""
    if name != "trace" or not is_trace(value):
        return os.fspath(value) if isinstance(value, os.PathLike) else value
    traces = folder / "_traces"
    traces.mkdir(exist_ok=True)
    beside = traces / f".{uuid.uuid4().hex}"
    as_trace(value).save(beside)
    path = traces / f"{_digest_of_file(beside)}.session"
    os.replace(beside, path)
    return str(path)


def _options(point: dict[str, Any]) -> dict[str, Any]:
    """A point as options of ``run``: values of the device become a ``Config``."""
    device: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, value in point.items():
        table, dot, key = name.partition(".")
        if dot:
            device.setdefault(table, {})[key] = value
        else:
            plain[name] = value
    if not device:
        return plain

    config = plain.pop("config", None)
    if config is None:
        if "scale" not in plain:
            raise ValueError("values of the device need `scale`, the size of the preset to take, or `config`")
        config = Config(plain.pop("preset", "fast21-32g"))
    elif not isinstance(config, Config):
        config = Config.load(config)
    return {**plain, "config": config.replace(**device)}


def _key(point: dict[str, Any]) -> str:
    """A hash of everything that decides the run."""
    decides: dict[str, Any] = {}
    for name, value in sorted(point.items()):
        if name == "trace":
            decides[name] = _digest_of_file(Path(value))
        elif name == "config":
            decides[name] = (value if isinstance(value, Config) else Config.load(value)).to_toml()
        else:
            decides[name] = value
    said = json.dumps([_FORMAT, _native.__version__, _native.SOURCES, decides], default=str)
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def _digest_of_file(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            digest = hashlib.blake2b(digest_size=16)
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise _native.Failed(f"{path}: {error.strerror}") from None
    return digest.hexdigest()


def _file(folder: Path, key: str, point: dict[str, Any]) -> Path:
    return folder / f"scheme={point.get('scheme', 'remap-ssd')}" / f"{key}.parquet"


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Figures by their names with dots. Lists, and figures that are not there, stay in the JSON alone."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, (int, float, str)):
            flat[prefix + name] = value
    return flat


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
