"""How a sweep scales, by simulation of its scheduler: one scheduler that hands points to workers, one at a time.

This is a model, not a measurement: points take the time of `--scale` pages at the costs of docs/speed.md, spread by a quarter; the scheduler is
busy for `--dispatch-ms` with each point; a worker starts `--start-s` after the first. Nothing else is shared: points exchange no
data, and a result is a file of some 60 KB. Each core is assumed to be as fast as one alone.
"""

import argparse
import heapq
import random

# Nanoseconds of processor for a host page under the default load, by scheme (docs/speed.md).
COSTS_NS = {"remap-ssd-lh": 160, "unsafe": 180, "opt": 200, "none": 250, "remap-ssd": 250, "shadow-oob": 280, "remap-ssd-x": 300}
COSTS_NS |= {"local-flash": 360, "pebble": 360, "flog": 390, "nlog": 390}

# Host pages of a run on a whole 32 GiB device, and the additional cost of aging.
PAGES = 15_099_494
AGING = 0.5


def durations(count, scale, seed):
    """Seconds of each point, in the order of the grid: schemes change fast, so that long and short ones are mixed."""
    choose, costs = random.Random(seed), list(COSTS_NS.values())
    return [costs[at % len(costs)] * 1e-9 * PAGES * (1 + AGING) * scale * choose.lognormvariate(0, 0.25) for at in range(count)]


def makespan(points, cores, dispatch_s, start_s):
    """Seconds until the last point is done: each goes to the worker that is free first, when the scheduler has time for it."""
    free = [start_s] * cores
    heapq.heapify(free)
    scheduler = end = 0.0
    for seconds in points:
        scheduler = max(scheduler, heapq.heappop(free)) + dispatch_s
        heapq.heappush(free, scheduler + seconds)
        end = max(end, scheduler + seconds)
    return end


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--points", type=int, default=1518, help="of the study in study.py")
    words.add_argument("--scale", type=float, default=1.0, help="size of the devices, as a share of 32 GiB")
    words.add_argument("--dispatch-ms", type=float, default=1.0, help="of the scheduler, for each point")
    words.add_argument("--start-s", type=float, default=2.0, help="until a worker has begun")
    words.add_argument("--seed", type=int, default=1)
    words = words.parse_args()

    points = durations(words.points, words.scale, words.seed)
    alone = sum(points)
    print(f"{len(points)} points, {alone:,.0f} s on one core; the longest takes {max(points):.1f} s")
    print(f"{'cores':>6} {'seconds':>9} {'speed-up':>9} {'efficiency':>10} {'longest first':>14} {'bound':>9}")
    for cores in [1, 2, 8, 64, 250, 500, 1000, 2000]:
        given, sorted_ = (makespan(order, cores, words.dispatch_ms / 1000, words.start_s) for order in (points, sorted(points, reverse=True)))
        bound = max(alone / cores, max(points), len(points) * words.dispatch_ms / 1000)
        print(f"{cores:>6} {given:>9.1f} {alone / given:>9.1f} {alone / given / cores:>10.0%} {sorted_:>14.1f} {bound:>9.1f}")


if __name__ == "__main__":
    main()
