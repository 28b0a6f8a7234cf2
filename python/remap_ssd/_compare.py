"""``compare`` and ``run``: options by name.

The library of the command line reads them, so options and error messages are the same.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from . import _native
from ._config import Config
from ._progress import watching
from ._results import Results, Run
from ._trace import Trace, as_trace, is_trace

Number = Union[int, float, str]
Path = Union[str, "os.PathLike[str]"]
Progress = Union[bool, None, Callable[[list[tuple[str, str, float]]], object]]


def compare(
    schemes: Union[str, Sequence[str], None] = None,
    *,
    scale: Optional[Number] = None,
    preset: Optional[str] = None,
    config: Union["Config", Path, None] = None,
    log_size: Optional[Number] = None,
    dedup: Optional[bool] = None,
    set: Union[str, Sequence[str], None] = None,
    gc: Union[str, Sequence[str], None] = None,
    mapping: Union[str, Sequence[str], None] = None,
    workload: Optional[str] = None,
    duplicates: Optional[Number] = None,
    content: Optional[str] = None,
    job: Optional[Path] = None,
    writes: Optional[Number] = None,
    steady: Optional[Number] = None,
    precision: Optional[str] = None,
    trace: Union["Trace", Path, Any, None] = None,
    format: Optional[str] = None,
    fold: Optional[str] = None,
    skip_bad: bool = False,
    blkparse_action: Optional[str] = None,
    flushes: bool = False,
    repeat: Optional[int] = None,
    arrivals: Optional[str] = None,
    queue_depth: Optional[int] = None,
    seed: Optional[int] = None,
    threads: Optional[int] = None,
    memory: Optional[Number] = None,
    no_aging: bool = False,
    aging: Optional[str] = None,
    until_death: bool = False,
    survival: bool = False,
    age: Optional[Path] = None,
    save_aged: Optional[Path] = None,
    report: Optional[Path] = None,
    report_x: Optional[str] = None,
    timeline: Optional[Path] = None,
    timeline_window: Optional[str] = None,
    table: Optional[Path] = None,
    show: Union[str, Sequence[str], None] = None,
    out: Optional[Path] = None,
    progress: Progress = None,
) -> Results:
    """Runs one workload or trace against several schemes, on the same device, and returns their results.

    Equivalent to ``remap-ssd compare``: every option of the command line is a keyword argument, with ``_`` for ``-`` (``--log-size``
    is ``log_size``), and has the same default and the same meaning; ``remap-ssd compare --help`` describes them. The same options and
    seed give the same figures.

    Each device is aged first, as in the published evaluations, unless ``no_aging``.

    schemes
        Names, in a list or separated by commas: none, remap-ssd, flog, nlog, opt (the default), unsafe, pebble, remap-ssd-x,
        local-flash, remap-ssd-lh, wal-ssd, shadow-oob. With a ``Config`` the default is its own scheme.
    scale
        Size of the device as a share of the given one: ``"1/64"`` or a number above 0 and at most 1.
    preset, config
        A ready-made device by its name (``presets()`` lists them); or a ``Config``, or the path of a device file. A preset
        gets about 600,000 flash pages unless ``scale`` is given; a ``Config`` is used unchanged, with its scheme unless
        ``schemes`` names others; of a device file's path, as of ``--config``, the default schemes are compared.
    set
        Any other value of the device, or a list of them: ``"firmware.gc_free=0.2"``.
    log_size
        Remapping metadata in bytes, or as text (``"40MiB"``), of the device before ``scale``.
    workload, content, duplicates, writes
        ``"zipfrw:0.99:70,pages=4"``, ``"oltp"``, ...; the contents written, also by a trace without fingerprints
        (``"plain:0.3"``); the number of pages that requests read or write.
    trace, format, fold, skip_bad, blkparse_action, flushes, repeat
        Replays requests, all of them, instead of a workload: a ``Trace``, an Arrow table or data frame (see ``Trace.from_table``:
        ``trace=pyarrow.parquet.read_table("disk.parquet")``), or the path of a trace file.
    threads
        Schemes that run at the same time; by default one on each core. Results do not depend on it.
    report
        Path of an HTML page with tables and figures to write.
    timeline, timeline_window
        Path of a picture of what each die did (SVG), and the part of the run in it (``"1.5s+20ms"``); with
        ``timing.engine=nand``. The page of ``report`` has the picture as well; without ``timeline``, it alone has.
    table, show
        Path of the table to write (``.tex``, ``.md`` or ``.csv``), and its figures by name (``["wa", "latency_us.p99"]``).
    progress
        ``True``: a bar for each run, by ``tqdm`` if that is installed. A function: called some 20 times a second with a list
        of (job, activity, share of the run done), and of ("trace", "reading", share) while a trace is read. By default
        no progress is shown.

    Runs do not hold the interpreter's lock, nor does reading a trace. Ctrl-C stops them and raises ``KeyboardInterrupt``.

    Raises ``ValueError`` if the options do not fit together, with the command line's sentence; ``Failed`` if a file cannot be
    read or a run has no result; ``TypeError`` if there is no such option.
    """
    named = {name: value for name, value in locals().items() if name not in ("schemes", "progress")}
    named["scheme"] = config.firmware.scheme if schemes is None and isinstance(config, Config) else schemes

    if is_trace(named["trace"]) and format is None:
        named["format"] = "session"

    with _Files() as files:
        values = _values({name: files.of(name, value) for name, value in named.items()})
        with watching(progress) as tell:
            try:
                return Results(json.loads(_native.compare(values, tell)))
            except (ValueError, _native.Failed) as error:
                raise type(error)(files.without_folder(str(error))) from None


def run(scheme: Optional[str] = None, **options: Any) -> Run:
    """Runs one workload or trace against one scheme, and returns its results.

    Without ``scheme``, that is the scheme of ``config``, a ``Config`` or a device file's path; or ``remap-ssd``.

    Takes the keyword arguments of ``compare`` and raises the same exceptions; ``ValueError`` also if ``gc`` or
    ``mapping`` names several. ``run(scheme, ...)`` is ``compare([scheme], ...).runs[0]``.
    """
    if scheme is None:
        scheme = _scheme_of(options.get("config"))
    if not isinstance(scheme, str) or "," in scheme:
        raise ValueError("`run` takes one scheme: use `compare` for several")
    runs = compare([scheme], **options).runs
    if len(runs) != 1:
        raise ValueError("`run` takes one policy of garbage collection and one mapping: use `compare` for several")
    return runs[0]


def _scheme_of(config: Union["Config", Path, None]) -> str:
    """A device's own scheme."""
    if config is None:
        return "remap-ssd"
    if not isinstance(config, Config):
        try:
            config = Config.load(config)
        except (OSError, ValueError):
            return "remap-ssd"  # `compare` says what is wrong with the file.
    return str(config.firmware.scheme)


def _values(named: dict[str, Any]) -> str:
    """The options as a JSON object; those that are ``None`` are left out."""
    known = {name: takes_value for name, takes_value, _ in _native.compare_options()}
    for name, value in named.items():
        if not known[name] and not (value is None or isinstance(value, bool)):
            raise TypeError(f"`{name}` is True or False, and not {value!r}")
    texts = [f"{json.dumps(name)}: {as_json(name, value)}" for name, value in named.items() if value is not None]
    return "{" + ", ".join(texts) + "}"


def as_json(name: str, value: Any) -> str:
    """An option's value as JSON; raises ``ValueError`` for infinity and NaN, which JSON does not have."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False)
    except ValueError:
        raise ValueError(f"`{name}` must be a finite number, and not {value!r}") from None


def _plain(value: Any) -> Any:
    """A path, a scalar of NumPy, or a list, as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable):
        return list(value)
    return value.item() if hasattr(value, "item") else repr(value)


class _Files:
    """Temporary files for values that the command line takes as files; removed after the comparison."""

    def __init__(self) -> None:
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def of(self, name: str, value: Any) -> Any:
        """The path of the file for a value that has to be one; any other value unchanged."""
        if name == "config" and isinstance(value, Config):
            path = self._path("config.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(value.to_toml())
            return path
        if name == "trace" and is_trace(value):
            path = self._path("trace.session")
            as_trace(value).save(path)
            return path
        return value

    def without_folder(self, text: str) -> str:
        """The message without the name of the temporary folder."""
        return text if self._folder is None else text.replace(self._folder.name + os.sep, "")

    def _path(self, name: str) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="remap-ssd-")
        return os.path.join(self._folder.name, name)
