"""One device: its time, its tables, and its state after a power cut."""

import pathlib
import pickle
import random
import subprocess
import sys
import threading

import pytest

import remap_ssd
from remap_ssd import Config, Device

DURABLE = ["none", "remap-ssd", "remap-ssd-x", "remap-ssd-lh", "flog", "nlog", "pebble", "local-flash", "shadow-oob"]


def small(**values):
    return Config(scale="1/64", **values)


def test_pages_read_back_and_time_passes():
    device = Device(small())
    assert device.read(5).content is None
    begin = device.now_ns
    written = device.write(5, 77)
    assert written.start_ns == begin and device.now_ns == written.done_ns
    # Hashing and a flash program, at least.
    assert written.latency_ns >= device.config.hash.latency_ns + device.config.flash.program_ns
    assert device.read(5).content == 77

    device.write(10, [1, 2, 3])
    device.remap(20, 10, 3)
    assert device.read_pages(20, 3) == [1, 2, 3] and device.place(20) == device.place(10)
    device.remap(30, 10, 3, relocate=True)
    assert device.read_pages(10, 3) == [None] * 3 and device.read_pages(30, 3) == [1, 2, 3]
    device.trim(30, 2)
    assert device.read_pages(30, 3) == [None, None, 3] and device.place(30) is None
    device.flush()
    device.check()


def test_equal_contents_share_a_flash_page():
    device = Device(small())
    device.write(0, 9)
    programs = device.stats.media.programs
    device.write(1, 9)
    assert device.stats.media.programs == programs and device.place(0) == device.place(1)
    assert device.stats.firmware.dedup_hits == 1

    apart = Device(small(dedup=False))
    apart.write(0, 9)
    apart.write(1, 9)
    assert apart.place(0) != apart.place(1) and apart.stats.firmware.host_programs == 2


def test_commands_in_flight_overlap():
    one_by_one, together = Device(small()), Device(small())
    for lpn in range(16):
        one_by_one.write(lpn, lpn + 1)
        together.write(lpn, lpn + 1, wait=False)
    assert together.now_ns == 0 and together.in_flight == 16
    assert 0 < together.wait() < one_by_one.now_ns and together.in_flight == 0


def test_superblocks_and_segments_can_be_inspected():
    device = Device(small())
    device.write(0, list(range(1, 65)))
    device.remap(1000, 0, 64)
    rows = device.superblocks()
    assert [row.id for row in rows] == list(range(device.config.geometry.superblocks))
    row = rows[device.place(0).superblock]
    assert row.state == "open" and row.stream == "host" and row.live == 64 and row.remapped == 64
    assert row.entries == row.entry_pages == 64 and len(row.segment_numbers) == row.segments > 0
    assert device.stats.usage.used_bytes > 0
    assert sum(device.erase_counts()) == device.stats.media.erases


def test_refusals_are_raised_and_change_nothing():
    device = Device(small())
    pages = device.logical_pages
    for refused in (lambda: device.write(pages, 1), lambda: device.trim(pages - 1, 2), lambda: device.read(pages)):
        with pytest.raises(remap_ssd.Refused, match="LBA out of range"):
            refused()
    with pytest.raises(remap_ssd.Refused, match="atomic commands need 24-byte entries"):
        device.remap(0, 1, 2, atomic=True)
    for wrong in (lambda: device.write(0, 0), lambda: device.write(0, []), lambda: device.write(0, b"x" * 4096)):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (lambda: device.read(-1), lambda: device.write(1 << 32, 1)):
        with pytest.raises(remap_ssd.UsageError, match="^`lpn` is "):
            wrong()
    device.check()


def test_a_device_of_bytes_holds_bytes():
    device = Device(small(content="bytes"))
    page = bytes(range(256)) * 16
    device.write(3, [page, bytearray(page)])
    assert device.read_pages(3, 2) == [page, page] and device.place(3) == device.place(4)
    assert device.cut(seed=5).read(3).content == page
    with pytest.raises(ValueError, match="`content` has 5 bytes, and a page has 4096"):
        device.write(3, b"short")
    with pytest.raises(ValueError, match="this device stores bytes"):
        device.write(3, 7)


@pytest.mark.parametrize("scheme", DURABLE)
def test_what_was_acknowledged_survives_every_cut(scheme):
    device = Device(small(scheme=scheme, log_bytes=200 << 20))
    choose = random.Random(scheme)
    expected = {}
    for step in range(400):
        lpn, other = choose.randrange(500), choose.randrange(500)
        verb = choose.random()
        if verb < 0.6:
            content = choose.randrange(1, 200)
            device.write(lpn, content)
            expected[lpn] = content
        elif verb < 0.8:
            device.remap(lpn, other)
            expected[lpn] = expected.get(other)
        else:
            device.trim(lpn)
            expected[lpn] = None

        if step % 20 == 0:
            survivor = device.cut(seed=step)
            survivor.check()
            assert survivor.recovery.lost == 0
            assert [survivor.read(lpn).content for lpn in range(500)] == [expected.get(lpn) for lpn in range(500)]
            # It works on.
            survivor.write(0, 1 << 20)
            assert survivor.cut(seed=step).read(0).content == 1 << 20


def test_what_is_in_flight_has_happened_or_has_not():
    device = Device(small())
    device.write(0, 1)
    device.write(0, 2, wait=False)
    assert device.undecided > 0
    found = [device.cut(seed=seed).read(0).content for seed in range(64)]
    assert set(found) == {1, 2}, "both outcomes are among 64 cuts, and nothing else"
    device.wait()
    assert {device.cut(seed=seed).read(0).content for seed in range(16)} == {2}


def test_a_scheme_without_durable_remaps_loses_them():
    device = Device(small(scheme="unsafe", dedup=False))
    device.write(0, 1)
    device.remap(1, 0)
    assert device.read(1).content == 1
    assert device.cut(seed=1).read(1).content is None


def test_the_same_seed_is_the_same_cut():
    def found(seed):
        device = Device(small())
        for lpn in range(32):
            device.write(lpn, lpn + 1, wait=False)
        return device.cut(seed).read_pages(0, 32)

    assert found(9) == found(9)
    assert len({tuple(found(seed)) for seed in range(8)}) > 1


def test_a_device_is_saved_and_loaded(tmp_path):
    path = tmp_path / "device.img"
    device = Device(small())
    device.write(0, [4, 5, 6])
    device.save(path)
    loaded = Device.load(path)
    assert loaded.read_pages(0, 4) == [4, 5, 6, None] and loaded.recovery.mapped == 3 and loaded.now_ns > 0
    with pytest.raises(remap_ssd.Failed, match="missing.img"):
        Device.load(tmp_path / "missing.img")
    with pytest.raises(remap_ssd.Failed, match="keeps its remaps in DRAM"):
        Device(small(scheme="opt")).save(path)


def test_an_aged_device_of_a_comparison_can_be_inspected(tmp_path):
    path = tmp_path / "aged.img"
    remap_ssd.run("remap-ssd", scale="1/64", writes=1000, save_aged=path)
    device = Device.load(path, power_cuts=False)
    assert device.stats.usage.used_bytes / device.stats.usage.capacity_bytes > 0.5
    assert sum(row.live for row in device.superblocks()) > 0
    with pytest.raises(remap_ssd.Failed, match="power_cuts=False"):
        device.cut()


def test_idle_time_passes():
    device = Device(small())
    before = device.now_ns
    assert device.idle(10_000_000) == before + 10_000_000


def test_a_read_beyond_the_device_is_refused_however_long():
    device = Device(small())
    with pytest.raises(remap_ssd.Refused, match="LBA out of range"):
        device.read_pages(0, 2**32 - 1)


def test_a_device_of_bytes_takes_any_buffer_of_whole_pages():
    numpy = pytest.importorskip("numpy")
    import array

    pages = bytes(range(256)) * 32
    words = numpy.frombuffer(pages, numpy.uint64)
    buffers = [pages, bytearray(pages), memoryview(pages), words, words.reshape(2, 512), array.array("B", pages), [pages[:4096], words[512:]]]
    for buffer in buffers:
        device = Device(small(content="bytes"))
        programs = device.stats.firmware.host_writes
        device.write(8, buffer)
        assert b"".join(device.read(8, 2).contents) == pages
        assert device.stats.firmware.host_writes == programs + 2


def test_a_device_of_numbers_takes_any_sequence_of_them():
    numpy = pytest.importorskip("numpy")
    for numbers in ([7, 8], (7, 8), range(7, 9), numpy.array([7, 8]), numpy.array([7, 8], numpy.uint8), iter([7, 8])):
        device = Device(small())
        device.write(3, numbers)
        assert device.read(3, 2).contents == [7, 8]
    device.write(numpy.int64(3), numpy.uint64(9))
    assert device.read(numpy.int32(3)).content == 9
    for wrong in (numpy.float64(1.5), numpy.array([1.5])):
        with pytest.raises(TypeError, match="`content`"):
            device.write(0, wrong)


@pytest.mark.parametrize(
    "command, kind, sentence",
    [
        (lambda device: device.write(0, 1.5), TypeError, "`content` is an integer, or a sequence of them, and not 1.5"),
        (lambda device: device.write(0, None), TypeError, "`content` is an integer, or a sequence of them, and not None"),
        (lambda device: device.write(0, "x"), TypeError, "`content` is an integer, or a sequence of them, and not 'x'"),
        (lambda device: device.write(0, [1, "a"]), TypeError, r"`content\[1\]` is an integer, and not 'a'"),
        (lambda device: device.write(0, [1, 0]), ValueError, r"`content\[1\]` is 0: it must be 1 to 18446744073709551615"),
        (lambda device: device.write(0, []), ValueError, "`content` is empty"),
        (lambda device: device.write(0, b"x" * 4096), ValueError, "`content` is bytes, and this device stores numbers"),
        (lambda device: device.write("a", 1), TypeError, "`lpn` is an integer, and not 'a'"),
        (lambda device: device.write(0, [1, 2], home=5), ValueError, "`home` is of one page"),
        (lambda device: device.write(0, 1, home=-5), ValueError, "`home` is -5: it must be 0 to 4294967295"),
        (lambda device: device.read(0, -1), ValueError, "`pages` is -1: it must be 0 to 4294967295"),
        (lambda device: device.trim(1.0), TypeError, "`lpn` is an integer, and not 1.0"),
        (lambda device: device.remap(0, -5), ValueError, "`source` is -5: it must be 0 to 4294967295"),
        (lambda device: device.remap(None, 5), TypeError, "`target` is an integer, and not None"),
        (lambda device: device.idle(-1), ValueError, "`ns` is -1"),
        (lambda device: device.cut(-1), ValueError, "`seed` is -1"),
        (lambda device: device.advance_to(-1), ValueError, "`time_ns` is -1"),
        (lambda device: device.place("a"), TypeError, "`lpn` is an integer, and not 'a'"),
    ],
)
def test_an_error_names_the_argument_that_is_wrong(command, kind, sentence):
    device = Device(small())
    with pytest.raises(kind, match="^" + sentence):
        command(device)
    assert device.now_ns == 0


def test_errors_of_bytes_name_the_page():
    device = Device(small(content="bytes"))
    for content, kind, sentence in [
        (7, ValueError, "`content` is 7, and this device stores bytes"),
        ([7, 8], ValueError, "`content` is .7, 8., and this device stores bytes"),
        ("x", TypeError, "`content` is 'x', and this device stores bytes"),
        (b"", ValueError, "`content` is empty"),
        (b"x" * 5000, ValueError, "`content` has 5000 bytes, and a page has 4096: a write has whole pages"),
        ([b"x" * 4096, b"short"], ValueError, r"`content\[1\]` has 5 bytes, and a page has 4096"),
    ]:
        with pytest.raises(kind, match=sentence):
            device.write(0, content)
    with pytest.raises(TypeError, match="`config` is a `Config`, and not 'fast21-32g'"):
        Device("fast21-32g")


def test_a_read_is_a_completion_too():
    device = Device(small())
    device.write(0, [4, 5])
    read = device.read(0, 2)
    assert isinstance(read, remap_ssd.Completion) and read.latency_ns >= device.config.flash.read_ns
    assert read.contents == [4, 5] and tuple(read) == (read.start_ns, read.done_ns) and device.now_ns == read.done_ns
    with pytest.raises(ValueError, match="2 pages were read: `contents` has them"):
        read.content
    later = device.read(1, wait=False)
    assert later.content == 5 and later.start_ns == device.now_ns < later.done_ns and device.in_flight == 1
    assert pickle.loads(pickle.dumps(later)) == later != device.read(0, wait=False)


def test_time_advances_to_a_given_one():
    device = Device(small())
    done = device.write(0, 7, wait=False)
    assert device.advance_to(done.done_ns - 1) == done.done_ns - 1 and device.in_flight == 1
    assert device.advance_to(float(done.done_ns)) == done.done_ns and device.in_flight == 0
    with pytest.raises(remap_ssd.UsageError, match=f"`time_ns` is 5, and the device is at {done.done_ns}: its time never goes back"):
        device.advance_to(5)
    assert device.advance_to(device.now_ns) == done.done_ns


def test_a_trace_is_replayed_on_a_device():
    numpy = pytest.importorskip("numpy")
    device = Device(small())
    rows = [("write", 0, 2, ["a", "b"]), ("write", 4, 1, "a"), ("remap", 100, 2, None, 0), ("read", 100, 2), ("trim", 1), ("flush",)]
    done = device.replay(rows)
    assert len(done.done_ns) == 6 and not done.refused and (done.latency_ns >= 0).all() and device.in_flight == 0
    assert device.now_ns == done.done_ns.max()
    assert device.place(100) == device.place(0) == device.place(4) and device.place(101) is not None and device.read(1).content is None

    beyond = device.replay({"op": ["read", "write"], "lpn": [0, device.logical_pages]})
    assert list(beyond.refused) == [1] and "out of range" in beyond.refused[1]

    # One at a time they take longer than side by side; with times they enter at these.
    trace = remap_ssd.Trace(["write"] * 64, numpy.arange(64))
    alone, together = Device(small()), Device(small())
    alone.replay(trace, queue_depth=1)
    together.replay(trace, queue_depth=64)
    assert 0 < together.now_ns < alone.now_ns
    assert len({together.read(lpn).content for lpn in range(64)}) == 64, "contents without a fingerprint differ"
    begin = together.now_ns
    timed = together.replay(remap_ssd.Trace(["read"] * 3, [0, 1, 2], time_ns=[0, 10**9, 2 * 10**9]))
    assert (timed.start_ns - begin).tolist() == [0, 10**9, 2 * 10**9]

    stores = Device(small(content="bytes"))
    stores.replay([("write", 0, 1, 7), ("write", 1, 1, 7)])
    assert stores.read(0).content == stores.read(1).content != None and stores.place(0) == stores.place(1)  # noqa: E711


def test_long_commands_do_not_hold_the_interpreters_lock():
    numpy = pytest.importorskip("numpy")
    device, ticks, ended = Device(small()), [0], threading.Event()

    def tick():
        while not ended.wait(0.0005):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    lpns = numpy.random.default_rng(1).integers(0, 50_000, 60_000)
    device.replay(remap_ssd.Trace(["write"] * len(lpns), lpns))
    ended.set()
    thread.join()
    assert ticks[0] > 20

    # Commands of several threads are executed one after the other.
    def write(first):
        for lpn in range(first, first + 200):
            device.write(lpn, lpn + 1)

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 200, 400)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert device.read(0, 600).contents == list(range(1, 601))
    device.check()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address spaces")
def test_a_device_that_does_not_fit_is_a_memory_error():
    code = """
import resource, remap_ssd
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for make in (lambda: remap_ssd.Device(remap_ssd.Config("fast21-4t")), lambda: remap_ssd.run("none", preset="fast21-4t", scale=1)):
    try:
        make()
    except MemoryError as error:
        assert isinstance(error, remap_ssd.OutOfMemory) and isinstance(error, remap_ssd.Error)
        print(error)
print(remap_ssd.Device().write(0, 1).latency_ns > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second, last = done.stdout.splitlines()
    assert "this device takes about" in first and "MiB are available: a smaller `scale` takes less" in first
    assert "this takes about" in second and last == "True"


def test_the_example_with_simpy_runs():
    pytest.importorskip("simpy")
    example = pathlib.Path(__file__).parents[1] / "examples" / "simpy_host.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("µs") == 3
