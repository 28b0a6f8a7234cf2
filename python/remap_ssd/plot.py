"""Pictures of results, by matplotlib: ``from remap_ssd import plot``.

Each function draws into ``ax`` (a matplotlib ``Axes``; by default those of a new figure; ``axes`` is the same) and returns it. A scheme
has the same colour and dashes in every picture. The colours are those of the command line's report: the first are Okabe and Ito's, which
colour-blind readers can tell apart. Raises ``ImportError`` without matplotlib.

>>> figure, (left, right) = pyplot.subplots(1, 2, layout="constrained")
>>> plot.bars(results, "latency_us.p99", ax=left)
>>> plot.series(results, "bandwidth_mib_s", ax=right)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Optional

from ._results import Run

if TYPE_CHECKING:
    from ._figures import Figure, SampleName

#: As in the command line's pictures (`crates/sim/src/plot/plot.css` and `paint.rs`).
_COLORS = {
    "none": "#30343a",
    "remap-ssd": "#0072b2",
    "flog": "#e69f00",
    "nlog": "#cc79a7",
    "opt": "#009e73",
    "unsafe": "#9aa1aa",
    "pebble": "#7b5fc9",
    "remap-ssd-x": "#7aa60b",
    "local-flash": "#e0457b",
    "remap-ssd-lh": "#12a3b4",
    "wal-ssd": "#8a5a2b",
    "shadow-oob": "#8b1e4f",
}
_DASHES: dict[str, Any] = {"none": (0, (6, 4)), "opt": (0, (2, 3))}


#: Letters of names that fit under bars, and lines of a legend that fit into a picture.
_LETTERS, _INSIDE = 60, 5


def color(scheme: str) -> str:
    """A scheme's colour, the same in every comparison."""
    return _COLORS.get(scheme, "#9aa1aa")


#: Words for parts of names, and units at their ends.
_WORDS = {
    "bandwidth": "host bandwidth",
    "iops": "I/O operations per second",
    "latency_us": "latency of writes",
    "read_latency_us": "latency of reads",
    "remap_latency_us": "latency of remaps",
    "response_us": "response time",
    "written": "data written by the host",
    "gc_pages": "pages moved by garbage collection",
    "gc_runs": "runs of garbage collection",
    "nvram_used": "remapping metadata in use, share",
    "backlog": "requests waiting",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "p999": "99.9th percentile",
    "p9999": "99.99th percentile",
    "max": "maximum",
}
_UNITS = {
    "_mib_s": "MiB/s",
    "_pages_s": "pages/s",
    "_us": "µs",
    "_ns": "ns",
    "_ms": "ms",
    "_years": "years",
    "_bytes": "bytes",
    "_s": "s",
}

#: Points from which on a series is drawn as means over stretches, and their number: as in the command line's report.
_CROWDED, _STRETCHES = 150, 75


def words(field: str) -> str:
    """A figure's name in words, with its unit.

    >>> words("latency_us.p99")
    '99th percentile of the latency of writes, µs'
    """
    *outer, last = field.split(".")
    unit = next((shown for end, shown in _UNITS.items() for name in (*outer, last) if name.endswith(end)), None)
    parts = [_spelled(last), *(f"the {_spelled(name)}" for name in reversed(outer))]
    return " of ".join(parts) + (f", {unit}" if unit else "")


def _spelled(name: str) -> str:
    plain = next((name[: -len(end)] for end in _UNITS if name.endswith(end)), name)
    if name == "gc_pages_s":
        plain = "gc_pages"
    return _WORDS.get(name) or _WORDS.get(plain) or plain.replace("_", " ").replace("gc ", "GC ")


def bars(
    runs: Iterable[Run], field: Figure = "write_amplification", *, ax: Any = None, axes: Any = None, label: Optional[str] = None
) -> Any:
    """A bar for each run. ``field`` names a figure, a nested one with a dot: ``"latency_us.p99"``."""
    axes = _axes(ax, axes)
    shown = list(runs)
    values = [_value(run, field) for run in shown]
    heights = [float("nan") if value is None else value for value in values]
    drawn = axes.bar(range(len(shown)), heights, color=[color(run.scheme) for run in shown], width=0.65)
    axes.bar_label(drawn, labels=[_short(value) for value in values], padding=2, fontsize="small")
    names = [_name(run, shown) for run in shown]
    is_tight = sum(map(len, names)) > _LETTERS
    axes.set_xticks(range(len(shown)), names, **({"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if is_tight else {}))
    axes.set_ylabel(label or words(field))
    axes.margins(y=0.12)
    return _plain(axes)


def series(
    runs: Iterable[Run],
    field: SampleName = "bandwidth_mib_s",
    *,
    ax: Any = None,
    axes: Any = None,
    label: Optional[str] = None,
    smooth: Optional[bool] = None,
) -> Any:
    """A line for each run over virtual time, in seconds. ``field`` names a figure of the time series.

    With ``smooth``, bold lines are means over short stretches, and faint ones the samples. By default so if a run has more than 150 of
    them, as in the command line's report.
    """
    axes = _axes(ax, axes)
    shown = list(runs)
    lines = [[(sample["at_s"], sample[field]) for sample in run.to_dict()["samples"] if sample[field] is not None] for run in shown]
    smooth = any(len(points) > _CROWDED for points in lines) if smooth is None else smooth
    for run, points in zip(shown, lines):
        bold = trend(points) if smooth else points
        drawn = _line(run, shown)
        if smooth:
            axes.plot(*_columns(points), color=drawn["color"], linewidth=0.8, alpha=0.24)
        axes.plot(*_columns(bold), **drawn)
    axes.set_xlabel("virtual time, s")
    axes.set_ylabel(label or words(field))
    axes.set_ylim(bottom=0)
    return _plain(_legend(axes, shown))


def trend(points: list[tuple[float, float]], stretches: int = _STRETCHES) -> list[tuple[float, float]]:
    """Means over equal stretches of time of a series of rates: each held since the point before.

    >>> trend([(9.0, 10.0), (10.0, 110.0)], 1)      # 10 for 9 s, then 110 for 1 s
    [(5.0, 20.0)]
    """
    if not points or points[-1][0] <= 0:
        return []
    width = points[-1][0] / stretches
    sums: dict[int, list[float]] = {}
    before = 0.0
    for at, rate in points:
        held, middle, before = at - before, (at + before) / 2, at
        if held > 0:
            # A rate counts for the stretch that has the middle of its interval.
            total = sums.setdefault(min(int(middle / width), stretches - 1), [0.0, 0.0, 0.0])
            total[0] += middle * held
            total[1] += rate * held
            total[2] += held
    return [(place / held, rates / held) for _, (place, rates, held) in sorted(sums.items())]


def latency(runs: Iterable[Run], *, ax: Any = None, axes: Any = None) -> Any:
    """The share of write requests that took longer, both axes logarithmic: the tail is to the right."""
    axes = _axes(ax, axes)
    shown = list(runs)
    for run in shown:
        points = [(time, 1 - share) for time, share in run.latency_cdf if share < 1]
        axes.plot([time for time, _ in points], [longer for _, longer in points], drawstyle="steps-post", **_line(run, shown))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("latency of a write, µs")
    axes.set_ylabel("share of writes that took longer")
    return _plain(_legend(axes, shown))


def _value(run: Run, field: str) -> Any:
    value: Any = run
    for name in field.split("."):
        value = value[name]
    return value


def _short(value: Any) -> str:
    """Three digits of a number, which fit above a bar."""
    if value is None:
        return ""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def _name(run: Run, runs: list[Run]) -> str:
    """The scheme, with the policy and the mapping if its runs differ in them."""
    same = [other for other in runs if other.scheme == run.scheme]
    parts = [str(run.scheme)]
    if len({other.gc_policy for other in same}) > 1:
        parts.append(run.gc_policy)
    if len({other.mapping.kind for other in same}) > 1:
        parts.append(run.mapping.kind)
    return "\n".join(parts)


def _line(run: Run, runs: list[Run]) -> dict[str, Any]:
    name = _name(run, runs).replace("\n", ", ")
    return {"color": color(run.scheme), "linestyle": _DASHES.get(run.scheme, "-"), "label": name, "linewidth": 1.8}


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [at for at, _ in points], [value for _, value in points]


def _legend(axes: Any, shown: list[Run]) -> Any:
    """A legend inside the picture, or beside it if it is long."""
    if len(shown) <= _INSIDE:
        axes.legend(frameon=False)
    else:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    return axes


def _axes(ax: Any, axes: Any) -> Any:
    axes = axes if ax is None else ax
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from None
    return pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")[1]


def _plain(axes: Any) -> Any:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    return axes
