"""Requests from arrays and tables are replayed as the same trace file is."""

import pytest

import remap_ssd

numpy = pytest.importorskip("numpy")

OPTIONS = {"schemes": ["none", "remap-ssd"], "scale": "1/64", "no_aging": True}


def columns(rows=4000, seed=3):
    random = numpy.random.default_rng(seed)
    return {
        "op": numpy.where(random.random(rows) < 0.8, "write", "read"),
        "lpn": random.integers(0, 50_000, rows),
        "fingerprint": random.integers(1, 500, rows),
        "time_ns": numpy.cumsum(random.integers(0, 100_000, rows)),
    }


def test_arrays_are_the_trace_file_that_they_are_saved_as(tmp_path, command_line):
    trace = remap_ssd.Trace(**columns())
    path = tmp_path / "trace.session"
    trace.save(path)
    ours = remap_ssd.compare(trace=trace, **OPTIONS)
    words = ["--scheme", "none,remap-ssd", "--scale", "1/64", "--no-aging", "--trace", str(path)]
    assert ours.to_dict() == command_line(*words)
    assert ours.to_dict() == remap_ssd.compare(trace=path, **OPTIONS).to_dict()
    opened = remap_ssd.compare(trace=trace, arrivals="trace", **OPTIONS).to_dict()
    assert opened == command_line(*words, "--arrivals", "trace")


def test_equal_fingerprints_are_equal_contents():
    table = columns()
    found = remap_ssd.compare(trace=remap_ssd.Trace(**table), **OPTIONS)
    writes = (table["op"] == "write").sum()
    assert found.config.feed.trace.contains.writes == writes
    distinct = len(set(table["fingerprint"][table["op"] == "write"]))
    share = found.config.feed.trace.duplicate_share
    assert share == pytest.approx(1 - distinct / writes)
    # Each content is programmed once at least; one that fifteen pages share has no room for another.
    assert distinct <= found["remap-ssd"].host_programs < found["none"].host_programs == writes

    del table["fingerprint"]
    assert remap_ssd.run("remap-ssd", trace=remap_ssd.Trace(**table), scale="1/64", no_aging=True).dedup_hits == 0


def test_text_and_numbers_name_contents_alike():
    table = columns()
    as_numbers = remap_ssd.compare(trace=remap_ssd.Trace(**table), **OPTIONS)
    table["fingerprint"] = [f"content {number}" for number in table["fingerprint"]]
    as_text = remap_ssd.compare(trace=remap_ssd.Trace(**table), **OPTIONS)
    assert as_text.to_dict()["runs"] == as_numbers.to_dict()["runs"]


def test_requests_of_several_pages_have_a_fingerprint_a_page(tmp_path):
    trace = remap_ssd.Trace(["write", "read", "write", "remap"], [0, 1, 8, 20], [3, 2, 1, 3], fingerprint=[1, 2, 3, 1], source=[0, 0, 0, 0])
    path = tmp_path / "trace"
    trace.save(path)
    one, two, three = (f"{number:032x}" for number in (1, 2, 3))
    assert path.read_text().splitlines() == [f"0 W 0 {one} {two} {three}", "0 R 1 2", f"0 W 8 {one}", "0 C 20 0 3"]


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"op": ["write"], "lpn": [1, 2]}, "`lpn` has 2 rows and `op` has 1"),
        ({"op": ["scribble"], "lpn": [1]}, "`scribble` is no request"),
        ({"op": ["write"], "lpn": [-1]}, "`lpn` has negative values"),
        ({"op": ["write"], "lpn": [0.5]}, "`lpn` must be integers"),
        ({"op": ["write"], "lpn": [1], "pages": [0]}, "row 0: a request of 0 pages is none"),
        ({"op": ["remap"], "lpn": [1]}, "row 0: a remap needs the column `source`"),
        ({"op": ["write"], "lpn": [1], "pages": [2], "fingerprint": [1]}, "`fingerprint` has 1 values and the writes have 2 pages"),
    ],
)
def test_rows_that_are_no_requests_are_named(tmp_path, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        remap_ssd.Trace(**given).save(tmp_path / "trace")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_durations_of_any_unit(tmp_path, unit):
    pyarrow = pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    op, lpn = ["write"] * 3, [0, 1, 2]
    plain = remap_ssd.Trace(op, lpn, time_ns=[0, 1_000_000_000, 3_000_000_000])
    durations = numpy.array([0, 1, 3], dtype="timedelta64[s]").astype(f"timedelta64[{unit}]")
    columns = {"op": op, "lpn": lpn, "time_ns": durations}
    table = pyarrow.table({**columns, "time_ns": pyarrow.array(durations)})
    assert table["time_ns"].type == pyarrow.duration(unit)

    frame = pandas.DataFrame(columns)
    traces = [remap_ssd.Trace(**columns), remap_ssd.Trace.from_table(table), remap_ssd.Trace.from_table(frame)]
    traces.append(remap_ssd.Trace(op, lpn, time_ns=frame["time_ns"]))
    plain.save(tmp_path / "plain")
    for trace in traces:
        trace.save(tmp_path / "trace")
        assert (tmp_path / "trace").read_text() == (tmp_path / "plain").read_text()


def test_times_of_polars_are_durations(tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"op": ["write"] * 3, "lpn": [0, 1, 2], "time_ns": [0, 1, 3]})
    for unit, factor in [("ms", 1_000_000), ("us", 1_000), ("ns", 1)]:
        remap_ssd.Trace.from_table(frame.with_columns(polars.col("time_ns").cast(polars.Duration(unit)))).save(tmp_path / "trace")
        times = [int(line.split()[0]) for line in (tmp_path / "trace").read_text().splitlines()]
        assert times == [0, factor, 3 * factor]
    columns = remap_ssd.Trace(frame["op"], frame["lpn"], fingerprint=frame["op"])
    assert len(columns) == 3, "a series is a column"


@pytest.mark.parametrize(
    "column, times, sentence",
    [
        ("time_ns", [0, 7, 3], "row 2: `time_ns` is 3, and 7 in the row before: times never decrease"),
        ("time_ns", numpy.array([0, 7, 3], dtype="timedelta64[us]"), "row 2: `time_ns` is 3000, and 7000 in the row before"),
        ("time_ns", numpy.array([0, "NaT", 3], dtype="timedelta64[us]"), "row 1: `time_ns` is missing"),
        ("time_ns", numpy.array([0, 1, 2**40], dtype="timedelta64[s]"), "row 2: `time_ns` is 1099511627776 seconds: at most 2\\^63 - 1 nanoseconds"),
        ("time_ns", numpy.array([0, 1, 2], dtype="timedelta64[M]"), "`time_ns` is timedelta64\\[M\\], which has no length in nanoseconds"),
        ("time_ns", numpy.array([0, 1, 2], dtype="datetime64[us]"), "`time_ns` must be integers or durations, and is datetime64\\[us\\]"),
        ("time_ns", [0.0, 0.5, 1.0], "`time_ns` must be integers or durations, and is float64"),
        ("lpn", numpy.array([0, 1, 2], dtype="timedelta64[us]"), "`lpn` must be integers, and is timedelta64\\[us\\]"),
    ],
)
def test_times_that_are_none_are_refused(tmp_path, column, times, sentence):
    given = {"op": ["write"] * 3, "lpn": [0, 1, 2], column: times}
    with pytest.raises(ValueError, match=sentence):
        remap_ssd.Trace(**given).save(tmp_path / "trace")


def test_a_trace_without_requests_is_refused():
    with pytest.raises(remap_ssd.Failed, match="^trace.session: replays to nothing"):
        remap_ssd.compare(trace=remap_ssd.Trace([], []), **OPTIONS)


def test_a_parquet_file_is_one_line(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "disk.parquet"
    parquet.write_table(pyarrow.table(columns()), path)
    ours = remap_ssd.compare(trace=parquet.read_table(path), **OPTIONS)
    assert ours.to_dict() == remap_ssd.compare(trace=remap_ssd.Trace(**columns()), **OPTIONS).to_dict()

    with pytest.raises(ValueError, match="the columns are op: `op` and `lpn` must be there"):
        remap_ssd.compare(trace=pyarrow.table({"op": ["write"]}), **OPTIONS)


def test_a_column_of_lists_and_a_data_frame_are_taken():
    pyarrow = pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    table = pyarrow.table({"op": ["write", "read", "write"], "lpn": [0, 0, 9], "pages": [2, 2, 1], "fingerprint": [[5, 6], None, [5]]})
    lists = remap_ssd.compare(trace=table, **OPTIONS)
    assert lists["remap-ssd"].dedup_hits == 1
    frame = pandas.DataFrame({"op": ["write", "write"], "lpn": [0, 9], "fingerprint": ["a", "a"]})
    assert remap_ssd.compare(trace=frame, **OPTIONS)["remap-ssd"].dedup_hits == 1


def test_a_trace_without_fingerprints_gets_the_contents_of_a_model(tmp_path):
    table = columns()
    own = remap_ssd.Trace(**table)
    del table["fingerprint"]
    trace = remap_ssd.Trace(**table)
    found = remap_ssd.compare(trace=trace, content="plain:0.3", **OPTIONS)
    run = found["remap-ssd"]
    assert found.config.feed.trace.content == "plain:0.3"
    assert run.dedup_hits / run.host_pages == pytest.approx(0.3, abs=0.05)
    alone = remap_ssd.run("remap-ssd", trace=trace, content="plain:0.3", scale="1/64", no_aging=True)
    assert alone.to_dict() == run.to_dict()

    grid = {"content": ["plain:0", "plain:0.3"]}
    swept = remap_ssd.sweep(grid, tmp_path, workers=1, scheme="remap-ssd", trace=trace, scale="1/64", no_aging=True)
    assert [point.dedup_hits for _, point in swept] == [0, run.dedup_hits]

    with pytest.raises(ValueError, match="--content: .* records digests of its contents"):
        remap_ssd.compare(trace=own, content="plain:0.3", **OPTIONS)
