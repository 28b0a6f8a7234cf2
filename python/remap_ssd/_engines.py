"""What runs the tasks of a sweep: processes of this machine, or a Dask cluster.

Invariants: a task whose worker dies is done again, unless workers die and nothing gets done; a task that raises ends the sweep.
Absent: what a task is.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

from . import _native

Task = tuple[str, str, dict[str, Any]]
Work = Callable[[str, str, dict[str, Any]], str]

#: How often in a row processes may die without one task done.
DEATHS_MAX = 3


def processes(work: Work, tasks: list[Task], workers: Optional[int], count: Callable[[], None]) -> None:
    """Runs the tasks on processes of this machine."""
    waiting, deaths = {task[1]: task for task in tasks}, 0
    while waiting:
        before = len(waiting)
        _round(work, waiting, min(workers or os.cpu_count() or 1, before), count)
        deaths = deaths + 1 if len(waiting) == before else 0
        if deaths == DEATHS_MAX:
            raise _native.Failed(f"processes died {deaths} times without a point done: is there too little memory?")


def _round(work: Work, waiting: dict[str, Task], workers: int, count: Callable[[], None]) -> None:
    """Runs tasks until all are done or a process has died; takes those done out of `waiting`."""
    # Not by fork: the simulator has threads.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=_worker)
    try:
        futures = [pool.submit(work, *task) for task in waiting.values()]
        for future in concurrent.futures.as_completed(futures):
            del waiting[future.result()]
            count()
    except BrokenProcessPool:
        pass  # What is left is begun again by other processes.
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _worker() -> None:
    # Ctrl-C is for the process that started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """Ends this process when that one has ended, however: nobody would give it work or take its results."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def dask(work: Work, tasks: list[Task], scheduler: Any, count: Callable[[], None]) -> None:
    """Runs the tasks on a Dask cluster, of a client or of a scheduler's address."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("a cluster needs dask: pip install distributed") from None
    ours = not isinstance(scheduler, Client)
    client = Client(scheduler) if ours else scheduler
    waiting, deaths, turn = {task[1]: task for task in tasks}, 0, 0
    try:
        while waiting:
            before = len(waiting)
            _turn(client, work, waiting, turn, count)
            turn, deaths = turn + 1, (deaths + 1 if len(waiting) == before else 0)
            if deaths == DEATHS_MAX:
                raise _native.Failed(f"workers died {deaths} times without a point done: is there too little memory?")
    finally:
        if ours:
            client.close()


def _turn(client: Any, work: Work, waiting: dict[str, Task], turn: int, count: Callable[[], None]) -> None:
    """Submits tasks and takes those done out of `waiting`; what Dask gave up, since its workers died, stays in."""
    from distributed import KilledWorker, as_completed

    # Two clients that sweep the same grid at the same time share its tasks.
    futures = [client.submit(work, *task, key=f"remap-ssd-{key}-{turn}") for key, task in waiting.items()]
    try:
        for future in as_completed(futures):
            try:
                key = future.result()
            except KilledWorker:
                continue
            del waiting[key]
            count()
    except BaseException:
        client.cancel(futures)
        raise


@contextmanager
def counting(progress: bool, total: int, done: int) -> Iterator[Callable[[], None]]:
    """What to call for each task that is done; a bar by ``tqdm``, if asked for and installed."""
    bar: Any = None
    if progress:
        try:
            from tqdm.auto import tqdm

            bar = tqdm(total=total, initial=done, unit="point")
        except ImportError:
            pass
    try:
        yield (lambda: None) if bar is None else (lambda: bar.update() and None)
    finally:
        if bar is not None:
            bar.close()
