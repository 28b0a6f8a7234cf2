"""A sweep on a Dask scheduler with four workers, some of which are killed, as are clients: no point is lost, none is done twice.

``KILL_ROUNDS`` rounds of kills, each with other moments.
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import remap_ssd

pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed")

ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
GRID = {"scheme": ["none", "remap-ssd", "nlog"], "seed": range(4)}
FILE = '[options]\nscale = "1/128"\n[grid]\nscheme = ["none", "remap-ssd", "nlog"]\nseed = [0, 1, 2, 3]\n'
WORKERS = 4


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler, and its workers' folder: separate programs, as on a cluster, in separate folders."""
    folder = tmp_path_factory.mktemp("cluster")
    beside = pathlib.Path(sys.executable).parent / "dask"
    log = open(folder / "log", "wb")
    own = {"cwd": folder, "stdout": log, "stderr": log, "start_new_session": True}
    begun = [subprocess.Popen([beside, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"], **own)]
    try:
        address = wait_for(lambda: re.search(r"tcp://127\.0\.0\.1:\d+", (folder / "log").read_text()))[0]
        words = [beside, "worker", address, "--nworkers", str(WORKERS), "--nthreads", "1", "--memory-limit", "2GiB", "--no-dashboard"]
        begun.append(subprocess.Popen([*words, "--local-directory", str(folder)], **own))
        yield address
    finally:
        for process in reversed(begun):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def client(scheduler):
    with distributed.Client(scheduler) as client:
        client.wait_for_workers(WORKERS, timeout=120)
        yield client


def wait_for(what, seconds=120):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it never comes"
        time.sleep(0.05)
    return found


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}


def test_an_address_and_a_client_are_taken(scheduler, client, tmp_path):
    swept = remap_ssd.sweep({"seed": [1, 2]}, tmp_path, scheduler=scheduler, scale="1/256", writes=20_000)
    assert swept.to_do == []
    for point, run in swept:
        assert run.to_dict() == remap_ssd.run(**point).to_dict()
    remap_ssd.sweep({"seed": [1, 2, 3]}, tmp_path, scheduler=client, scale="1/256", writes=20_000)
    with pytest.raises(remap_ssd.Failed, match="does not wear the device out"):
        remap_ssd.sweep({"workload": "randread", "until_death": True, "flash.endurance": 2}, tmp_path, scheduler=client, scale="1/64", no_aging=True)
    assert len(files(tmp_path)) == 3


def test_workers_of_other_sources_are_refused(client, tmp_path):
    options = {"scheduler": client, "scale": "1/256", "writes": 2_000}

    def pretend(sources):
        import remap_ssd

        remap_ssd._native.SOURCES = sources

    address = sorted(client.scheduler_info()["workers"])[0]
    try:
        client.run(pretend, sources="0123", workers=[address])
        with pytest.raises(remap_ssd.Failed, match=f"1 of {WORKERS} workers have the package of other sources \\({address}: 0123, here: "):
            remap_ssd.sweep({"seed": [1]}, tmp_path, **options)
        assert files(tmp_path) == {}
    finally:
        client.run(pretend, sources=remap_ssd._native.SOURCES, workers=[address])


def test_a_failing_point_of_a_cluster_is_named_and_need_not_end_the_others(client, tmp_path):
    grid = {"workload": ["randread", "randwrite"]}
    options = {"until_death": True, "flash.endurance": 2, "scheduler": client, "scale": "1/64", "no_aging": True}
    with pytest.raises(remap_ssd.Failed, match="^workload=randread: .*does not wear the device out"):
        remap_ssd.sweep({"workload": ["randread"]}, tmp_path, **options)
    swept = remap_ssd.sweep(grid, tmp_path, on_error="keep", **options)
    assert [failure["point"] for failure in swept.failures] == ["workload=randread"] and len(files(tmp_path)) == 1


def test_memory_is_a_resource_of_the_workers(client, tmp_path):
    # A device whose tables alone are larger than a worker.
    with pytest.raises(remap_ssd.Failed, match="the largest worker has 2048 MiB"):
        remap_ssd.sweep({"seed": [1]}, tmp_path, scheduler=client, scale=1, **{"geometry.superblocks": 40_000})
    declared = client.run(lambda dask_worker: dask_worker.state.total_resources["memory"])
    assert list(declared.values()) == [2 << 30] * WORKERS


def test_a_trace_that_workers_do_not_see_is_sent_to_each_once(client, tmp_path, monkeypatch):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "t.session"
    remap_ssd.Trace(numpy.array(["write"] * 900), numpy.arange(900)).save(path)
    digest = remap_ssd._native.digest_of_file(path)
    sent = lambda: client.run(lambda dask_worker: os.path.exists(os.path.join(dask_worker.local_directory, "remap-ssd", digest)))
    options = {"scale": "1/256", "no_aging": True, "scheduler": client, "trace": path}

    # All run on this machine: they see it, unless they are made to look elsewhere.
    remap_ssd.sweep({"seed": [1]}, tmp_path / "study", **options)
    assert list(sent().values()) == [False] * WORKERS
    monkeypatch.setattr(remap_ssd._places, "sees", lambda path, digest: False)
    swept = remap_ssd.sweep({"seed": range(6)}, tmp_path / "study", **options)
    assert swept.to_do == [] and list(sent().values()) == [True] * WORKERS


def test_a_trace_at_an_address_is_read_by_the_workers(client, tmp_path):
    numpy = pytest.importorskip("numpy")
    trace = remap_ssd.Trace(numpy.array(["write"] * 700), numpy.arange(700))
    trace.save(tmp_path / "t.session")
    swept = remap_ssd.sweep({"seed": range(4)}, tmp_path / "study", scheduler=client, trace=f"file://{tmp_path}/t.session", scale="1/256", no_aging=True)
    assert swept.to_do == [] and not (tmp_path / "study" / "_traces").exists()


@pytest.mark.parametrize("round", range(ROUNDS))
def test_killed_workers_and_killed_clients_lose_no_point_and_double_none(program, scheduler, client, tmp_path, round):
    choose = random.Random(round)
    (tmp_path / "grid.toml").write_text(FILE)
    folder = tmp_path / "grid.sweep"
    environment = {**os.environ, "PYTHON": sys.executable}
    ended, killed, finished = threading.Event(), [], {}

    def kill_workers():
        while len(killed) < 4 and not ended.wait(choose.uniform(0.2, 1.5)):
            found = [pid for pid in client.run(os.getpid, on_error="ignore").values() if isinstance(pid, int)]
            if found:
                killed.append(choose.choice(found))
                os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill_workers)
    killer.start()
    try:
        # From the shell. The program and its Python are killed after some points, twice; the third goes on to the end.
        for points in [choose.randint(1, 4), choose.randint(5, 8), None]:
            words = [program, "sweep", "grid.toml", "--scheduler", scheduler, "--json"]
            with open(tmp_path / "said", "w") as said:
                sweeping = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=said, stderr=said, start_new_session=True)
            if points is None:
                assert sweeping.wait(300) == 0, (tmp_path / "said").read_text()
            else:
                wait_for(lambda: len(files(folder)) >= points or sweeping.poll() is not None, 300)
                if sweeping.poll() is None:
                    os.killpg(sweeping.pid, signal.SIGKILL)
                    sweeping.wait()
                else:
                    assert sweeping.returncode == 0, (tmp_path / "said").read_text()
            # A finished point is never changed.
            now = files(folder)
            assert all(now.get(path) == when for path, when in finished.items())
            finished = now
    finally:
        ended.set()
        killer.join()

    assert killed
    swept = remap_ssd.sweep(tmp_path / "grid.toml", workers=1)
    assert swept.to_do == [] and len(finished) == len(swept) == 12
    assert swept.to_arrow()["key"].to_pylist() == list(swept.points)
    assert files(folder) == finished
