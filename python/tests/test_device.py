"""One device: its time, its tables, and its state after a power cut."""

import random

import pytest

import remap_ssd
from remap_ssd import Config, Device

DURABLE = ["none", "remap-ssd", "remap-ssd-x", "remap-ssd-lh", "flog", "nlog", "pebble", "local-flash", "shadow-oob"]


def small(**values):
    return Config(scale="1/64", **values)


def test_pages_read_back_and_time_passes():
    device = Device(small())
    assert device.read(5) is None
    begin = device.now_ns
    written = device.write(5, 77)
    assert written.start_ns == begin and device.now_ns == written.done_ns
    # Hashing and a flash program, at least.
    assert written.latency_ns >= device.config.hash.latency_ns + device.config.flash.program_ns
    assert device.read(5) == 77

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
        with pytest.raises(OverflowError):
            wrong()
    device.check()


def test_a_device_of_bytes_holds_bytes():
    device = Device(small(content="bytes"))
    page = bytes(range(256)) * 16
    device.write(3, [page, bytearray(page)])
    assert device.read_pages(3, 2) == [page, page] and device.place(3) == device.place(4)
    assert device.cut(seed=5).read(3) == page
    with pytest.raises(ValueError, match="a page has 4096 bytes, and not 5"):
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
            assert [survivor.read(lpn) for lpn in range(500)] == [expected.get(lpn) for lpn in range(500)]
            # It works on.
            survivor.write(0, 1 << 20)
            assert survivor.cut(seed=step).read(0) == 1 << 20


def test_what_is_in_flight_has_happened_or_has_not():
    device = Device(small())
    device.write(0, 1)
    device.write(0, 2, wait=False)
    assert device.undecided > 0
    found = [device.cut(seed=seed).read(0) for seed in range(64)]
    assert set(found) == {1, 2}, "both outcomes are among 64 cuts, and nothing else"
    device.wait()
    assert {device.cut(seed=seed).read(0) for seed in range(16)} == {2}


def test_a_scheme_without_durable_remaps_loses_them():
    device = Device(small(scheme="unsafe", dedup=False))
    device.write(0, 1)
    device.remap(1, 0)
    assert device.read(1) == 1
    assert device.cut(seed=1).read(1) is None


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
