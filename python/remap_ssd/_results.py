"""Results as objects and as tables.

Every figure is the one that ``remap-ssd compare --json`` prints. A figure that is not finite (the life of memory that
was never written) is ``None``, like ``null`` there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, Union

from . import _html, _native, _schema

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from ._device import Device


class Record(Mapping[str, Any]):
    """Named values, read as ``record.name`` or ``record["name"]``; nested ones are records too."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        return _shown(self._fields[name])

    if not TYPE_CHECKING:  # A type checker would take every name; `_figures` and `Values` say which there are.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name == "_fields":
                raise AttributeError(name)
            try:
                return self[name]
            except KeyError:
                raise AttributeError(f"there is no `{name}` here, only {', '.join(self._fields)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fields!r})"

    def __reduce__(self) -> Any:
        return (type(self), (self._fields,))

    def to_dict(self) -> dict[str, Any]:
        """The values as plain dicts, lists, strings and numbers: a copy, in the order of the JSON."""
        return _copied(self._fields)


if TYPE_CHECKING:

    class Values(Record):
        """A record whose names are not known before it is read: the description of a device, of a comparison."""

        def __getattr__(self, name: str) -> Any: ...

else:
    Values = Record


def _shown(value: Any) -> Any:
    return Record(value) if isinstance(value, dict) else value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value


if TYPE_CHECKING:
    from ._figures import RunSummary
else:
    RunSummary = Record


class Run(RunSummary):
    """Results of one run of one scheme, after aging.

    Among its fields: ``scheme``; ``write_amplification`` (flash pages per host page); ``bandwidth_mib_s`` and ``iops``
    (over virtual time); ``host_pages``, ``flash_pages``, ``gc_pages``, ``remaps`` (pages of 4 KiB); ``demotions`` (remaps
    that became copies, by cause); ``latency_us``, ``read_latency_us``, ``remap_latency_us`` (mean, p50, p90, p99, p999,
    p9999, max in microseconds); ``latency_cdf`` (pairs of microseconds and share); ``samples`` (the time series);
    ``lifetime_years``; ``wear_out``; ``requests``. ``dir(run)`` lists all.

    >>> run = remap_ssd.run("remap-ssd", scale="1/64")
    >>> run.write_amplification, run.latency_us.p99, run["demotions"]["nvram_full"]
    """

    __slots__ = ("device",)

    #: The device after the run, with ``keep_devices=True``, at the time of the run's end; else ``None``. Not in copies by pickle.
    device: Optional["Device"]

    def __init__(self, fields: dict[str, Any], device: Optional["Device"] = None) -> None:
        super().__init__(fields)
        self.device = device

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Figures of runs of another kind are null: those of an open loop.
            if not name.startswith("_") and name not in self._fields and name in dict(_schema.run_fields()):
                return None
            return super().__getattr__(name)

    def __repr__(self) -> str:
        amplification = self.write_amplification
        said = "nothing written" if amplification is None else f"write amplification {amplification:.3f}"
        return f"<Run {self.scheme}: {said}>"

    def _repr_html_(self) -> str:
        rows = [(head, _named(self._fields, name)) for head, name in _SHOWN]
        return _html.table([self.scheme, ""], [row for row in rows if row[1] is not None])

    @property
    def series(self) -> "pyarrow.Table":
        """The time series as an Arrow table: a row for each of ``samples``, a column for each of its fields.

        Needs ``pyarrow``.
        """
        pyarrow = _schema.arrow_package("tables")
        return pyarrow.Table.from_pylist(self._fields["samples"], schema=_schema.arrow(_schema.sample_fields()))


#: Figures of tables in notebooks.
_SHOWN = [
    ("write amplification", "write_amplification"),
    ("bandwidth, MiB/s", "bandwidth_mib_s"),
    ("IOPS", "iops"),
    ("write latency, mean, µs", "latency_us.mean"),
    ("write latency, p99, µs", "latency_us.p99"),
    ("read latency, p99, µs", "read_latency_us.p99"),
    ("remaps, pages", "remaps"),
    ("moved by GC, pages", "gc_pages"),
    ("erases", "erases"),
    ("life, years", "lifetime_years"),
]


def _named(run: Any, name: str) -> Any:
    """A figure by its name with dots; ``None`` if it was not measured."""
    for part in name.split("."):
        run = run.get(part) if isinstance(run, dict) else None
    return run


class Results:
    """Results of a comparison.

    >>> results = remap_ssd.compare(["none", "remap-ssd"], scale="1/64")
    >>> results["remap-ssd"].write_amplification
    >>> results.to_pandas()[["scheme", "iops", "latency_us.p99"]]

    Iterates over its runs; ``results[0]`` and ``results["remap-ssd"]`` are runs. Tables have one row for each run: Arrow by
    ``to_arrow()`` or by the Arrow PyCapsule interface (``polars.DataFrame(results)``), pandas by ``to_pandas()``.
    """

    __slots__ = ("_value", "_sources", "runs")

    #: The runs, in the order of the schemes (for each scheme, of the policies).
    runs: list[Run]

    def __init__(
        self, value: dict[str, Any], sources: Optional[str] = None, devices: Sequence["Device"] = ()
    ) -> None:
        self._value = value
        self._sources = sources or _native.SOURCES
        kept: Sequence[Optional["Device"]] = devices or [None] * len(value["runs"])
        self.runs = [Run(run, device) for run, device in zip(value["runs"], kept)]

    @property
    def config(self) -> Values:
        """All inputs that determine the results, except the seed: the device (of the first scheme), its scale, its load."""
        return Values(self._value["config"])

    @property
    def seed(self) -> int:
        """The seed."""
        return self._value["seed"]

    def __getitem__(self, which: Union[int, str]) -> Run:
        """A run by its place, or the first one of a scheme.

        Raises ``KeyError`` if no run is of that scheme, ``IndexError`` if the index is too large.
        """
        if isinstance(which, int):
            return self.runs[which]
        for run in self.runs:
            if run.scheme == which:
                return run
        raise KeyError(f"no run of scheme {which!r}, only of {', '.join(run.scheme for run in self.runs)}")

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<Results of {', '.join(run.scheme for run in self.runs)}; seed {self.seed}>"

    def _repr_html_(self) -> str:
        shown = [(head, name) for head, name in _SHOWN if any(_named(run._fields, name) is not None for run in self.runs)]
        names = [run.scheme if run.gc_policy == "greedy" else f"{run.scheme}, {run.gc_policy}" for run in self.runs]
        rows = [[title, *(_named(run._fields, name) for _, name in shown)] for title, run in zip(names, self.runs)]
        return _html.table(["scheme", *(head for head, _ in shown)], rows)

    def __reduce__(self) -> Any:
        return (Results, (self._value, self._sources))

    def to_dict(self) -> dict[str, Any]:
        """The output of ``remap-ssd compare --json``, as plain dicts, lists, strings and numbers: a copy."""
        return _copied(self._value)

    def to_arrow(self) -> "pyarrow.Table":
        """A table with one row for each run and one column for each field, and the columns ``seed``, ``program_version`` and ``sources``.

        Every table has the same columns with the same types, so that tables can be concatenated; figures that are missing are null.
        Fields with names of their own, such as ``latency_us``, are structs, the time series is a list of structs.
        ``table.flatten()`` makes columns such as ``latency_us.p99`` of structs. ``sources`` is a digest of the simulator's sources:
        figures with different digests are of different simulators. Needs ``pyarrow``.
        """
        pyarrow = _schema.arrow_package("tables")
        schema = _schema.arrow([*_schema.run_fields(), ("program_version", "text"), ("sources", "text")])
        schema = schema.append(pyarrow.field("seed", pyarrow.uint64()))
        own = {"program_version": self._value["program_version"], "sources": self._sources, "seed": self.seed}
        return pyarrow.Table.from_pylist([{**_without_maps(run._fields), **own} for run in self.runs], schema=schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> "pandas.DataFrame":
        """A data frame with one row for each run; columns of inner names are flat, such as ``latency_us.p99``.

        Needs ``pyarrow`` and ``pandas``.
        """
        pyarrow = _schema.arrow_package("tables")
        table = self.to_arrow()
        while any(pyarrow.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        return table.to_pandas()


def _without_maps(fields: dict[str, Any]) -> dict[str, Any]:
    """Refusals by reason become a list of pairs: their names are not field names, and Arrow's structs need at least one field."""
    requests = dict(fields["requests"])
    requests["refused"] = [{"reason": reason, "requests": count} for reason, count in requests["refused"].items()]
    return {**fields, "requests": requests}
