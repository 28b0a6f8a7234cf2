"""Pictures: colours, words, and the means of a noisy series."""

import pytest

import remap_ssd

pytest.importorskip("matplotlib").use("Agg")
from matplotlib import colors, pyplot  # noqa: E402

from remap_ssd import plot  # noqa: E402


@pytest.fixture(scope="module")
def results():
    return remap_ssd.compare(["none", "remap-ssd", "nlog"], scale="1/64")


def schemes():
    with pytest.raises(ValueError) as raised:
        remap_ssd.compare(schemes="?")
    return str(raised.value).split("there are ")[1].split(", ")


def test_every_scheme_has_a_colour_that_stands_apart():
    assert len(schemes()) == 12
    lab = [_lab(plot.color(scheme)) for scheme in schemes()]
    for at, one in enumerate(lab):
        for other in lab[:at]:
            # The least difference that is seen at a glance is about 10.
            assert sum((a - b) ** 2 for a, b in zip(one, other)) ** 0.5 > 15


def _lab(color):
    """CIE L*a*b*, in which distances are differences seen."""
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colors.to_rgb(color)]
    matrix = [(0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)]
    x, y, z = (sum(a * b for a, b in zip(row, linear)) / white for row, white in zip(matrix, (0.9505, 1.0, 1.089)))
    fx, fy, fz = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def test_names_become_words():
    assert plot.words("latency_us.p99") == "99th percentile of the latency of writes, µs"
    assert plot.words("bandwidth_mib_s") == "host bandwidth, MiB/s"
    assert plot.words("write_amplification") == "write amplification"
    assert plot.words("gc_pages_s") == "pages moved by garbage collection, pages/s"
    assert plot.words("lifetime_years") == "lifetime, years"


def test_a_crowded_series_is_drawn_as_means_over_faint_samples(results):
    figure, (left, right) = pyplot.subplots(1, 2)
    assert plot.series(results, ax=left) is left and plot.bars(results, "latency_us.p99", axes=right) is right
    crowded = any(len(run.samples) > 150 for run in results)
    assert crowded and len(left.lines) == 6 and left.lines[0].get_alpha() < 0.5
    assert len(left.lines[1].get_xdata()) <= 75 and left.get_ylabel() == "host bandwidth, MiB/s"
    assert len(plot.series(results, smooth=False).lines) == 3
    assert right.get_ylabel().startswith("99th percentile of") and [text.get_text() for text in right.get_xticklabels()] == ["none", "remap-ssd", "nlog"]
    assert len(plot.latency(results, ax=left.figure.add_subplot()).lines) == 3
    pyplot.close("all")


def test_a_mean_weighs_a_rate_by_how_long_it_held():
    assert plot.trend([(9.0, 10.0), (10.0, 110.0)], 1) == [(5.0, 20.0)]
    assert plot.trend([], 1) == [] and len(plot.trend([(float(at), 1.0) for at in range(1, 1000)])) == 75
