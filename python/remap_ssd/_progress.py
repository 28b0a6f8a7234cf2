"""Progress: a bar for each run by ``tqdm``, a callback, or nothing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

Jobs = list[tuple[str, str, float]]


@contextmanager
def watching(progress: Any) -> Iterator[Optional[Callable[[Jobs], object]]]:
    """The callback for the jobs' progress; ``None`` if no progress is shown."""
    if callable(progress):
        yield progress
        return
    if progress not in (None, False, True):
        raise TypeError(f"`progress` is True, False or a function, and not {progress!r}")
    if not progress:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return

    bars: dict[int, Any] = {}
    shape = "{desc}: {percentage:3.0f} % {bar} {elapsed}{postfix}"

    def tell(jobs: Jobs) -> None:
        for index, (name, message, share) in enumerate(jobs):
            if index not in bars:
                bars[index] = tqdm(total=1000, desc=name, position=index, bar_format=shape)
            bar = bars[index]
            bar.set_description_str(name, refresh=False)  # A trace is read before the jobs have their names.
            bar.n = 1000 if message == "done" else round(share * 1000)
            bar.set_postfix_str(message, refresh=False)
            bar.refresh()

    try:
        yield tell
    finally:
        for bar in bars.values():
            bar.close()
