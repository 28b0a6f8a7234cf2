"""Requests from arrays and tables, for ``compare`` and ``run``."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from . import _native

# Names of requests, and their letters in the trace file.
_VERBS = {
    "read": "R",
    "write": "W",
    "write_part": "P",
    "trim": "D",
    "remap": "C",
    "relocate": "M",
    "flush": "F",
}
_LETTERS = {**_VERBS, **{letter: letter for letter in _VERBS.values()}}


class Trace:
    """Requests in columns, all of the same length, one row a request.

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

    Raises ``ValueError`` for columns of different lengths and for invalid rows.
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
        self._columns = (
            verbs,
            _numbers("lpn", lpn),
            counts,
            None if source is None else _numbers("source", source),
            None if time_ns is None else _times(time_ns),
            fingerprints,
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
        known = {"op", "lpn", "pages", "fingerprint", "source", "time_ns"}
        if not {"op", "lpn"} <= names or names - known:
            raise ValueError(
                f"the columns are {', '.join(table.column_names)}: `op` and `lpn` must be there, and beside them may be "
                "`pages`, `fingerprint`, `source` and `time_ns`"
            )
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
        raw: list[Any] = [None if column is None else column.tobytes() for column in self._columns]
        _native.write_trace(os.fspath(path), *raw)

    def __len__(self) -> int:
        """Number of requests."""
        return len(self._columns[0])

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} requests>"


def is_trace(value: Any) -> bool:
    """True if the value holds requests, rather than the path of a file."""
    return isinstance(value, Trace) or hasattr(value, "__arrow_c_stream__") or hasattr(value, "columns")


def as_trace(value: Any) -> Trace:
    """Converts a value accepted by ``is_trace`` to a ``Trace``."""
    return value if isinstance(value, Trace) else Trace.from_table(value)


def _verbs(op: Any) -> Any:
    """One letter per row, and the rows that write whole pages."""
    numpy = _numpy()
    names, which = numpy.unique(_array(op).astype(str), return_inverse=True)
    unknown = [str(name) for name in names if name not in _LETTERS]
    if unknown:
        raise ValueError(f"`{unknown[0]}` is no request: use {', '.join(_VERBS)}")
    letters = numpy.array([ord(_LETTERS[str(name)]) for name in names], dtype=numpy.uint8)
    verbs = letters[which.reshape(-1)] if len(names) else numpy.empty(0, dtype=numpy.uint8)
    return verbs, verbs == ord("W")


def _numbers(name: str, column: Any) -> Any:
    numpy = _numpy()
    values = _array(column)
    if values.dtype.kind not in "iu" and len(values):
        raise ValueError(f"`{name}` must be integers, and is {values.dtype}")
    if numpy.issubdtype(values.dtype, numpy.signedinteger) and (values < 0).any():
        raise ValueError(f"`{name}` has negative values")
    return numpy.ascontiguousarray(values, dtype=numpy.uint64)


#: Nanoseconds of NumPy's units of durations; months and years have no fixed length.
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "D": 86_400 * 10**9, "W": 7 * 86_400 * 10**9}


def _times(column: Any) -> Any:
    """Nanoseconds, from integers or from durations of any unit."""
    numpy = _numpy()
    values = _array(column)
    if values.dtype.kind != "m":
        if values.dtype.kind not in "iu" and len(values):
            raise ValueError(f"`time_ns` must be integers or durations, and is {values.dtype}")
        return _numbers("time_ns", values)

    missing = numpy.isnat(values)
    if missing.any():
        raise ValueError(f"row {missing.argmax()}: `time_ns` is missing")
    unit, step = numpy.datetime_data(values.dtype)
    if unit not in _UNITS_NS:
        raise ValueError(f"`time_ns` is {values.dtype}, which has no length in nanoseconds")
    counts, factor = values.astype(numpy.int64), _UNITS_NS[unit] * step
    too_long = counts > (2**63 - 1) // factor
    if too_long.any():
        row = too_long.argmax()
        raise ValueError(f"row {row}: `time_ns` is {values[row]}: at most 2^63 - 1 nanoseconds")
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
        raise ValueError(f"a column has one dimension, and not {values.ndim}")
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
