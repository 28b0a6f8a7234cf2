"""Pictures of results, by matplotlib: ``from remap_ssd import plot``.

Each function draws into ``axes`` (a matplotlib ``Axes``; by default those of a new figure) and returns it. A scheme has the same
colour and dashes in every picture. The colours are those of the command line's report: Okabe and Ito's colours, which colour-blind readers
can tell apart. Raises ``ImportError`` without matplotlib.
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


def color(scheme: str) -> str:
    """A scheme's colour, the same in every comparison."""
    return _COLORS.get(scheme, "#9aa1aa")


def bars(runs: Iterable[Run], field: Figure = "write_amplification", *, axes: Any = None, label: Optional[str] = None) -> Any:
    """A bar for each run. ``field`` names a figure, a nested one with a dot: ``"latency_us.p99"``."""
    axes = _axes(axes)
    shown = list(runs)
    values = [_value(run, field) for run in shown]
    drawn = axes.bar([_name(run, shown) for run in shown], values, color=[color(run.scheme) for run in shown], width=0.65)
    axes.bar_label(drawn, fmt="{:,.3g}", padding=2)
    axes.set_ylabel(label or field.replace("_", " "))
    axes.margins(y=0.12)
    return _plain(axes)


def series(runs: Iterable[Run], field: SampleName = "bandwidth_mib_s", *, axes: Any = None, label: Optional[str] = None) -> Any:
    """A line for each run over virtual time, in seconds. ``field`` names a figure of the time series."""
    axes = _axes(axes)
    shown = list(runs)
    for run in shown:
        samples = run.to_dict()["samples"]
        axes.plot([sample["at_s"] for sample in samples], [sample[field] for sample in samples], **_line(run, shown))
    axes.set_xlabel("virtual time, s")
    axes.set_ylabel(label or field.replace("_", " "))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return _plain(axes)


def latency(runs: Iterable[Run], *, axes: Any = None) -> Any:
    """The share of write requests that took longer, both axes logarithmic: the tail is to the right."""
    axes = _axes(axes)
    shown = list(runs)
    for run in shown:
        points = [(time, 1 - share) for time, share in run.latency_cdf if share < 1]
        axes.plot([time for time, _ in points], [longer for _, longer in points], drawstyle="steps-post", **_line(run, shown))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("latency of a write, µs")
    axes.set_ylabel("share of writes that took longer")
    axes.legend(frameon=False)
    return _plain(axes)


def _value(run: Run, field: str) -> Any:
    value: Any = run
    for name in field.split("."):
        value = value[name]
    return value


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


def _axes(axes: Any) -> Any:
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
