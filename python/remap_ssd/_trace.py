"""Requests in columns, from arrays, tables, lists and files, for ``compare``, ``run`` and ``Device.replay``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Union, overload

from . import _html, _native
from ._errors import UsageError, hint
from ._results import Values
from ._schema import arrow_package
from ._workload import LETTERS, VERBS, Command, as_command

if TYPE_CHECKING:
    import numpy
    import pandas
    import pyarrow

#: Columns, in the order of the constructor.
_COLUMNS = ("op", "lpn", "pages", "fingerprint", "source", "time_ns")

#: Names of requests by their letters.
_NAMES = {ord(letter): name for name, letter in VERBS.items()}


class Trace:
    """Requests in columns, all of the same length, one row a request.

    >>> trace = Trace(["write", "write", "read"], [0, 8, 0], [1, 2, 1], fingerprint=["a", "b", "c"])
    >>> trace[:2].stats.pages_written
    3
    >>> remap_ssd.compare(trace=trace)
    >>> Trace.load("disk.csv.gz", format="alibaba").stats

    A slice is a trace, ``trace[mask]`` with an array of booleans too; ``trace[0]`` and iterating give a ``Command`` for each row.

    op
        Text: ``read``, ``write``, ``write_part`` (a part of one page), ``trim``, ``remap`` (the source keeps its page),
        ``relocate`` (it does not) or ``flush``; or its letter in a trace file: R, W, P, D, C, M, F.
    lpn
        First logical page, of 4 KiB; of a remap, the first target. Unsigned; beyond the device pages are folded (``fold``).
    pages
        Pages of the request; 1 if left out.
    fingerprint
        Contents written: equal exactly for equal contents. Integers below 2^64, or text or bytes of any length. One
        value for each page written, in order; where every write has one page, one value a row also does. Without it all
        contents differ.
    source
        First source page of remaps; ignored in other rows.
    time_ns
        When the request arrives, for ``arrivals="trace"``; never decreasing. Integers are nanoseconds; durations (NumPy, pandas,
        Arrow, polars) have the unit of their type. 0 if left out.

    Columns are NumPy arrays, Arrow arrays, lists, or anything else that ``numpy.asarray`` takes. Needs ``numpy``.

    Raises ``UsageError`` (a ``ValueError``) for columns of different lengths and for invalid rows.
    """

    __slots__ = ("_columns",)

    def __init__(
        self,
        op: Any,
        lpn: Any,
        pages: Any = None,
        *,
        fingerprint: Any = None,
        source: Any = None,
        time_ns: Any = None,
    ) -> None:
        numpy = _numpy()
        verbs, writes = _verbs(op)
        counts = numpy.ones(len(verbs), dtype=numpy.uint64) if pages is None else _numbers("pages", pages)
        fingerprints = None if fingerprint is None else _fingerprints(fingerprint)
        if fingerprints is not None and len(fingerprints) == len(verbs) == len(counts) and (counts[writes] == 1).all():
            fingerprints = fingerprints[writes]
        self._set(
            verbs,
            _numbers("lpn", lpn),
            counts,
            None if source is None else _numbers("source", source),
            None if time_ns is None else _times(time_ns),
            fingerprints,
        )

    def _set(self, *columns: Any) -> None:
        self._columns: tuple[Any, ...] = columns
        _native.check_columns(*self._raw())

    @classmethod
    def _of(cls, *columns: Any) -> "Trace":
        trace = object.__new__(cls)
        trace._set(*columns)
        return trace

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"], format: Optional[str] = None, *, skip_bad: bool = False) -> "Trace":
        """Reads a trace file of any format that ``remap-ssd compare --trace`` reads, compressed or not; all of it, into memory.

        ``format`` is guessed if it is left out; ``skip_bad`` leaves out malformed records. Pages are those of the disk. A request
        that writes parts of pages at its ends becomes a row for each part and one for the whole pages between.

        Raises ``NotFound``, and ``Failed`` for a file that is no trace. Ctrl-C ends the reading. Needs ``numpy``.

        >>> trace = Trace.load("disk.session")
        """
        numpy = _numpy()
        raw, notes = _native.read_trace(os.fspath(path), format, bool(skip_bad))
        for note in notes:
            print(f"note: {os.fspath(path)}: {note}", file=sys.stderr)
        types = (numpy.uint8, *[numpy.uint64] * 5)
        return cls._of(*(None if column is None else numpy.frombuffer(column, of) for column, of in zip(raw, types)))

    @classmethod
    def from_rows(cls, rows: Iterable[Any]) -> "Trace":
        """Rows one by one: each a ``Command``, a tuple in its order, or a dict with its names.

        >>> Trace.from_rows([("write", 0, 2), {"op": "remap", "lpn": 8, "pages": 2, "source": 0}])
        """
        commands, fingerprints = [], []
        for at, given in enumerate(rows):
            try:
                command = as_command(given)
            except UsageError as error:
                raise UsageError(f"row {at}: {error}") from None
            commands.append(command)
            if command.op in ("write", "W"):
                own = command.fingerprint
                fingerprints += own if isinstance(own, list) else [own] * (1 if own is not None else int(command.pages))
        missing = sum(one is None for one in fingerprints)
        if 0 < missing < len(fingerprints):
            raise UsageError(f"{missing} of {len(fingerprints)} pages written have no fingerprint: give one to each, or to none")
        columns = dict(zip(Command._fields, zip(*commands))) if commands else {"op": (), "lpn": (), "pages": ()}
        sources, times = columns.get("source", ()), columns.get("time_ns", ())
        return cls(
            list(columns["op"]),
            list(columns["lpn"]),
            list(columns["pages"]),
            fingerprint=None if missing or not fingerprints else fingerprints,
            source=[one or 0 for one in sources] if any(one is not None for one in sources) else None,
            time_ns=list(times) if any(times) else None,
        )

    @classmethod
    def from_table(cls, table: Any) -> "Trace":
        """A table with columns named as above: of pyarrow, polars, or anything with the Arrow PyCapsule interface; of pandas.

        ``fingerprint`` may be a column of lists: one value for each page of a write. Needs ``pyarrow`` and ``numpy``.

        Raises ``ValueError`` if a column is missing or unknown.
        """
        pyarrow = _pyarrow()
        if not isinstance(table, pyarrow.Table):
            table = pyarrow.table(table) if hasattr(table, "__arrow_c_stream__") else pyarrow.Table.from_pandas(table)
        names = set(table.column_names)
        _check_names(table.column_names)
        columns = {}
        for name in names:
            column = table.column(name).combine_chunks()
            if pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type):
                column = column.flatten()
            # Only remaps have a source and only writes a fingerprint: nulls in other rows are allowed.
            if column.null_count and name in ("source", "fingerprint", "pages"):
                column = column.fill_null(1 if name == "pages" else _zero(column.type))
            columns[name] = column
        return cls(columns.pop("op"), columns.pop("lpn"), columns.pop("pages", None), **columns)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a trace file, which ``remap-ssd compare --trace`` reads (format ``session``).

        Raises ``Failed`` if it cannot be written.
        """
        _native.write_trace(os.fspath(path), *self._raw())

    def _raw(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """The columns as bytes, for the native half."""
        verbs, lpn, counts, source, times, own = (None if column is None else column.tobytes() for column in self._columns)
        return verbs, lpn, counts, source, times, own

    @property
    def op(self) -> Any:
        """Names of the requests: a NumPy array, like the other columns."""
        numpy = _numpy()
        names = numpy.array([_NAMES.get(letter, "") for letter in range(256)])
        return names[self._columns[0]]

    @property
    def lpn(self) -> Any:
        """First pages."""
        return self._columns[1]

    @property
    def pages(self) -> Any:
        """Numbers of pages."""
        return self._columns[2]

    @property
    def source(self) -> Any:
        """First source pages of remaps, or ``None``."""
        return self._columns[3]

    @property
    def time_ns(self) -> Any:
        """Arrivals in ns, or ``None``."""
        return self._columns[4]

    @property
    def fingerprint(self) -> Any:
        """A number for each page written, in order, equal for equal contents; or ``None``."""
        return self._columns[5]

    def _written(self) -> Any:
        """Pages of each row that may have a fingerprint."""
        verbs, _, counts, *_ = self._columns
        return _numpy().where(verbs == ord("W"), counts, 0).astype("int64")

    @overload
    def __getitem__(self, which: int) -> Command: ...

    @overload
    def __getitem__(self, which: Union[slice, "numpy.ndarray[Any, Any]"]) -> "Trace": ...

    def __getitem__(self, which: Any) -> Any:
        numpy = _numpy()
        if hasattr(which, "__index__") and getattr(which, "ndim", 0) == 0:
            return self._command(range(len(self))[which])
        verbs, lpn, counts, source, times, fingerprints = self._columns
        rows = numpy.arange(len(self))[which if isinstance(which, slice) else numpy.asarray(which)]
        if fingerprints is not None:
            written = self._written()
            ends = numpy.cumsum(written)
            begins, lengths = (ends - written)[rows], written[rows]
            # The pages of each row, one after the other.
            within = numpy.arange(lengths.sum()) - numpy.repeat(numpy.cumsum(lengths) - lengths, lengths)
            fingerprints = fingerprints[numpy.repeat(begins, lengths) + within]
        chosen = [None if column is None else column[rows] for column in (verbs, lpn, counts, source, times)]
        return Trace._of(*chosen, fingerprints)

    def _command(self, row: int) -> Command:
        verbs, lpn, counts, source, times, fingerprints = self._columns
        own: Any = None
        if fingerprints is not None and verbs[row] == ord("W"):
            begin = int(self._written()[:row].sum())
            own = fingerprints[begin : begin + int(counts[row])].tolist()
            own = own[0] if len(own) == 1 else own
        is_remap = verbs[row] in (ord("C"), ord("M"))
        return Command(
            _NAMES[int(verbs[row])],
            int(lpn[row]),
            int(counts[row]),
            own,
            int(source[row]) if source is not None and is_remap else None,
            int(times[row]) if times is not None else 0,
        )

    def __iter__(self) -> Iterator[Command]:
        written = None if self.fingerprint is None else iter(self.fingerprint.tolist())
        lists = [column.tolist() if column is not None else [None] * len(self) for column in self._columns[:5]]
        for verb, lpn, count, source, time in zip(*lists):
            own = [next(written) for _ in range(count)] if written is not None and verb == ord("W") else None
            is_remap = verb in (ord("C"), ord("M"))
            yield Command(_NAMES[verb], lpn, count, own[0] if own and len(own) == 1 else own, source if is_remap else None, time or 0)

    @property
    def stats(self) -> Values:
        """Counts of requests: ``requests``, and of each kind (``reads``, ``writes``, ...); ``pages_read``, ``pages_written`` (in part too),
        ``pages_trimmed``, ``pages_remapped``; ``distinct_pages`` that they name; ``duplicates``, the share of pages written whose
        content was written before (``None`` without fingerprints); ``duration_s`` (``None`` without times).

        >>> trace.stats.pages_written
        """
        numpy = _numpy()
        verbs, lpn, counts, source, times, fingerprints = self._columns
        kinds = {name: verbs == ord(letter) for name, letter in VERBS.items()}
        remapped = kinds["remap"] | kinds["relocate"]

        def pages(*names: str) -> int:
            return int(sum(counts[kinds[name]].sum() for name in names))

        named = [numpy.stack([lpn, lpn + counts])[:, ~kinds["flush"]]]
        if source is not None:
            named.append(numpy.stack([source, source + counts])[:, remapped])
        duplicates = None
        if fingerprints is not None and len(fingerprints):
            duplicates = 1 - len(numpy.unique(fingerprints)) / len(fingerprints)
        return Values(
            {
                "requests": len(self),
                **{_PLURALS[name]: int(rows.sum()) for name, rows in kinds.items()},
                "pages_read": pages("read"),
                "pages_written": pages("write", "write_part"),
                "pages_trimmed": pages("trim"),
                "pages_remapped": pages("remap", "relocate"),
                "distinct_pages": _union(numpy.concatenate(named, axis=1)),
                "duplicates": duplicates,
                "duration_s": None if times is None or not len(times) else int(times[-1] - times[0]) / 1e9,
            }
        )

    def to_arrow(self) -> "pyarrow.Table":
        """A table with the columns that there are, as ``from_table`` takes it: ``fingerprint`` is a column of lists, null where
        nothing is written whole. Needs ``pyarrow``.

        >>> pyarrow.parquet.write_table(trace.to_arrow(), "disk.parquet")
        """
        pyarrow = arrow_package("tables")
        columns = {"op": pyarrow.array(self.op.tolist(), pyarrow.string()), "lpn": self.lpn, "pages": self.pages}
        if self.fingerprint is not None:
            ends = _numpy().cumsum(self._written()).tolist()
            is_write = (self._columns[0] == ord("W")).tolist()
            offsets = [end if written else None for end, written in zip([0, *ends], [*is_write, True])]
            columns["fingerprint"] = pyarrow.ListArray.from_arrays(
                pyarrow.array(offsets, pyarrow.int32()), pyarrow.array(self.fingerprint)
            )
        others = {name: column for name, column in (("source", self.source), ("time_ns", self.time_ns)) if column is not None}
        return pyarrow.table({**columns, **others})

    def to_pandas(self) -> "pandas.DataFrame":
        """The same as a ``pandas.DataFrame``. Needs ``pyarrow`` and ``pandas``."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        """Number of requests."""
        return len(self._columns[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self._raw() == other._raw()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return (_again, self._columns)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} requests>"

    def _repr_html_(self) -> str:
        stats = self.stats.to_dict()
        return _html.table(["Trace", ""], [(name.replace("_", " "), value) for name, value in stats.items() if value != 0])


_PLURALS = {
    "read": "reads",
    "write": "writes",
    "write_part": "part_writes",
    "trim": "trims",
    "remap": "remaps",
    "relocate": "relocates",
    "flush": "flushes",
}


def _again(*columns: Any) -> Trace:
    return Trace._of(*columns)


def _union(extents: Any) -> int:
    """Length of the union of extents: a row of begins, and one of ends."""
    numpy = _numpy()
    begins, ends = extents[:, numpy.argsort(extents[0], kind="stable")].astype(numpy.int64)
    if not len(begins):
        return 0
    reached = numpy.maximum.accumulate(numpy.concatenate([begins[:1], ends[:-1]]))
    return int(numpy.maximum(ends - numpy.maximum(begins, reached), 0).sum())


def is_trace(value: Any) -> bool:
    """True if the value holds requests, rather than the path of a file."""
    if isinstance(value, Trace) or hasattr(value, "columns") or getattr(getattr(value, "dtype", None), "names", None):
        return True
    # A series has one too, and is a column.
    if hasattr(value, "__arrow_c_stream__") and not hasattr(value, "dtype") and not hasattr(value, "type"):
        return True
    if isinstance(value, Mapping):
        return True
    return isinstance(value, (list, tuple)) and not isinstance(value, Command) and len(value) > 0 and all(map(_is_row, value))


def _is_row(value: Any) -> bool:
    is_dict = isinstance(value, Mapping) and isinstance(value.get("op"), str)
    return is_dict or (isinstance(value, (tuple, list)) and len(value) > 0 and isinstance(value[0], str))


def as_trace(value: Any) -> Trace:
    """Converts a value accepted by ``is_trace`` to a ``Trace``."""
    if isinstance(value, Trace):
        return value
    names = getattr(getattr(value, "dtype", None), "names", None)
    if names is not None and not hasattr(value, "columns"):
        value = {name: value[name] for name in names}
    if isinstance(value, Mapping):
        _check_names(value)
        columns = {str(name): column for name, column in value.items() if column is not None}
        return Trace(columns.pop("op"), columns.pop("lpn"), columns.pop("pages", None), **columns)
    if isinstance(value, (list, tuple)):
        return Trace.from_rows(value)
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "columns"):
        return Trace.from_table(value)
    raise TypeError(f"{value!r} is no trace: give a `Trace`, a table, a dict of columns, a list of `Command`, or a record array")


def _check_names(names: Iterable[str]) -> None:
    given = [str(name) for name in names]
    unknown = [name for name in given if name not in _COLUMNS]
    if unknown or not {"op", "lpn"} <= {*given}:
        raise UsageError(
            f"the columns are {', '.join(given)}: `op` and `lpn` must be there, and beside them may be "
            f"`pages`, `fingerprint`, `source` and `time_ns`{hint(unknown[0], list(_COLUMNS)) if unknown else ''}"
        )


def _verbs(op: Any) -> Any:
    """One letter per row, and the rows that write whole pages."""
    numpy = _numpy()
    names, which = numpy.unique(_array(op).astype(str), return_inverse=True)
    unknown = [str(name) for name in names if name not in LETTERS]
    if unknown:
        raise UsageError(f"`{unknown[0]}` is no request: use {', '.join(VERBS)}{hint(unknown[0], list(VERBS))}")
    letters = numpy.array([ord(LETTERS[str(name)]) for name in names], dtype=numpy.uint8)
    verbs = letters[which.reshape(-1)] if len(names) else numpy.empty(0, dtype=numpy.uint8)
    return verbs, verbs == ord("W")


def _numbers(name: str, column: Any) -> Any:
    numpy = _numpy()
    values = _array(column)
    if values.dtype.kind not in "iu" and len(values):
        raise UsageError(f"`{name}` must be integers, and is {values.dtype}")
    if numpy.issubdtype(values.dtype, numpy.signedinteger) and (values < 0).any():
        raise UsageError(f"`{name}` has negative values")
    return numpy.ascontiguousarray(values, dtype=numpy.uint64)


#: Nanoseconds of NumPy's units of durations; months and years have no fixed length.
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "D": 86_400 * 10**9, "W": 7 * 86_400 * 10**9}


def _times(column: Any) -> Any:
    """Nanoseconds, from integers or from durations of any unit."""
    numpy = _numpy()
    values = _array(column)
    if values.dtype.kind != "m":
        if values.dtype.kind not in "iu" and len(values):
            raise UsageError(f"`time_ns` must be integers or durations, and is {values.dtype}")
        return _numbers("time_ns", values)

    missing = numpy.isnat(values)
    if missing.any():
        raise UsageError(f"row {missing.argmax()}: `time_ns` is missing")
    unit, step = numpy.datetime_data(values.dtype)
    if unit not in _UNITS_NS:
        raise UsageError(f"`time_ns` is {values.dtype}, which has no length in nanoseconds")
    counts, factor = values.astype(numpy.int64), _UNITS_NS[unit] * step
    too_long = counts > (2**63 - 1) // factor
    if too_long.any():
        row = too_long.argmax()
        raise UsageError(f"row {row}: `time_ns` is {values[row]}: at most 2^63 - 1 nanoseconds")
    # Not multiplied where negative: that could overflow, and is refused anyway.
    return _numbers("time_ns", numpy.where(counts < 0, -1, counts * factor))


def _fingerprints(column: Any) -> Any:
    """Integers unchanged; other values numbered, with equal numbers for equal values."""
    numpy = _numpy()
    values = _array(column)
    if values.dtype.kind in "iu":
        return _numbers("fingerprint", values)
    return numpy.unique(values, return_inverse=True)[1].reshape(-1).astype(numpy.uint64)


def _array(column: Any) -> Any:
    # Arrow's count is a number; a polars series has a method of that name, and is an array as it is.
    is_arrow = isinstance(getattr(column, "null_count", None), int)
    values = column.to_numpy(zero_copy_only=False) if is_arrow else _numpy().asarray(column)
    if values.ndim != 1:
        raise UsageError(f"a column has one dimension, and not {values.ndim}")
    return values


def _zero(type: Any) -> Any:
    pyarrow = _pyarrow()
    if pyarrow.types.is_integer(type):
        return 0
    return b"" if pyarrow.types.is_binary(type) or pyarrow.types.is_large_binary(type) else ""


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("traces from arrays need numpy: pip install numpy") from None
    return numpy


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError("traces from tables need pyarrow: pip install pyarrow") from None
    return pyarrow
