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
    assert table["option.seed"].to_pylist() == ["0", "1", "2"] * 2
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


def test_mistakes_are_said_before_anything_runs(tmp_path):
    for wrong, said in [
        ({"seed": [1], "workload": ["nothing"]}, "workload"),
        ({"sceme": ["none"]}, "did you mean `scheme`"),
        ({"threads": [1]}, "`threads` is no part of a point"),
        ({"firmware.scheme": ["x"], "scale": "1/64"}, "scheme"),
        ({"flash.read_ns": [-1], "scale": "1/64"}, "read_ns"),
        ({"trace": ["/nowhere"]}, "No such file"),
        ({"trace": ["memory://nowhere/trace"]}, "nowhere/trace"),
        ({"scheme": ["wal-ssd"]}, "journal"),
        ({"seed": []}, "`seed` has no values"),
        ({"seed": [1], "scale": [None, "1/64"]}, "`scale` must be text"),
    ]:
        with pytest.raises(ValueError, match=said):
            remap_ssd.sweep(wrong, tmp_path)
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


def test_a_point_that_fails_is_said_and_the_others_are_kept(tmp_path):
    grid = {"workload": ["randwrite", "randread"], "until_death": True, "flash.endurance": 20}
    with pytest.raises(remap_ssd.Failed, match="does not wear the device out"):
        remap_ssd.sweep(grid, tmp_path, workers=1, scheme="none", scale="1/64", no_aging=True)
    assert len(files(tmp_path)) == 1


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
