"""Requests from arrays and tables are replayed as the same trace file is."""

import gzip
import pickle
import subprocess
import sys

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


ONE = {"scale": "1/64", "no_aging": True}

ROWS = [
    ("write", 0, 2, ["a", "b"]),
    remap_ssd.Command("read", 8, 3),
    {"op": "write", "lpn": 9, "fingerprint": "a"},
    {"op": "remap", "lpn": 100, "pages": 2, "source": 0},
    ("write", 4, 3, ["b", "c", "d"]),
    ("trim", 9),
    ("flush",),
]


def test_rows_dicts_and_record_arrays_are_traces(tmp_path):
    trace = remap_ssd.Trace.from_rows(ROWS)
    assert trace.op.tolist() == ["write", "read", "write", "remap", "write", "trim", "flush"]
    assert trace.lpn.tolist()[:4] == [0, 8, 9, 100] and trace.source.tolist()[3] == 0 and trace.time_ns is None
    plain = remap_ssd.run(trace=trace, **ONE).to_dict()
    assert remap_ssd.run(trace=ROWS, **ONE).to_dict() == plain
    assert remap_ssd.run(trace=list(trace), **ONE).to_dict() == plain
    assert remap_ssd.run(trace={"op": trace.op, "lpn": trace.lpn, "pages": trace.pages, "fingerprint": trace.fingerprint, "source": trace.source}, **ONE).to_dict() == plain

    records = numpy.array([("write", 0, 2), ("read", 8, 3)], dtype=[("op", "U8"), ("lpn", "u8"), ("pages", "i4")])
    expected = remap_ssd.run(trace=remap_ssd.Trace(["write", "read"], [0, 8], [2, 3]), **ONE).to_dict()
    for other in (records, records.view(numpy.recarray), {"op": ["write", "read"], "lpn": [0, 8], "pages": [2, 3]}):
        assert remap_ssd.run(trace=other, **ONE).to_dict() == expected

    swept = remap_ssd.sweep({"seed": [1]}, tmp_path, scheme="remap-ssd", trace=ROWS, workers=1, **ONE)
    assert [run.to_dict() for _, run in swept] == [plain]


@pytest.mark.parametrize(
    "trace, kind, sentence",
    [
        ({"op": ["read"], "lnp": [0]}, ValueError, "the columns are op, lnp: .*did you mean `lpn`?"),
        ({"op": ["reed"], "lpn": [0]}, ValueError, "`reed` is no request: use read, .*did you mean `read`?"),
        ([("read", 0), 5], TypeError, "is no trace|is no command"),
        ([("write", 0, 1, "a"), ("write", 1)], ValueError, "1 of 2 pages written have no fingerprint"),
        ([{"op": "read", "lnp": 0}], ValueError, "row 0: `lnp` is no part of a command"),
        (7, TypeError, "7 is no trace: give a `Trace`, a table, a dict of columns"),
    ],
)
def test_what_is_no_trace_is_said(trace, kind, sentence):
    with pytest.raises(kind if kind is ValueError else (TypeError, ValueError), match=sentence):
        remap_ssd.run(trace=trace, **ONE)


def test_a_slice_keeps_the_contents_of_its_rows():
    trace = remap_ssd.Trace.from_rows(ROWS)
    assert trace[0] == ("write", 0, 2, trace.fingerprint[:2].tolist(), None, 0) and trace[-1].op == "flush"
    assert trace[3] == ("remap", 100, 2, None, 0, 0)
    with pytest.raises(IndexError):
        trace[7]
    for part in (trace[2:5], trace[numpy.array([2, 3, 4])], trace[(trace.lpn > 3) & (trace.lpn != 8)][:3]):
        assert isinstance(part, remap_ssd.Trace) and len(part) == 3
    part = trace[4:]
    assert part.fingerprint.tolist() == trace.fingerprint[3:].tolist() and list(part) == list(trace)[4:]
    assert trace[:] == trace and trace[::2] != trace and pickle.loads(pickle.dumps(trace)) == trace
    backwards = trace[::-1]
    assert backwards.op.tolist() == trace.op.tolist()[::-1] and backwards[-1] == trace[0]
    assert trace[trace.op == "write"].fingerprint.tolist() == trace.fingerprint.tolist()


def test_statistics_count_requests_pages_and_contents():
    stats = remap_ssd.Trace.from_rows(ROWS).stats
    assert (stats.requests, stats.writes, stats.reads, stats.remaps, stats.trims, stats.flushes) == (7, 3, 1, 1, 1, 1)
    assert (stats.pages_written, stats.pages_read, stats.pages_remapped, stats.pages_trimmed) == (6, 3, 2, 1)
    # 0-1, 4-6, 8-10, 100-101.
    assert stats.distinct_pages == 10 and stats.duplicates == pytest.approx(2 / 6) and stats.duration_s is None
    assert "<td" in remap_ssd.Trace.from_rows(ROWS)._repr_html_()
    timed = remap_ssd.Trace(["read", "read"], [0, 0], time_ns=[5, 1_000_000_005])
    assert timed.stats.duration_s == 1.0 and timed.stats.distinct_pages == 1 and timed.stats.duplicates is None
    assert remap_ssd.Trace([], []).stats.distinct_pages == 0


def test_a_trace_is_an_arrow_table_and_back():
    pyarrow = pytest.importorskip("pyarrow")
    trace = remap_ssd.Trace.from_rows(ROWS)
    table = trace.to_arrow()
    assert table.column_names == ["op", "lpn", "pages", "fingerprint", "source"]
    assert table["fingerprint"].to_pylist()[1] is None and len(table["fingerprint"].to_pylist()[4]) == 3
    assert remap_ssd.Trace.from_table(table) == trace and pyarrow.table(trace) == table
    assert trace.to_pandas()["op"].tolist() == trace.op.tolist()
    assert remap_ssd.Trace(["read"], [0]).to_arrow().column_names == ["op", "lpn", "pages"]


def test_without_pyarrow_a_table_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="tables need pyarrow: pip install pyarrow"):
        remap_ssd.Trace(["read"], [0]).to_arrow()


def test_a_trace_file_is_loaded(tmp_path):
    trace = remap_ssd.Trace.from_rows(ROWS)
    trace.save(tmp_path / "trace")
    loaded = remap_ssd.Trace.load(tmp_path / "trace")
    assert loaded.op.tolist() == trace.op.tolist() and loaded.lpn.tolist() == [*trace.lpn.tolist()[:-1], 0]
    assert loaded.stats.duplicates == trace.stats.duplicates and loaded.source.tolist()[3] == 0
    assert remap_ssd.run(trace=loaded, **ONE).to_dict() == remap_ssd.run(trace=tmp_path / "trace", format="session", **ONE).to_dict()

    text = "0,W,8192,8192,1000\n0,R,8192,4096,3000\nnonsense\n0,W,512,512,4000\n"
    (tmp_path / "disk.csv").write_text(text)
    with pytest.raises(remap_ssd.Failed, match="disk.csv:3: "):
        remap_ssd.Trace.load(tmp_path / "disk.csv", "alibaba")
    (tmp_path / "disk.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name, format in (("disk.csv", "alibaba"), ("disk.csv.gz", None)):
        disk = remap_ssd.Trace.load(tmp_path / name, format, skip_bad=True)
        assert list(disk) == [("write", 2, 2, None, None, 0), ("read", 2, 1, None, None, 2_000_000), ("write_part", 0, 1, None, None, 3_000_000)]
        own = {"scale": "1/64", "no_aging": True, "schemes": ["none"]}
        assert remap_ssd.compare(trace=disk, **own)[0].to_dict() == remap_ssd.compare(trace=tmp_path / name, format="alibaba", skip_bad=True, **own)[0].to_dict() | {
            "requests": remap_ssd.compare(trace=disk, **own)[0].requests.to_dict()
        }
    with pytest.raises(ValueError, match="unknown trace format `alibab`: .*did you mean `alibaba`?"):
        remap_ssd.Trace.load(tmp_path / "disk.csv", "alibab")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_the_loading_of_a_trace(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(f"0,W,{4096 * (number % 1000)},4096,{number}\n" for number in range(3_000_000)))
    code = f"""
import os, remap_ssd, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
remap_ssd.Trace.load({str(trace)!r}, "alibaba")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "KeyboardInterrupt" in done.stderr, done.stderr
