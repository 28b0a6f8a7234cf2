"""Engines that run the tasks of a sweep: processes of this machine, or a Dask cluster.

Invariants: a task whose worker dies is run again, unless workers keep dying without progress; a task that raises is passed to ``fail``,
which may end the sweep; tasks run in parallel only as far as memory allows. Absent: the meaning of a task, beyond its ``key``, ``memory_bytes`` and ``trace``.
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
from ._errors import Failed

Task = dict[str, Any]
Work = Callable[[Task], None]
Fail = Callable[[Task, Exception], None]

#: Maximum number of consecutive process deaths without a finished task.
DEATHS_MAX = 3

#: Dask resource for the memory of tasks and workers, in bytes.
RESOURCE = "memory"

#: Attempts at a request to all workers, a second apart, before a missing worker ends the sweep.
REQUESTS_MAX = 30

#: Seconds until a cluster is checked for running tasks.
STILL_S = 30


#: Exit code of a process whose main module starts the sweep again.
UNGUARDED = 77


def processes(work: Work, tasks: list[Task], workers: Optional[int], count: Callable[[], None], fail: Fail) -> None:
    """Runs the tasks in processes on this machine."""
    # True while a new process imports the main module. It must not start processes; its parent reads the code and says why.
    if tasks and getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)

    waiting, deaths = {task["key"]: task for task in tasks}, 0
    workers = workers or min(os.cpu_count() or 1, _fitting(tasks))
    while waiting:
        before = len(waiting)
        codes = _round(work, waiting, min(workers, before), count, fail)
        if UNGUARDED in codes:
            raise Failed(
                "the main module starts the sweep when it is imported, and each process of the sweep imports it: "
                'start it below `if __name__ == "__main__":`'
            )
        deaths = deaths + 1 if len(waiting) == before else 0
        if deaths == DEATHS_MAX:
            # One of them ends its process, and with it those beside it. Alone, each shows whether it is that one.
            for key in list(waiting):
                alone = {key: waiting.pop(key)}
                codes = _round(work, alone, 1, count, fail)
                if alone:
                    _give_up(alone, f"its process died: {_how(codes)}", fail)
                    break
            deaths = 0


def _how(codes: set[int]) -> str:
    """How processes ended."""
    if -signal.SIGKILL in codes:
        return "killed: is there too little memory?"
    return f"with exit code {', '.join(map(str, sorted(codes)))}: see above"


def _give_up(waiting: dict[str, Task], why: str, fail: Fail) -> None:
    """Fails the tasks that are left."""
    for key in list(waiting):
        fail(waiting.pop(key), Failed(why))


def _fitting(tasks: list[Task]) -> int:
    """The number of tasks that fit into this machine's memory, assuming the largest ones; at least one."""
    largest, available = max((task["memory_bytes"] for task in tasks), default=0), _native.memory_available()
    return max(1, available // largest) if largest and available else max(1, len(tasks))


def _round(work: Work, waiting: dict[str, Task], workers: int, count: Callable[[], None], fail: Fail) -> set[int]:
    """Runs tasks until all are done or a process has died; removes finished ones from `waiting`. Returns exit codes of dead processes."""
    # Not by fork, because the simulator has threads.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=_worker)
    broken: list[Any] = []
    try:
        futures = {pool.submit(work, task): task for task in waiting.values()}
        for future in concurrent.futures.as_completed(futures):
            _ended(future, futures[future], waiting, count, fail, BrokenProcessPool)
    except BrokenProcessPool:
        broken = list((pool._processes or {}).values())  # Other processes restart the remaining tasks.
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    # The others were terminated, since the pool was broken.
    return {process.exitcode for process in broken} - {None, 0, -signal.SIGTERM}


def _ended(future: Any, task: Task, waiting: dict[str, Task], count: Callable[[], None], fail: Fail, died: type[Exception]) -> None:
    """Removes a task that has a result, or has failed by itself; raises `died` if its worker has died."""
    try:
        future.result()
    except died:
        raise
    except Exception as error:
        fail(task, error)
    del waiting[task["key"]]
    count()


def _worker() -> None:
    # The parent process handles Ctrl-C and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended for any reason."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def dask(work: Work, tasks: list[Task], scheduler: Any, count: Callable[[], None], fail: Fail) -> None:
    """Runs the tasks on a Dask cluster, given a client or a scheduler's address."""
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
            _turn(client, work, waiting, turn, count, fail)
            turn, deaths = turn + 1, (deaths + 1 if len(waiting) == before else 0)
            if deaths == DEATHS_MAX:
                _give_up(waiting, f"workers died {deaths} times without a point done: is there too little memory?", fail)
    finally:
        if ours:
            client.close()


def _prepare(client: Any, tasks: list[Task]) -> None:
    """Declares the workers' memory, and sends them the traces that they cannot read; also for workers that join later."""
    from distributed import WorkerPlugin

    class Memory(WorkerPlugin):  # type: ignore[misc]
        """Declares a worker's memory as a resource, unless the worker has declared it."""

        name = "remap-ssd-memory"

        async def setup(self, worker: Any) -> None:
            if RESOURCE not in worker.state.total_resources:
                limit = worker.memory_manager.memory_limit or _native.memory_available() or 1 << 62
                await worker.set_resources(**{RESOURCE: limit})

    class Courier(WorkerPlugin):  # type: ignore[misc]
        """Sends a trace to every worker."""

        def __init__(self, digest: str, content: bytes) -> None:
            self.name, self.digest, self.content = f"remap-ssd-trace-{digest}", digest, content

        def setup(self, worker: Any) -> None:
            _places.deliver(worker, self.digest, self.content)

    def sources() -> str:
        # Defined here, so that it is sent to workers as code: a worker of another version has no such function.
        import remap_ssd

        return str(remap_ssd._native.SOURCES)

    client.wait_for_workers(1)
    known = _asked(client.run, sources)
    others = sorted(address for address, digest in known.items() if digest != _native.SOURCES)
    if others:
        raise Failed(
            f"{len(others)} of {len(known)} workers have the package of other sources ({others[0]}: {known[others[0]]}, here: "
            f"{_native.SOURCES}), and their results would be others: install the same everywhere"
        )
    _asked(client.register_plugin, Memory())
    traces = {tuple(task["trace"]) for task in tasks if task["trace"] and "://" not in task["trace"][0]}
    for path, digest in sorted(traces):
        if not all(_asked(client.run, _places.sees, path, digest).values()):
            with open(path, "rb") as file:
                _asked(client.register_plugin, Courier(digest, file.read()))

    # There may be no worker now, if all have been killed, or none that has declared its memory.
    most = 0
    for _ in range(REQUESTS_MAX):
        client.wait_for_workers(1)
        most = max(_asked(client.run, _declared).values(), default=0)
        if most:
            break
        time.sleep(1)
    needs = max((task["memory_bytes"] for task in tasks), default=0)
    if needs > most:
        raise Failed(f"a point takes about {needs >> 20} MiB of memory, and the largest worker has {int(most) >> 20} MiB")


def _asked(request: Callable[..., Any], *arguments: Any) -> Any:
    """A request to all workers, repeated if one of them disappears during it."""
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


def _turn(client: Any, work: Work, waiting: dict[str, Task], turn: int, count: Callable[[], None], fail: Fail) -> None:
    """Submits tasks and removes finished ones from `waiting`; tasks that Dask gave up because workers died remain."""
    from distributed import KilledWorker, as_completed

    def submit(task: Task) -> Any:
        # Two clients that sweep the same grid at the same time share its tasks.
        name = f"remap-ssd-{task['key']}-{turn}"
        return client.submit(work, task, key=name, resources={RESOURCE: task["memory_bytes"]})

    tasks = {future.key: (future, task) for task in waiting.values() for future in [submit(task)]}
    futures = [future for future, _ in tasks.values()]
    finished, since = as_completed(futures), time.monotonic()
    try:
        while not finished.is_empty():
            if not finished.has_ready():
                time.sleep(0.05)
                if time.monotonic() < since + STILL_S:
                    continue
                # Dask does not resume tasks that waited while no worker had declared its memory.
                if not any(client.processing().values()):
                    client.cancel(futures)
                    return
            since = time.monotonic()
            if not finished.has_ready():
                continue
            future = next(finished)
            try:
                _ended(future, tasks[future.key][1], waiting, count, fail, KilledWorker)
            except KilledWorker:
                continue
    except BaseException:
        client.cancel(futures)
        raise


@contextmanager
def counting(progress: bool, total: int, done: int) -> Iterator[Callable[[], None]]:
    """The callback for each finished task; a bar by ``tqdm``, if requested and installed."""
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
