"""Type checkers find misspelt names of figures and columns."""

import json
import pathlib
import subprocess
import sys

import pytest

import figures

PACKAGE = pathlib.Path(__file__).parents[1] / "remap_ssd"

RIGHT = """
import remap_ssd
from remap_ssd import plot

results = remap_ssd.compare(["none", "remap-ssd"], scale="1/64")
run = results["remap-ssd"]
amplification: float = (run.write_amplification or 0.0) + run.bandwidth_mib_s
pages: int = run.host_pages + run.demotions.nvram_full
requests: int = run["latency_us"]["count"]
tail = run.latency_us.p99
half = run.ci95.read_latency_us.p999
at: list[float] = [sample["at_s"] for sample in run.samples]
if run.arrivals is not None:
    print(run.arrivals.response_us.mean)
plot.bars(results, "latency_us.p99")
plot.series(results, "bandwidth_mib_s")
print(results.config.feed.trace, remap_ssd.Config().firmware.log_bytes)

device = remap_ssd.Device()
took: int = device.read(0).latency_ns + device.write(0, b"").latency_ns
trace = remap_ssd.Trace.load("disk.csv")[:10]
try:
    remap_ssd.run(workload=lambda pages: [("write", 0)], trace=None, keep_devices=True).device
except remap_ssd.Error as error:
    print(error)

study = remap_ssd.Sweep.open("study")
frame = study.to_pandas(["option.seed", "option.flash.read_ns", "write_amplification", "latency_us.p99"])
for point, one in study:
    print(point["seed"], one.iops, one.to_dict())
"""

# One letter each, in names of figures and columns.
TYPOS = [
    ("run.write_amplification", "run.write_amplificaton"),
    ("run.latency_us.p99", "run.latency_us.p9"),
    ("run.ci95.read_latency_us", "run.ci95.read_latencies_us"),
    ('sample["at_s"]', 'sample["at"]'),
    ('run["latency_us"]["count"]', 'run["latency_us"]["counts"]'),
    ('plot.bars(results, "latency_us.p99")', 'plot.bars(results, "latency.p99")'),
    ('plot.series(results, "bandwidth_mib_s")', 'plot.series(results, "bandwith_mib_s")'),
    ('"option.seed"', '"option.sead"'),
    ("one.iops", "one.iop"),
    ("run.demotions.nvram_full", "run.demotion.nvram_full"),
]


def test_the_types_are_those_of_the_simulators_records():
    written = (PACKAGE / "_figures.pyi").read_text(encoding="utf-8")
    assert written == figures.text(), "python python/tests/figures.py writes the file anew"


def errors(path):
    """The lines in which pyright finds an error."""
    words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=path.parent)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"]: one["message"] for one in found if one["severity"] == "error"}


def test_pyright_finds_each_misspelt_name_and_nothing_else(tmp_path):
    pytest.importorskip("pyright")
    right = tmp_path / "right.py"
    right.write_text(RIGHT)
    assert errors(right) == {}

    # One in a line, all in one file: each start of pyright takes seconds.
    lines, planted = RIGHT.splitlines(), set()
    for name, typo in TYPOS:
        (at,) = (at for at, line in enumerate(lines) if name in line)
        assert at not in planted
        lines[at] = lines[at].replace(name, typo)
        planted.add(at)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("\n".join(lines) + "\n")
    assert set(errors(wrong)) == planted
