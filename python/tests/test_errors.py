"""One hierarchy of errors, which are also those that Python has for their kinds."""

import pickle

import pytest

import remap_ssd


def test_every_error_has_one_base_and_pythons_kind():
    kinds = {
        remap_ssd.UsageError: ValueError,
        remap_ssd.Failed: RuntimeError,
        remap_ssd.NotFound: FileNotFoundError,
        remap_ssd.OutOfMemory: MemoryError,
        remap_ssd.Refused: remap_ssd.Failed,
        remap_ssd.Stopped: remap_ssd.Failed,
    }
    for kind, base in kinds.items():
        error = pickle.loads(pickle.dumps(kind("a sentence")))
        assert isinstance(error, remap_ssd.Error) and isinstance(error, base) and str(error) == "a sentence"
        # As Dask copies them.
        assert type(kind.__new__(kind)) is kind
        assert type(error) is kind and kind.__module__ == "remap_ssd" and getattr(remap_ssd, kind.__name__) is kind


MISSING = {
    "trace": lambda path: remap_ssd.compare(trace=path),
    "job": lambda path: remap_ssd.compare(job=path),
    "config": lambda path: remap_ssd.compare(config=path),
    "config of a run": lambda path: remap_ssd.run(config=path),
    "age": lambda path: remap_ssd.compare(age=path),
    "out": lambda path: remap_ssd.compare("none", out=path / "x", scale="1/256", writes=100),
    "report": lambda path: remap_ssd.compare("none", report=path / "x", scale="1/256", writes=100),
    "Config.load": remap_ssd.Config.load,
    "Device.load": remap_ssd.Device.load,
    "Device.save": lambda path: remap_ssd.Device().save(path / "x"),
    "Trace.load": remap_ssd.Trace.load,
    "Trace.save": lambda path: remap_ssd.Trace(["read"], [0]).save(path / "x"),
    "Sweep.open": remap_ssd.Sweep.open,
    "grid": lambda path: remap_ssd.sweep(path, path.parent / "into"),
    "trace of a grid": lambda path: remap_ssd.sweep({"trace": [path]}, path.parent / "into"),
    "config of a grid": lambda path: remap_ssd.sweep({"config": path}, path.parent / "into"),
}


@pytest.mark.parametrize("call", MISSING.values(), ids=MISSING)
def test_a_missing_file_is_file_not_found_everywhere(tmp_path, call):
    with pytest.raises(FileNotFoundError) as raised:
        call(tmp_path / "missing")
    error = raised.value
    assert isinstance(error, remap_ssd.NotFound) and error.errno == 2
    assert str(tmp_path / "missing") in str(error) and str(error.filename).startswith(str(tmp_path / "missing"))


def test_what_a_device_refuses_is_an_error_too():
    device = remap_ssd.Device()
    with pytest.raises(remap_ssd.Error, match="LBA out of range"):
        device.read(device.logical_pages)
