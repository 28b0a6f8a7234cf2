"""What runs the tasks of a sweep: processes of this machine, or a Dask cluster.

Invariants: a task whose worker dies is done again, unless workers die and nothing gets done; a task that raises ends the sweep;
tasks run side by side only as far as memory goes. Absent: what a task is, but for its ``key``, ``memory_bytes`` and ``trace``.
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

from . import _native, _places

Task = dict[str, Any]
Work = Callable[[Task], str]

#: How often in a row processes may die without one task done.
DEATHS_MAX = 3

#: What tasks take and workers have of memory, in bytes, as a resource of Dask.
RESOURCE = "memory"

#: How often a request to all workers is made, a second apart, before one that has gone ends the sweep.
REQUESTS_MAX = 30

#: Seconds after which a cluster is asked whether anything runs at all.
STILL_S = 30


def processes(work: Work, tasks: list[Task], workers: Optional[int], count: Callable[[], None]) -> None:
    """Runs the tasks on processes of this machine."""
    waiting, deaths = {task["key"]: task for task in tasks}, 0
    workers = workers or min(os.cpu_count() or 1, _fitting(tasks))
    while waiting:
        before = len(waiting)
        _round(work, waiting, min(workers, before), count)
        deaths = deaths + 1 if len(waiting) == before else 0
        if deaths == DEATHS_MAX:
            raise _native.Failed(f"processes died {deaths} times without a point done: is there too little memory?")


def _fitting(tasks: list[Task]) -> int:
    """How many tasks this machine's memory has room for, the largest ones taken; at least one."""
    largest, available = max((task["memory_bytes"] for task in tasks), default=0), _native.memory_available()
    return max(1, available // largest) if largest and available else max(1, len(tasks))


def _round(work: Work, waiting: dict[str, Task], workers: int, count: Callable[[], None]) -> None:
    """Runs tasks until all are done or a process has died; takes those done out of `waiting`."""
    # Not by fork: the simulator has threads.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=_worker)
    try:
        futures = [pool.submit(work, task) for task in waiting.values()]
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
    waiting, deaths, turn = {task["key"]: task for task in tasks}, 0, 0
    try:
        _prepare(client, tasks)
        while waiting:
            before = len(waiting)
            _turn(client, work, waiting, turn, count)
            turn, deaths = turn + 1, (deaths + 1 if len(waiting) == before else 0)
            if deaths == DEATHS_MAX:
                raise _native.Failed(f"workers died {deaths} times without a point done: is there too little memory?")
    finally:
        if ours:
            client.close()


def _prepare(client: Any, tasks: list[Task]) -> None:
    """Declares the workers' memory, and sends them the traces that they do not see; now, and to workers that come later."""
    from distributed import WorkerPlugin

    class Memory(WorkerPlugin):  # type: ignore[misc]
        """A worker's memory as a resource, unless it has declared it itself."""

        name = "remap-ssd-memory"

        async def setup(self, worker: Any) -> None:
            if RESOURCE not in worker.state.total_resources:
                limit = worker.memory_manager.memory_limit or _native.memory_available() or 1 << 62
                await worker.set_resources(**{RESOURCE: limit})

    class Courier(WorkerPlugin):  # type: ignore[misc]
        """A trace, on its way to every worker."""

        def __init__(self, digest: str, content: bytes) -> None:
            self.name, self.digest, self.content = f"remap-ssd-trace-{digest}", digest, content

        def setup(self, worker: Any) -> None:
            _places.deliver(worker, self.digest, self.content)

    client.wait_for_workers(1)
    _asked(client.register_plugin, Memory())
    traces = {tuple(task["trace"]) for task in tasks if task["trace"] and "://" not in task["trace"][0]}
    for path, digest in sorted(traces):
        if not all(_asked(client.run, _places.sees, path, digest).values()):
            with open(path, "rb") as file:
                _asked(client.register_plugin, Courier(digest, file.read()))

    # At this moment there may be no worker, if all have been killed, or none that has said what it has.
    most = 0
    for _ in range(REQUESTS_MAX):
        client.wait_for_workers(1)
        most = max(_asked(client.run, _declared).values(), default=0)
        if most:
            break
        time.sleep(1)
    needs = max((task["memory_bytes"] for task in tasks), default=0)
    if needs > most:
        raise _native.Failed(f"a point takes about {needs >> 20} MiB of memory, and the largest worker has {int(most) >> 20} MiB")


def _asked(request: Callable[..., Any], *arguments: Any) -> Any:
    """A request to all workers, made again if one of them has gone meanwhile."""
    for left in reversed(range(REQUESTS_MAX)):
        try:
            return request(*arguments)
        except OSError:
            if left == 0:
                raise
            time.sleep(1)


def _declared(dask_worker: Any) -> float:
    """Memory that a worker has declared, in bytes."""
    return dask_worker.state.total_resources.get(RESOURCE, 0)


def _turn(client: Any, work: Work, waiting: dict[str, Task], turn: int, count: Callable[[], None]) -> None:
    """Submits tasks and takes those done out of `waiting`; what Dask gave up, since its workers died, stays in."""
    from distributed import KilledWorker, as_completed

    def submit(task: Task) -> Any:
        # Two clients that sweep the same grid at the same time share its tasks.
        name = f"remap-ssd-{task['key']}-{turn}"
        return client.submit(work, task, key=name, resources={RESOURCE: task["memory_bytes"]})

    futures = [submit(task) for task in waiting.values()]
    finished, since = as_completed(futures), time.monotonic()
    try:
        while not finished.is_empty():
            if not finished.has_ready():
                time.sleep(0.05)
                if time.monotonic() < since + STILL_S:
                    continue
                # Tasks that waited while no worker had declared its memory are not taken up again by themselves.
                if not any(client.processing().values()):
                    client.cancel(futures)
                    return
            since = time.monotonic()
            if not finished.has_ready():
                continue
            try:
                key = next(finished).result()
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
