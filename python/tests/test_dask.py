"""A sweep on a Dask cluster of four workers, some of which are killed: no point is lost, none is done twice over."""

import os
import random
import signal
import threading

import pytest

import remap_ssd

pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed")

ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
GRID = {"scheme": ["none", "remap-ssd", "nlog"], "seed": range(4)}


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster


def test_an_address_and_a_client_are_taken(cluster, tmp_path):
    swept = remap_ssd.sweep({"seed": [1, 2]}, tmp_path, scheduler=cluster.scheduler_address, scale="1/256", writes=20_000)
    assert swept.to_do == []
    for point, run in swept:
        assert run.to_dict() == remap_ssd.run(**point).to_dict()
    with distributed.Client(cluster) as client:
        remap_ssd.sweep({"seed": [1, 2, 3]}, tmp_path, scheduler=client, scale="1/256", writes=20_000)
        with pytest.raises(remap_ssd.Failed, match="does not wear the device out"):
            remap_ssd.sweep({"workload": "randread", "until_death": True, "endurance": 2}, tmp_path, scheduler=client, scale="1/64", no_aging=True)
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


@pytest.mark.parametrize("round", range(ROUNDS))
def test_killed_workers_lose_no_point_and_double_none(cluster, tmp_path, round):
    choose, ended, killed = random.Random(round), threading.Event(), []

    def kill():
        while len(killed) < 4 and not ended.wait(choose.uniform(0.2, 0.8)):
            # Nannies begin other processes in their places.
            pids = [nanny.pid for nanny in cluster.workers.values() if nanny.pid]
            if pids:
                killed.append(choose.choice(pids))
                os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        swept = remap_ssd.sweep(GRID, tmp_path, scheduler=cluster.scheduler_address, scale="1/64")
    finally:
        ended.set()
        killer.join()

    assert killed and swept.to_do == []
    assert len(list(tmp_path.rglob("*.parquet"))) == len(swept) == 12
    keys = swept.to_arrow()["key"].to_pylist()
    assert sorted(set(keys)) == sorted(swept.points)
