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
    for name in ("write_amplification", "latency_us", "aging", "latency_cdf"):
        assert table.column(name).to_pylist() == [run.to_dict()[name] for run in results]
    assert pyarrow.table(results).equals(table), "the PyCapsule interface gives the same table"


def test_the_series_is_a_table(results):
    run = results["remap-ssd"]
    # A backlog is of open loops.
    assert run.series.to_pylist() == [{**sample, "backlog": None} for sample in run.to_dict()["samples"]]
    assert run.arrivals is None and "arrivals" not in run


def test_every_field_is_a_column_with_its_type(results, tmp_path):
    saved = tmp_path / "aged.img"
    remap_ssd.run("remap-ssd", scale="1/256", writes=2_000, save_aged=saved)
    others = [
        remap_ssd.compare("remap-ssd", age=saved, writes=2_000, survival=False),
        remap_ssd.compare("none", scale="1/256", writes=2_000, workload="randread", no_aging=True, survival=True),
        remap_ssd.compare("remap-ssd", scale="1/256", writes=2_000, arrivals="rate:20000"),
    ]
    types = dict(remap_ssd._schema.run_fields())

    def fits(value, of, name):
        if isinstance(of, str):
            kinds = {"boolean": bool, "integer": int, "number": (int, float), "text": str}
            assert isinstance(value, kinds[of]), (name, value, of)
            return
        ((kind, inner),) = of.items()
        if kind == "optional":
            assert value is None or fits(value, inner, name) is None
        elif kind == "record":
            assert set(value) <= {field for field, _ in inner[1]}, name
            for field, one in inner[1]:
                # Only what may be missing is left out.
                assert field in value or "optional" in one, (name, field)
                if field in value:
                    fits(value[field], one, f"{name}.{field}")
        else:
            for one in value.values() if kind == "map" else value:
                fits(one, inner, name)

    for compared in [results, *others]:
        for run in compared:
            fits(run.to_dict(), {"record": ["RunSummary", list(types.items())]}, "run")
    assert others[0].runs[0].recovery.mapped > 0 and others[2].runs[0].arrivals.offered_per_s > 0

    # What one of them lacks is null, and all are one table.
    tables = [compared.to_arrow() for compared in [results, *others]]
    assert all(table.schema == tables[0].schema for table in tables)
    whole = pyarrow.concat_tables(tables)
    assert whole.num_rows == 5 and len(set(whole["sources"].to_pylist())) == 1
    assert whole["seed"].to_pylist() == [1] * 5 and whole["program_version"].to_pylist() == [remap_ssd.__version__] * 5


def test_frames_of_two_comparisons_are_concatenated(results):
    polars = pytest.importorskip("polars")
    reads = remap_ssd.compare("none", scale="1/256", writes=2_000, workload="randread", seed=2)
    assert reads.runs[0].write_amplification is None
    whole = polars.concat([polars.DataFrame(results), polars.DataFrame(reads)])
    assert whole["seed"].to_list() == [1, 1, 2] and whole["write_amplification"].null_count() == 1


def test_a_data_frame_is_flat(results):
    pytest.importorskip("pandas")
    frame = results.to_pandas().set_index("scheme")
    assert frame.loc["none", "latency_us.p99"] == results["none"].latency_us.p99


def test_pictures_name_what_tells_runs_of_one_scheme_apart():
    runs = [remap_ssd.Run({"scheme": "none", "gc_policy": "greedy", "mapping": {"kind": kind}}) for kind in ("page", "hybrid")]
    assert [plot._name(run, runs) for run in runs] == ["none\npage", "none\nhybrid"]
    assert plot._name(runs[0], runs[:1]) == "none"
