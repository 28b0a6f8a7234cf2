"""``compare`` and ``run``: options by name.

The library of the command line reads them, so options and error messages are the same.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import tempfile
from typing import Any, Callable, Optional, Sequence, TypeVar, Union

from . import _native
from ._config import Config
from ._device import Device
from ._errors import Failed, UsageError, hint, with_text
from ._progress import watching
from ._results import Results, Run
from ._trace import Trace, as_trace
from ._values import as_json
from ._workload import Workload, batches

Number = Union[int, float, str]
Path = Union[str, "os.PathLike[str]"]
Progress = Union[bool, None, Callable[[list[tuple[str, str, float]]], object]]
Function = TypeVar("Function", bound=Callable[..., Any])


def _named(function: Function) -> Function:
    """Suggests a similar name for an option that does not exist."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*values: Any, **options: Any) -> Any:
        for name in options:
            if name not in names:
                raise TypeError(f"`{name}` is no option of `compare`{hint(name, names)}")
        return function(*values, **options)

    return checked  # type: ignore[return-value]


@_named
def compare(
    schemes: Union[str, Sequence[str], None] = None,
    *,
    scale: Optional[Number] = None,
    preset: Optional[str] = None,
    config: Union["Config", Path, None] = None,
    log_size: Optional[Number] = None,
    dedup: Optional[bool] = None,
    set: Union[str, Sequence[str], dict[str, Any], None] = None,
    gc: Union[str, Sequence[str], None] = None,
    mapping: Union[str, Sequence[str], None] = None,
    workload: Union[str, Workload, None] = None,
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
    keep_devices: bool = False,
) -> Results:
    """Runs one workload or trace against several schemes, on the same device, and returns their results.

    >>> both = compare(["none", "remap-ssd"], scale="1/64", workload="zipf:0.9")
    >>> [(run.scheme, run.write_amplification) for run in both]
    >>> compare("nlog", preset="qlc-2t", log_size="40MiB", set={"firmware.gc_free": 0.2})
    >>> compare(trace="disk.csv.gz", format="alibaba", fold="compact", no_aging=True)

    Equivalent to ``remap-ssd compare``: every option of the command line is a keyword argument, with ``_`` for ``-`` (``--log-size``
    is ``log_size``), and has the same default and the same meaning; ``remap-ssd compare --help`` describes them at length. The same
    options and seed give the same figures. Numbers may be of NumPy, fractions or decimals, lists of any kind; a size may be text
    (``"40MiB"``), and a number with a suffix too (``"2M"``).

    Each device is aged first, as in the published evaluations, unless ``no_aging``.

    Schemes and their device:

    schemes
        Names, in a list or separated by commas: none, remap-ssd, flog, nlog, opt (the default), unsafe, pebble, remap-ssd-x,
        local-flash, remap-ssd-lh, wal-ssd, shadow-oob. With a ``Config`` the default is its own scheme.
    preset, config
        A ready-made device by its name (``presets()`` lists them: fast21-32g, the default, and others); or a ``Config``, or the path of a
        device file. A preset gets about 600,000 flash pages unless ``scale`` is given; a ``Config`` is used unchanged, with its
        scheme unless ``schemes`` names others; of a device file's path, as of ``--config``, the default schemes are compared.
    scale
        Size of the device as a share of the given one: ``"1/64"``, a fraction or a number above 0 and at most 1.
    log_size
        Size of NVRAM, or of the log on flash, for remaps, of the device before ``scale``: bytes, or text (``"40MiB"``).
    dedup
        Deduplication in the device: ``True`` or ``False``; by default the device's.
    gc, mapping
        Policies of garbage collection (greedy, cost-benefit, coldmap, cagc, d-choices) and granularities of the mapping (page,
        hybrid); a list compares them.
    set
        Any other value of the device: ``{"firmware.gc_free": 0.2}``, ``"firmware.gc_free=0.2"``, or a list of these texts.

    Requests:

    workload
        randwrite (the default), randread, randrw:READ%, seqwrite, seqread, seqrw:READ%, zipf:THETA, zipfread:THETA,
        zipfrw:THETA:READ%, hot:DATA%:REQUESTS%, hotread, hotrw, each with ``,pages=N``; models of programs: fileserver, oltp, ycsb,
        tpcc, sysbench, fiu-homes, fiu-mail, fiu-webvm, journal, snapshot. Or a function of the number of addressable pages that
        returns or yields commands (see ``Command``), called anew for each run: tuples such as ``("write", lpn)``. The run ends when they
        do, or after ``writes`` pages. Python is slower than the simulator: some 300,000 commands a second.
    content, duplicates
        The contents written, also by a trace without fingerprints (``"plain:0.3"``); the share of duplicates (0.3).
    job
        Path of a job file of fio, whose first job is the workload.
    writes
        Number of pages that requests read or write; by default twice the pages that the workload addresses.
    steady
        Multiples of the addressed pages after which the warm-up ends at the latest; 0: no warm-up.
    precision
        Run until a figure is this precise: ``"wa=1%"``, for example.
    trace
        Replays requests, all of them, instead of a workload: a ``Trace``, an Arrow table or data frame (``pyarrow.parquet.read_table("disk.parquet")``),
        a dict of columns, a list of commands, a record array, or the path of a trace file.
    format, skip_bad, blkparse_action
        Of a trace file: its format, guessed if not given; leave malformed records out; the action of ``blkparse`` that is a request.
    fold, flushes, repeat
        How pages beyond the device are folded (modulo, compact); replay flushes; number of replays.
    arrivals
        When requests arrive (``"trace"``, ``"trace:2"``, ``"rate:50000"``, ``"burst:32:0.01"``); by default when earlier ones end.
    queue_depth
        Requests in flight without ``arrivals``; by default the device's.

    Aging and length:

    no_aging, aging
        Measure new devices; or how they are aged (``"fill=sequential"``).
    until_death
        Run until the device is worn out.
    age, save_aged
        Path of an image to measure instead of a new device; path where the aged device is saved.
    survival
        Measure how long pages live.
    seed
        A whole number from 0 to 2^64 - 1; 1 by default.

    How it runs, and what it writes:

    threads
        Schemes that run at the same time; by default one on each core. Results do not depend on it.
    memory
        Memory that the runs may take, in bytes or as text; by default what is available. More is ``OutOfMemory``.
    report, report_x
        Path of an HTML page with tables and figures to write; the x axis of its series.
    timeline, timeline_window
        Path of a picture of what each die did (SVG), and the part of the run in it (``"1.5s+20ms"``); with
        ``timing.engine=nand``. The page of ``report`` has the picture as well; without ``timeline``, it alone has.
    table, show
        Path of the table to write (``.tex``, ``.md`` or ``.csv``), and its figures by name (``["wa", "latency_us.p99"]``).
    out
        Path of a JSON file to write.

    In Python alone:

    progress
        ``True``: a bar for each run, by ``tqdm`` if that is installed. A function: called some 20 times a second with a list
        of (job, activity, share of the run done), and of ("trace", "reading", share) while a trace is read; what it raises ends the
        runs. By default no progress is shown.
    keep_devices
        ``True``: each run has its ``device`` afterwards, to look at or to go on with. All are in memory then.

    Runs do not hold the interpreter's lock, nor does reading a trace. Ctrl-C stops them and raises ``KeyboardInterrupt``. In other threads
    than the main one, Ctrl-C and ``stop()`` end them with ``Stopped``, so that a pool of threads ends too.

    Raises ``UsageError`` (a ``ValueError``) if the options do not fit together, with the command line's sentence; ``NotFound`` (a
    ``FileNotFoundError``) if a file is missing; ``OutOfMemory`` (a ``MemoryError``) if the runs clearly do not fit; ``Failed`` if a file cannot be read or a run has no result; ``TypeError`` if there is no
    such option. All but the last are ``remap_ssd.Error``.
    """
    own = ("schemes", "progress", "keep_devices", "workload")
    named = {name: value for name, value in locals().items() if name not in ("own", *own)}
    named["scheme"] = config.firmware.scheme if schemes is None and isinstance(config, Config) else schemes
    function = _function(workload, named)
    named["workload"] = None if function else workload
    if isinstance(set, dict):
        named["set"] = [f"{name}={_text(value)}" for name, value in set.items()]

    if trace is not None and not isinstance(trace, (str, os.PathLike)) and format is None:
        named["format"] = "session"

    with _Files() as files:
        values = _values({name: files.of(name, value) for name, value in named.items()})
        with watching(progress) as tell:
            try:
                result, devices = _native.compare(values, tell, function, bool(keep_devices))
            except (UsageError, Failed) as error:
                raise with_text(error, files.without_folder(str(error))) from None
    return Results(json.loads(result), devices=[Device._of(native) for native in devices])


def _function(workload: Any, named: dict[str, Any]) -> Optional[tuple[str, Any]]:
    """The name and the batches of a workload that is a function; ``None`` for another."""
    if workload is None or isinstance(workload, str):
        return None
    if not callable(workload):
        once = " A generator can be run once; a function that makes it, for each scheme." if hasattr(workload, "__next__") else ""
        raise UsageError(f"`workload` is text, or a function that returns commands, and not {workload!r}: `trace` takes a list.{once}")
    switches = (None, False)
    for name in ("trace", "job", "content", "duplicates", "format", "fold", "skip_bad", "blkparse_action", "flushes", "repeat", "steady"):
        if named[name] not in switches if isinstance(named[name], (bool, str, type(None))) else True:
            raise UsageError(f"`{name}` cannot be used with a workload that is a function")
    return getattr(workload, "__name__", type(workload).__name__), batches(workload)


def _text(value: Any) -> str:
    """A value of the device as a device file has it."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def run(scheme: Optional[str] = None, **options: Any) -> Run:
    """Runs one workload or trace against one scheme, and returns its results.

    Without ``scheme``, that is the scheme of ``config``, a ``Config`` or a device file's path; or ``remap-ssd``.

    Takes the keyword arguments of ``compare`` (``help(remap_ssd.compare)``) and raises the same exceptions; ``UsageError`` also if ``gc``
    or ``mapping`` names several. ``run(scheme, ...)`` is ``compare([scheme], ...).runs[0]``.

    >>> run("nlog", scale="1/64", workload="oltp").latency_us.p99
    >>> run("remap-ssd", scale="1/64", keep_devices=True).device.superblocks()
    """
    if "schemes" in options:
        raise TypeError("`run` takes one scheme, as `scheme`: use `compare` for several")
    if scheme is None:
        scheme = _scheme_of(options.get("config"))
    if not isinstance(scheme, str) or "," in scheme:
        raise UsageError("`run` takes one scheme: use `compare` for several")
    runs = compare([scheme], **options).runs
    if len(runs) != 1:
        raise UsageError("`run` takes one policy of garbage collection and one mapping: use `compare` for several")
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
        if name == "trace" and value is not None and not isinstance(value, (str, os.PathLike)):
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
