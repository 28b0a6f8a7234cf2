"""Workloads that are Python functions."""

import random

import pytest

import remap_ssd
from remap_ssd import Command

OPTIONS = {"scale": "1/64", "no_aging": True}


def copies(pages):
    """Pages with ten contents, each remapped once."""
    for number in range(100):
        yield ("write", number, 1, f"content {number % 10}")
        yield Command("remap", 1000 + number, source=number)
        if number % 10 == 0:
            yield ("flush",)
    yield {"op": "read", "lpn": 0, "pages": 50}
    yield ("trim", 5)
    yield ("write_part", 7)


def test_a_function_is_a_workload_and_the_same_as_its_trace():
    ours = remap_ssd.compare(["none", "remap-ssd"], workload=copies, **OPTIONS)
    requests = ours["remap-ssd"].requests
    assert (requests.writes, requests.remaps, requests.reads, requests.trims, requests.flushes) == (100, 100, 1, 1, 10)
    assert ours["remap-ssd"].remaps > 0 and ours["none"].remaps == 0

    # A trace has the same requests, with flushes on demand.
    trace = remap_ssd.Trace.from_rows(copies(0))
    replayed = remap_ssd.compare(["none", "remap-ssd"], trace=trace, flushes=True, **OPTIONS)
    for mine, other in zip(ours, replayed):
        assert (mine.flash_pages, mine.dedup_hits, mine.remaps) == (other.flash_pages, other.dedup_hits, other.remaps)
        assert mine.latency_us.to_dict() == other.latency_us.to_dict()


def test_each_run_calls_the_function_anew_with_the_addressable_pages():
    called = []

    def workload(pages):
        called.append(pages)
        choose = random.Random(1)
        while True:
            yield ("write", choose.randrange(pages))

    runs = remap_ssd.compare(["none", "remap-ssd"], workload=workload, writes=5000, scale="1/256", threads=1)
    addressable = remap_ssd.Config(scale="1/256").addressable_pages
    assert called == [addressable] * 2 and [run.host_pages for run in runs] == [5000, 5000]


def test_commands_arrive_at_their_times():
    def workload(pages):
        return [Command("write", number, time_ns=number * 1_000_000) for number in range(1000)]

    run = remap_ssd.run("none", workload=workload, arrivals="trace", **OPTIONS)
    assert run.seconds_simulated == pytest.approx(0.999, abs=0.01) and run.arrivals is not None


def test_what_the_function_raises_is_raised():
    def workload(pages):
        yield ("write", 0)
        raise LookupError("of its own")

    with pytest.raises(LookupError, match="of its own"):
        remap_ssd.compare(["none", "remap-ssd"], workload=workload, **OPTIONS)


@pytest.mark.parametrize(
    "commands, sentence",
    [
        ([("wrte", 0)], "command 0 of the workload: 'wrte' is no request: use read, .*: did you mean `write`?"),
        ([("write", 0), ("write", 1 << 40)], r"command 1 of the workload: `lpn` is 1099511627776: it must be at least 0 and below \d+"),
        ([("write", -1)], "`lpn` is -1"),
        ([("write", 0, 1 << 30)], "pages from there end beyond the"),
        ([("write", 0, 0)], "`pages` is 0: 1 or more"),
        ([("write", 0.5)], "command 0 of the workload: 'float' object cannot be interpreted as an integer"),
        ([("write", 0, 2, "a")], "a write of 2 pages has a list of 2 fingerprints, and not 'a'"),
        ([("remap", 0, 1)], "a remap needs `source`, its first source page"),
        ([("remap", 0, 1 << 16, None, 0)], "`pages` is 65536: 1 to 65535"),
        ([Command("read", time_ns=5), Command("read")], "`time_ns` is 0, and 5 in the command before"),
        ([{"op": "read", "lnp": 0}], "`lnp` is no part of a command: did you mean `lpn`?"),
        ([{"lpn": 0}], "`op` is missing"),
        ([7], "7 is no command: give a `Command`, a tuple"),
        (3, "the workload returned 3: it must return commands, or yield them"),
    ],
)
def test_a_command_that_is_none_is_named(commands, sentence):
    with pytest.raises(remap_ssd.UsageError, match=sentence):
        remap_ssd.run("none", workload=lambda pages: commands, **OPTIONS)


def test_what_is_no_function_is_said():
    with pytest.raises(ValueError, match="A generator can be run once"):
        remap_ssd.run(workload=copies(5), **OPTIONS)
    with pytest.raises(ValueError, match="`trace` takes a list"):
        remap_ssd.run(workload=[("write", 0)], **OPTIONS)
    with pytest.raises(ValueError, match="`content` cannot be used with a workload that is a function"):
        remap_ssd.run(workload=copies, content="unique", **OPTIONS)
    with pytest.raises(remap_ssd.Failed, match="has no requests"):
        remap_ssd.run("none", workload=lambda pages: [], **OPTIONS)
    with pytest.raises(ValueError, match="`workload` must be text, a number, or a list of them"):
        remap_ssd.sweep({"workload": [copies]}, "nowhere", dry_run=True)
