"""Each point of a grid is run once, also if processes are killed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import remap_ssd
from remap_ssd import _engines

pyarrow = pytest.importorskip("pyarrow")

GRID = {"scheme": ["none", "remap-ssd"], "seed": range(3)}
OPTIONS = {"scale": "1/256", "writes": 20_000}


def files(folder):
    return sorted(path for path in folder.rglob("*.parquet"))


def test_a_sweep_has_the_figures_of_its_runs(tmp_path):
    swept = remap_ssd.sweep(GRID, tmp_path, workers=2, **OPTIONS)
    assert len(swept) == 6 and swept.to_do == [] and len(files(tmp_path)) == 6
    for point, run in swept:
        assert run.to_dict() == remap_ssd.run(**point).to_dict()
    assert [(point["scheme"], point["seed"]) for point, _ in swept] == [(s, n) for s in GRID["scheme"] for n in GRID["seed"]]

    table = swept.to_arrow()
    assert table["scheme"].to_pylist() == ["none"] * 3 + ["remap-ssd"] * 3
    assert table["option.seed"].to_pylist() == [0, 1, 2] * 2
    assert table["latency_us.p99"].to_pylist() == [run.latency_us.p99 for _, run in swept]


def test_a_sweep_is_resumed_and_extended(tmp_path):
    small = remap_ssd.sweep({"scheme": ["none"], "seed": [1, 2]}, tmp_path, workers=1, **OPTIONS)
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    files(tmp_path)[0].unlink()

    large = remap_ssd.sweep({"scheme": ["none"], "seed": [1, 2, 3]}, tmp_path, workers=1, **OPTIONS)
    after = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    assert set(small.points) < set(large.points) and len(after) == 3
    assert sum(after[path] == when for path, when in before.items()) == 1, "what was there was not done again"


def test_a_key_is_everything_that_decides_a_run(tmp_path):
    numpy = pytest.importorskip("numpy")

    def keys(grid, **options):
        return {point["key"] for point in remap_ssd._sweep._points(grid, [], options, tmp_path)}

    base = keys(GRID, **OPTIONS)
    assert keys({"seed": [0, 1, 2], "scheme": ["remap-ssd", "none"]}, **OPTIONS) == base
    assert keys(GRID, **{**OPTIONS, "writes": 20_001}).isdisjoint(base)
    devices = [{"flash.read_ns": [1000], "scale": "1/64"}, {"flash.read_ns": [2000], "scale": "1/64"}]
    assert len(keys(devices[0]) | keys(devices[1])) == 2
    configs = [remap_ssd.Config(scale="1/64", flash={"read_ns": ns}) for ns in (1000, 2000)]
    assert len(keys({"config": configs})) == 2

    traces = [remap_ssd.Trace(numpy.array(["write"] * 9), numpy.arange(9) * step) for step in (1, 1, 2)]
    assert len(keys({"trace": traces})) == 2, "equal traces are one point"


def test_values_of_the_device_are_options(tmp_path):
    swept = remap_ssd.sweep({"flash.program_ns": [100_000, 900_000]}, tmp_path, scale="1/64", writes=5_000, no_aging=True)
    fast, slow = (run for _, run in swept)
    assert fast.latency_us.mean < slow.latency_us.mean


def test_a_config_is_swept_with_its_own_scheme(tmp_path):
    pytest.importorskip("pyarrow")
    configs = [remap_ssd.Config(scale="1/256", scheme=scheme) for scheme in ("nlog", "opt")]
    swept = remap_ssd.sweep({"config": configs}, tmp_path, workers=1, writes=20_000)
    assert [run.scheme for _, run in swept] == ["nlog", "opt"]
    assert [path.parent.name for path in files(tmp_path)] == ["scheme=nlog", "scheme=opt"]

    named = remap_ssd.sweep({"config": configs[:1], "scheme": ["nlog", "none"]}, tmp_path, workers=1, writes=20_000)
    assert [run.scheme for _, run in named] == ["nlog", "none"]
    assert list(named.points)[0] == list(swept.points)[0], "the same device with the same scheme is one point"


# Runs whose figures differ in what is null: nothing is read, nothing is written.
MIXED = {"workload": ["randwrite", "randread"], "log_size": [None, "20MiB", 41_943_040], "dedup": [True, "off"], "seed": [7]}
MIXED_OPTIONS = {"scale": "1/256", "writes": "2k", "scheme": "remap-ssd", "no_aging": True, "firmware.gc_free": 0.125}


def mixed(into):
    """Three sweeps into one folder: of the first, no point names a size of the log."""
    swept = [remap_ssd.sweep({**MIXED, "log_size": [size]}, into, workers=1, **MIXED_OPTIONS) for size in MIXED["log_size"]]
    return remap_ssd.sweep({**MIXED, "log_size": MIXED["log_size"][1:]}, into, workers=1, **MIXED_OPTIONS), swept


def test_files_of_a_sweep_are_one_table_for_every_reader(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    import pyarrow.parquet

    mixed(tmp_path)
    schemas = {str(pyarrow.parquet.ParquetFile(path).schema).partition("\n")[2] for path in files(tmp_path)}
    assert len(files(tmp_path)) == 12 and len(schemas) == 1, "every file has every column, with one type"

    own = remap_ssd.Sweep.open(tmp_path).to_pandas().sort_values("key", ignore_index=True)
    assert sorted(own["option.log_size"].dropna().unique()) == [20 << 20, 40 << 20]
    assert set(own["option.seed"]) == {7} and set(own["option.writes"]) == {2000} and set(own["option.dedup"]) == {True, False}
    assert set(own["option.scale"]) == {1 / 256} and set(own["option.firmware.gc_free"]) == {0.125}
    assert set(own["sources"]) == {remap_ssd._native.SOURCES} and set(own["program_version"]) == {remap_ssd.__version__}
    assert own["read_latency_us.mean"].notna().sum() == own["latency_us.mean"].notna().sum() == 6

    read = pandas.read_parquet(tmp_path).sort_values("key", ignore_index=True)
    assert set(read.columns) == set(own.columns)
    read["scheme"] = read["scheme"].astype(str)
    # The text of a run has its own order of fields.
    runs = [frame.pop("run").map(json.loads) for frame in (own, read)]
    assert runs[0].equals(runs[1])
    pandas.testing.assert_frame_equal(read[own.columns], own, check_dtype=False)
    assert len(read[read["option.seed"] == 7]) == 12 and read["option.seed"].dtype == "int64"

    folder = f"{tmp_path}/**/*.parquet"
    count, latency, sizes = duckdb.sql(
        f"""select count(*), sum("read_latency_us.mean"), count("option.log_size") from '{folder}' where "option.seed" = 7"""
    ).fetchall()[0]
    assert count == 12 and latency == pytest.approx(own["read_latency_us.mean"].sum()) and sizes == 8
    frame = polars.read_parquet(folder, hive_partitioning=True)
    assert frame.height == 12 and frame["option.log_size"].null_count() == 4 and frame["wear_out.read_only"].dtype == polars.Boolean
    assert frame["read_latency_us.mean"].sum() == pytest.approx(latency)


def test_a_folder_is_opened_without_running(tmp_path):
    swept = remap_ssd.sweep(GRID, tmp_path, workers=1, **OPTIONS)
    files(tmp_path)[0].unlink()
    opened = remap_ssd.Sweep.open(tmp_path)
    assert len(opened) == 5 and opened.to_do == [] and len(files(tmp_path)) == 5
    assert set(opened.points) < set(swept.points)
    for point, run in opened:
        assert run.to_dict() == remap_ssd.run(**point).to_dict()
    seeds = opened.to_pandas(["option.seed", "scheme", "iops"])
    assert list(seeds.columns) == ["option.seed", "scheme", "iops"] and set(seeds["option.seed"]) == {0, 1, 2}
    with pytest.raises(ValueError, match="no column `option.seeds`: did you mean `option.seed`"):
        opened.to_pandas(["option.seeds"])

    with pytest.raises(FileNotFoundError):
        remap_ssd.Sweep.open(tmp_path / "nowhere")
    files(tmp_path)[0].write_bytes(b"PAR1")
    with pytest.raises(remap_ssd.Failed, match=f"{files(tmp_path)[0]}: "):
        remap_ssd.Sweep.open(tmp_path)


def test_results_of_earlier_versions_are_opened_and_said(tmp_path):
    pytest.importorskip("pandas")
    import pyarrow.parquet

    # As version 0.1 wrote them first: options as text, figures that were not null, no sources.
    (key,) = remap_ssd.sweep({"seed": [3], "log_size": ["20MiB"]}, tmp_path, workers=1, **OPTIONS).points
    row = pyarrow.parquet.ParquetFile(files(tmp_path)[0]).read(["run", "iops"]).to_pylist()[0]
    old = {"key": "0123", "option.seed": "3", "option.log_size": "20MiB", "option.scale": "1/256", "iops": row["iops"], "run": row["run"]}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([old]), files(tmp_path)[0].parent / "0123.parquet")

    opened = remap_ssd.Sweep.open(tmp_path)
    table = opened.to_pandas().set_index("key")
    assert len(opened) == 2 and table.loc["0123", "iops"] == table.loc[key, "iops"]
    assert set(table["option.seed"]) == {3} and set(table["option.log_size"]) == {20 << 20}
    assert table["sources"].isna()["0123"] and table.loc[key, "sources"] == remap_ssd._native.SOURCES
    with pytest.warns(UserWarning, match="^1 result in .* of other sources or another version"):
        remap_ssd.sweep({"seed": [3], "log_size": ["20MiB"]}, tmp_path, workers=1, **OPTIONS)


def test_a_dry_run_says_what_there_is_to_do(tmp_path):
    remap_ssd.sweep({"scheme": ["none"], "seed": [1]}, tmp_path, workers=1, **OPTIONS)
    planned = remap_ssd.sweep({"scheme": ["none"], "seed": [1, 2]}, tmp_path, dry_run=True, **OPTIONS)
    assert (len(planned), len(planned.done), len(files(tmp_path))) == (2, 1, 1)
    assert [planned.titles[key] for key in planned.to_do] == ["scheme=none seed=2"]


def test_a_point_of_other_sources_is_refused(tmp_path):
    with pytest.raises(remap_ssd.Failed, match="this worker has the sources .*, and the sweep those of 0123: install the same"):
        remap_ssd._native.sweep_point("0123", tmp_path, "key", "none", [], "{}")
    assert files(tmp_path) == []


def test_mistakes_are_said_before_anything_runs(tmp_path):
    for wrong, said in [
        ({"seed": [1], "workload": ["nothing"]}, "workload"),
        ({"sceme": ["none"]}, "did you mean `scheme`"),
        ({"threads": [1]}, "`threads` is no part of a point"),
        ({"firmware.scheme": ["x"], "scale": "1/64"}, "scheme"),
        ({"flash.read_ns": [-1], "scale": "1/64"}, "read_ns"),
        ({"scheme": ["wal-ssd"]}, "journal"),
        ({"seed": []}, "`seed` has no values"),
        ({"seed": [2**63]}, "seed = 9223372036854775808: at most 2\\^63 - 1"),
        ({"seed": [1], "scale": [None, "1/64"]}, "`scale` must be text"),
    ]:
        with pytest.raises(ValueError, match=said):
            remap_ssd.sweep(wrong, tmp_path)
    for address in ("/nowhere", "memory://nowhere/trace"):
        with pytest.raises(FileNotFoundError, match=f"{address}: No such file"):
            remap_ssd.sweep({"trace": [address]}, tmp_path)
    with pytest.raises(ValueError, match="2 things are wrong:(.|\n)*/nowhere: No such file"):
        remap_ssd.sweep({"trace": ["/nowhere", "/nowhere2"]}, tmp_path)
    with pytest.raises(TypeError, match="options there"):
        remap_ssd.sweep(tmp_path / "grid.toml", seed=1)
    with pytest.raises(TypeError, match="`into` is missing"):
        remap_ssd.sweep({"seed": [1]})
    assert files(tmp_path) == []


FILE = """
[options]
scale = "1/256"
trace = "t.session"
[grid]
seed = [1, 2]
"firmware.gc_free" = [0.1, 0.25]
scheme = ["none", "remap-ssd", "local-flash"]
[[skip]]
scheme = "local-flash"
seed = 2
"""


def test_a_file_is_the_same_sweep_in_the_shell_and_here(program, tmp_path):
    numpy = pytest.importorskip("numpy")
    lpn = numpy.arange(5_000) % 3000
    trace = remap_ssd.Trace(numpy.array(["write"] * 5_000), lpn)
    trace.save(tmp_path / "t.session")
    (tmp_path / "grid.toml").write_text(FILE)

    # One point here, the others in the shell; neither does a point of the other's again.
    folder = tmp_path / "grid.sweep"
    mine = remap_ssd.sweep({"seed": 1, "firmware.gc_free": 0.25, "scheme": "none"}, folder, scale="1/256", trace=trace, workers=1)
    assert len(files(folder)) == 1
    words = [program, "sweep", "grid.toml", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "1 of 10 points are there already" in done.stderr, done.stderr
    before = {path: path.stat().st_mtime_ns for path in files(folder)}

    swept = remap_ssd.sweep(tmp_path / "grid.toml", workers=1)
    assert {path: path.stat().st_mtime_ns for path in files(folder)} == before and len(before) == len(swept) == 10
    points = json.loads(done.stdout)["points"]
    assert [point["key"] for point in points] == list(swept.points) and set(mine.points) < set(swept.points)
    assert [run.to_dict() for _, run in swept] == [point["run"] for point in points]

    # Other tools take the folder for one table.
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder)
    assert table.num_rows == 10 and sorted(table["key"].to_pylist()) == sorted(swept.points)
    assert sorted(set(table["scheme"].to_pylist())) == ["local-flash", "none", "remap-ssd"]
    own = swept.to_arrow()
    assert own["host_pages"].to_pylist() == [5_000] * 10 and own["host_pages"].type == pyarrow.int64()


def test_a_trace_at_an_address_is_known_by_what_is_in_it(tmp_path):
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("fsspec")
    trace = remap_ssd.Trace(numpy.array(["write"] * 900), numpy.arange(900))
    trace.save(tmp_path / "t.session")
    options = {"scale": "1/256", "no_aging": True, "workers": 1}
    there = remap_ssd.sweep({"seed": [1, 2]}, tmp_path / "study", trace=f"file://{tmp_path}/t.session", **options)
    here = remap_ssd.sweep({"seed": [1, 2]}, tmp_path / "study", trace=tmp_path / "t.session", **options)
    assert set(there.points) == set(here.points) and len(files(tmp_path / "study")) == 2


def test_a_point_that_fails_is_named_and_need_not_end_the_others(tmp_path):
    # The second of three does not wear the device out.
    grid = {"workload": ["randwrite", "randread", "seqwrite"], "until_death": True, "flash.endurance": 2}
    options = {"workers": 1, "scheme": "none", "scale": "1/256", "no_aging": True}
    with pytest.raises(remap_ssd.Failed, match="^workload=randread until_death=true flash.endurance=2: .*does not wear the device out"):
        remap_ssd.sweep(grid, tmp_path / "stop", **options)
    assert len(files(tmp_path / "stop")) == 1

    swept = remap_ssd.sweep(grid, tmp_path / "keep", on_error="keep", **options)
    assert len(swept.done) == 2 and [failure["key"] for failure in swept.failures] == swept.to_do
    assert swept.failures[0]["point"].startswith("workload=randread ") and "does not wear" in swept.failures[0]["error"]
    assert "2 done, 1 failed" in repr(swept)
    with pytest.raises(ValueError, match="`on_error` is 'stop' or 'keep', and not 'go'"):
        remap_ssd.sweep(grid, tmp_path, on_error="go", **options)

    (tmp_path / "grid.toml").write_text(
        '[options]\nscheme = "none"\nscale = "1/256"\nno_aging = true\nuntil_death = true\n"flash.endurance" = 2\n'
        '[grid]\nworkload = ["randread", "seqwrite"]\n'
    )
    words = [sys.executable, "-m", "remap_ssd", "sweep", "grid.toml", "--keep-going", "--workers", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "error: workload=randread: " in done.stderr and len(files(tmp_path / "grid.sweep")) == 1


def test_a_script_without_a_guard_is_told_what_is_missing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text('import remap_ssd\nremap_ssd.sweep({"seed": [1, 2]}, "into", workers=2, scale="1/256", writes=2_000)\n')
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "memory" not in done.stderr
    assert done.stderr.rstrip().endswith('start it below `if __name__ == "__main__":`'), done.stderr
    assert files(tmp_path) == []


def test_processes_that_die_are_said_with_how(tmp_path):
    script = tmp_path / "script.py"
    # Fails only where a process of the sweep imports it.
    script.write_text(
        'import remap_ssd\nif __name__ == "__main__":\n    remap_ssd.sweep({"seed": [1]}, "into", workers=1, scale="1/256", writes=2_000)\n'
        'else:\n    raise SystemExit(5)\n'
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "seed=1: its process died: with exit code 5: see above" in done.stderr


def _ends_on_bad(task):
    if task["key"] == "bad":
        os._exit(3)


def test_a_point_that_ends_its_process_fails_alone():
    failed, done = {}, []
    tasks = [{"key": key, "memory_bytes": 1} for key in ("bad", "a", "b", "c")]
    _engines.processes(_ends_on_bad, tasks, 2, lambda: done.append(1), lambda task, error: failed.update({task["key"]: str(error)}))
    assert list(failed) == ["bad"] and "exit code 3" in failed["bad"]
    assert len(done) == 3


CLIENT = """
import sys, remap_ssd
remap_ssd.sweep({"scheme": ["none", "remap-ssd", "nlog"], "seed": range(4)}, sys.argv[1], workers=2, scale="1/64")
"""


def children(pid):
    """The worker processes of a process."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue  # It has already ended.
        if parent == pid and b"spawn_main" in words:
            found.append(int(process.name))
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")
def test_killed_workers_and_a_killed_client_lose_no_point_and_double_none(tmp_path):
    script = tmp_path / "client.py"
    # Processes that are begun anew import the main module.
    script.write_text('if __name__ == "__main__":\n' + "".join(f"    {line}\n" for line in CLIENT.strip().splitlines()))
    into = tmp_path / "study"

    def begin():
        return subprocess.Popen([sys.executable, str(script), str(into)], stderr=subprocess.PIPE, text=True)

    def wait_for(count, client):
        until = time.monotonic() + 120
        while len(files(into)) < count and client.poll() is None and time.monotonic() < until:
            time.sleep(0.02)

    # The client is killed, and its workers with it.
    client = begin()
    wait_for(2, client)
    workers = children(client.pid)
    for pid in [client.pid, *workers]:
        os.kill(pid, signal.SIGKILL)
    client.wait()
    finished = {path: path.stat().st_mtime_ns for path in files(into)}
    assert 2 <= len(finished) < 12 and workers

    # Another one goes on; one of its workers is killed.
    client = begin()
    wait_for(len(finished) + 2, client)
    victims = children(client.pid)
    if victims:
        os.kill(victims[0], signal.SIGKILL)
    _, said = client.communicate(timeout=300)
    assert client.returncode == 0, said

    after = files(into)
    assert len(after) == 12 and all(path.stat().st_mtime_ns == when for path, when in finished.items())
    swept = remap_ssd.sweep({"scheme": ["none", "remap-ssd", "nlog"], "seed": range(4)}, into, scale="1/64")
    assert swept.to_do == [] and [run.scheme for _, run in swept] == ["none"] * 4 + ["remap-ssd"] * 4 + ["nlog"] * 4


def test_a_number_that_is_none_names_its_option(tmp_path):
    with pytest.raises(ValueError, match="`duplicates` must be a finite number"):
        remap_ssd.sweep({"duplicates": [0.1, float("nan")]}, into=tmp_path)


def test_lists_of_a_grid_may_be_of_any_kind(tmp_path):
    fractions, numpy, pandas, pyarrow = (pytest.importorskip(name) for name in ("fractions", "numpy", "pandas", "pyarrow"))
    small = {"scale": "1/256", "writes": 2000, "dry_run": True}
    plain = remap_ssd.sweep({"seed": [1, 2]}, tmp_path, **small)
    for seeds in (pandas.Series([1, 2]), pandas.Index([1, 2]), numpy.array([1, 2]), pyarrow.array([1, 2]), (1, 2), range(1, 3), [numpy.int64(1), 2]):
        assert list(remap_ssd.sweep({"seed": seeds}, tmp_path, **small).points) == list(plain.points)
    for scale, same in ((fractions.Fraction(1, 256), "1/256"), (numpy.float64(1 / 256), 1 / 256), (pandas.Series([1 / 256]), 1 / 256)):
        ours, theirs = (remap_ssd.sweep({"seed": [1, 2], "scale": one}, tmp_path, writes=2000, dry_run=True) for one in (scale, same))
        assert list(ours.points) == list(theirs.points)
    assert "<caption>Sweep of 2 points" in plain._repr_html_()


def test_what_a_grid_cannot_have_is_one_sentence(tmp_path):
    pandas = pytest.importorskip("pandas")
    for grid, kind, sentence in [
        ({"seed": [-1]}, ValueError, "-1 is not a whole number from 0 to"),
        ({"seed": pandas.Series([1, None])}, ValueError, "`seed` must be a finite number, and not .1.0, nan."),
        ({"seed": [object()]}, ValueError, "`seed` must be text, a number, or a list of them"),
        (pandas.DataFrame({"seed": [1]}), TypeError, "`grid` is a dict of lists, or the path of a file, and not DataFrame"),
    ]:
        with pytest.raises(kind, match=sentence) as raised:
            remap_ssd.sweep(grid, tmp_path, dry_run=True)
        assert "\n" not in str(raised.value)


def test_a_skip_that_leaves_nothing_out_is_said(tmp_path):
    import warnings

    small = {"scale": "1/256", "writes": 2000, "dry_run": True}
    with pytest.warns(UserWarning, match=r"`skip\[0\]` leaves nothing out for seed=7: the grid has no such value"):
        assert len(remap_ssd.sweep({"seed": [1, 2]}, tmp_path, skip=[{"seed": 7}], **small)) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid = {"seed": [1, 2], "log_size": ["40MiB", "80MiB"], "dedup": [True, False]}
        assert len(remap_ssd.sweep(grid, tmp_path, skip={"seed": 1, "log_size": 40 << 20}, **small)) == 6
        assert len(remap_ssd.sweep(grid, tmp_path, skip=[{"dedup": "on"}], **small)) == 4
    with pytest.raises(ValueError, match="without names would skip everything"):
        remap_ssd.sweep({"seed": [1, 2]}, tmp_path, skip=[{}], **small)
    with pytest.raises(ValueError, match="did you mean `seed`"):
        remap_ssd.sweep({"seed": [1, 2]}, tmp_path, skip=[{"sed": 1}], **small)
