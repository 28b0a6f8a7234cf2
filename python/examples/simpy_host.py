"""Three hosts of a discrete-event simulation share one device: simpy has the clock, and the device follows it.

    pip install simpy
    python simpy_host.py

Before a command at time t of simpy, the device advances to t. The command does not wait; the host continues when it ends.
"""

import random
import statistics

import simpy

import remap_ssd

REQUESTS = 200

#: Pages of the database, the first of the device.
PAGES = 1000


class Disk:
    """A device whose commands are events of simpy, whose unit of time is a nanosecond."""

    def __init__(self, config: remap_ssd.Config) -> None:
        self.device = remap_ssd.Device(config)
        self.device.write(0, range(1, PAGES + 1))
        # Simpy's clock begins where the device's is.
        self.environment = simpy.Environment(initial_time=self.device.now_ns)

    def done(self, command: str, *values: int) -> simpy.Event:
        """The event of a command's end; its value is the command's completion."""
        self.device.advance_to(self.environment.now)
        completion = getattr(self.device, command)(*values, wait=False)
        return self.environment.timeout(completion.latency_ns, completion)


def database(disk: Disk, took: list[float]):
    """Writes a page to its journal, then copies it to its place by a remap."""
    choose = random.Random(1)
    for number in range(REQUESTS):
        written = yield disk.done("write", 50_000 + number % 64, number + 1)
        remapped = yield disk.done("remap", choose.randrange(PAGES), 50_000 + number % 64)
        took.append(written.latency_ns + remapped.latency_ns)


def reader(disk: Disk, took: list[float]):
    """Reads pages of the database, with pauses."""
    choose = random.Random(2)
    for _ in range(REQUESTS):
        read = yield disk.done("read", choose.randrange(PAGES))
        took.append(read.latency_ns)
        yield disk.environment.timeout(round(choose.expovariate(1 / 100_000)))


def backup(disk: Disk, took: list[float]):
    """Writes eight pages at a time."""
    for number in range(REQUESTS):
        pages = range(1 << 20 | number << 3, (1 << 20 | number << 3) + 8)
        written = yield disk.done("write", 60_000 + 8 * number, pages)
        took.append(written.latency_ns)


def main() -> None:
    disk = Disk(remap_ssd.Config(scale="1/64"))
    took: dict[str, list[float]] = {}
    for host in (database, reader, backup):
        disk.environment.process(host(disk, took.setdefault(host.__name__, [])))
    disk.environment.run()
    for host, latencies in took.items():
        mean, worst = statistics.fmean(latencies), max(latencies)
        print(f"{host:10} {len(latencies)} requests, {mean / 1000:8.1f} µs on average, {worst / 1000:8.1f} at most")
    print(f"{disk.environment.now / 1e6:.1f} ms of virtual time, {disk.device.stats.firmware.remaps} pages remapped")


if __name__ == "__main__":
    main()
