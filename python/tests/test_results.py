"""Results as tables hold the same figures."""

import pytest

import remap_ssd
from remap_ssd import plot

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def results():
    return remap_ssd.compare(["none", "remap-ssd"], scale="1/256", writes=20_000)


def test_a_table_has_a_row_for_each_run(results):
    table = results.to_arrow()
    assert table.column("scheme").to_pylist() == ["none", "remap-ssd"]
    for name in ("write_amplification", "latency_us", "samples", "latency_cdf"):
        assert table.column(name).to_pylist() == [run.to_dict()[name] for run in results]
    assert pyarrow.table(results).equals(table), "the PyCapsule interface gives the same table"


def test_the_series_is_a_table(results):
    run = results["remap-ssd"]
    assert run.series.to_pylist() == run.to_dict()["samples"]


def test_a_data_frame_is_flat(results):
    pytest.importorskip("pandas")
    frame = results.to_pandas().set_index("scheme")
    assert frame.loc["none", "latency_us.p99"] == results["none"].latency_us.p99


def test_pictures_name_what_tells_runs_of_one_scheme_apart():
    runs = [remap_ssd.Run({"scheme": "none", "gc_policy": "greedy", "mapping": {"kind": kind}}) for kind in ("page", "hybrid")]
    assert [plot._name(run, runs) for run in runs] == ["none\npage", "none\nhybrid"]
    assert plot._name(runs[0], runs[:1]) == "none"
