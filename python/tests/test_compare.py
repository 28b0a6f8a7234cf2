"""`compare` and `run` give exactly the command line's figures, and its messages."""

import contextlib
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import remap_ssd

SMALL = {"scale": "1/256", "writes": 20_000}
SMALL_WORDS = ["--scale", "1/256", "--writes", "20000"]


def test_two_schemes_have_the_command_lines_figures(command_line):
    ours = remap_ssd.compare(scale="1/64", schemes=["remap-ssd", "none"])
    theirs = command_line("--scale", "1/64", "--scheme", "remap-ssd,none")

    assert json.dumps(ours.to_dict()) == json.dumps(theirs)
    assert [run.scheme for run in ours.runs] == ["remap-ssd", "none"]
    for run, expected in zip(ours.runs, theirs["runs"]):
        assert set(run) == set(expected)
        for name, value in expected.items():
            shown = getattr(run, name)
            assert shown == run[name]
            assert (shown.to_dict() if isinstance(value, dict) else shown) == value
    assert ours["none"].write_amplification > ours["remap-ssd"].write_amplification


@pytest.mark.parametrize(
    "options",
    [
        {"workload": "zipfrw:0.99:70,pages=4", "content": "plain:0.3"},
        {"workload": "oltp", "duplicates": 0.1, "log_size": "40MiB", "queue_depth": 8},
        {"preset": "coldmap-16g", "schemes": "remap-ssd", "gc": ["greedy", "coldmap"], "aging": "fill=sequential"},
        {"dedup": False, "set": "geometry.superblock_dies=4", "schemes": ["none", "nlog"], "scale": "1/64"},
        {"seed": 7, "no_aging": True, "set": ["firmware.gc_free=0.2", "flash.endurance=900"], "threads": 1},
        {"schemes": ["none"], "set": "flash.endurance=20", "until_death": True, "writes": None},
    ],
)
def test_options_mean_what_they_mean_on_the_command_line(command_line, options):
    options = {**SMALL, **options}
    words = []
    for name, value in options.items():
        option = "--scheme" if name == "schemes" else "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None:
            text = {False: "off"}.get(value, value) if isinstance(value, bool) else value
            words += [option, ",".join(text) if isinstance(text, list) else str(text)]
    assert json.dumps(remap_ssd.compare(**options).to_dict()) == json.dumps(command_line(*words))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"scale": 2}, ["--scale", "2"]),
        ({"schemes": "x"}, ["--scheme", "x"]),
        ({"dedup": "maybe"}, ["--dedup", "maybe"]),
        ({"workload": "nothing"}, ["--workload", "nothing"]),
        ({"preset": "nothing"}, ["--preset", "nothing"]),
        ({"writes": 0}, ["--writes", "0"]),
        ({"aging": "fill=sequential", "no_aging": True}, ["--no-aging", "--aging", "fill=sequential"]),
        ({"schemes": "wal-ssd", "scale": "1/64"}, ["--scheme", "wal-ssd", "--scale", "1/64"]),
        ({"queue_depth": 0}, ["--queue-depth", "0"]),
    ],
)
def test_mistakes_are_value_errors_with_the_command_lines_sentence(refusal, options, words):
    with pytest.raises(ValueError) as raised:
        remap_ssd.compare(**options)
    code, said = refusal(*words)
    assert code == 2
    assert str(raised.value) and f"error: {raised.value}\n" in said


def test_what_cannot_be_done_is_failed_with_the_command_lines_sentence(refusal):
    with pytest.raises(remap_ssd.Failed) as raised:
        remap_ssd.compare(trace="/nowhere/trace")
    assert refusal("--trace", "/nowhere/trace") == (1, f"error: {raised.value}\n")


def test_what_is_no_option_is_a_type_error():
    for options in ({"sceme": "none"}, {"json": True}, {"help": True}, {"scheme": "none"}, {"skip_bad": 3}):
        with pytest.raises(TypeError):
            remap_ssd.compare(**options)


@pytest.mark.parametrize(
    "options, meant",
    [
        ({"sceme": "none"}, "`sceme` is no option of `compare`: did you mean `schemes`?"),
        ({"scheme": "none"}, "`scheme` is no option of `compare`: did you mean `schemes`?"),
        ({"queuedepth": 8}, "did you mean `queue_depth`?"),
        ({"workload": "zifp:0.9"}, "did you mean `zipf`?"),
        ({"workload": "oltb"}, "did you mean `oltp`?"),
        ({"schemes": "remap-sd"}, "did you mean `remap-ssd`?"),
        ({"mapping": "hybird"}, "did you mean `hybrid`?"),
        ({"gc": "greedi"}, "did you mean `greedy`?"),
        ({"preset": "fast21-32"}, "did you mean `fast21-32g`?"),
        ({"trace": "x", "format": "alibab"}, "did you mean `alibaba`?"),
        ({"trace": "x", "fold": "compct"}, "did you mean `compact`?"),
        ({"set": "firmware.gc_fre=0.2"}, "did you mean `firmware.gc_free`?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(options, meant):
    with pytest.raises((TypeError, ValueError)) as raised:
        remap_ssd.compare(**options)
    assert str(raised.value).endswith(meant) or meant in str(raised.value), raised.value
    if "sceme" in options:
        with pytest.raises(TypeError, match="did you mean `schemes`"):
            remap_ssd.run("none", **options)


def test_the_help_names_every_option_and_every_choice():
    import inspect
    import pydoc
    import re

    text = inspect.getdoc(remap_ssd.compare)
    heads = {name for line in text.splitlines() if re.fullmatch(r"[a-z_]+(, [a-z_]+)*", line) for name in line.split(", ")}
    assert heads == set(inspect.signature(remap_ssd.compare).parameters)

    def offered(sentence, **options):
        with pytest.raises(ValueError) as raised:
            remap_ssd.compare(**options)
        return re.search(sentence, str(raised.value))[1].replace(" or a model:", "").split(", ")

    choices = offered(r"there are (.*)", schemes="?") + offered(r"there are (.*)", gc="?") + offered(r"there are (.*)", mapping="?")
    choices += [name for name in offered(r"unknown workload `[?]`: (.*)", workload="?") if " " not in name]
    assert len(choices) > 30
    for name in choices:
        assert name in text, name

    # As `help` shows it, with the signature.
    assert "schemes:" in pydoc.render_doc(remap_ssd.compare) and ">>>" in text


def test_numbers_of_any_kind_are_numbers():
    import decimal
    import fractions

    import numpy

    plain = remap_ssd.run("none", scale="1/256", writes=2000, seed=3, log_size=40 << 20).to_dict()
    for options in (
        {"scale": fractions.Fraction(1, 256), "writes": numpy.int64(2000), "seed": numpy.uint8(3), "log_size": decimal.Decimal(40 << 20)},
        {"scale": numpy.float64(1 / 256), "writes": 2e3, "seed": numpy.int64(3), "log_size": numpy.array(40 << 20)},
    ):
        assert remap_ssd.run("none", **options).to_dict() == plain
    with pytest.raises(ValueError, match="'-1' for '--seed <N>': -1 is not a whole number from 0 to"):
        remap_ssd.run(seed=-1)
    with pytest.raises(ValueError, match="`seed` must be text, a number, or a list of them, and not b'x'"):
        remap_ssd.run(seed=b"x")
    with pytest.raises(TypeError, match="`progress` is True, False or a function, and not 3"):
        remap_ssd.run(progress=3)


def test_values_of_the_device_may_be_a_dict():
    both = {"firmware.gc_free": 0.2, "firmware.dedup": False}
    ours = remap_ssd.run("none", set=both, **SMALL)
    assert ours.to_dict() == remap_ssd.run("none", set=["firmware.gc_free=0.2", "firmware.dedup=false"], **SMALL).to_dict()


def test_a_run_hands_its_device_back():
    kept = remap_ssd.compare(["none", "remap-ssd"], keep_devices=True, **SMALL)
    plain = remap_ssd.compare(["none", "remap-ssd"], **SMALL)
    assert kept.to_dict() == plain.to_dict() and all(run.device is None for run in plain)
    for run in kept:
        device = run.device
        assert device.config.firmware.scheme == run.scheme and device.stats.firmware.host_writes > 20_000
        end = device.now_ns
        assert end > 0 and device.write(0, 1 << 50).start_ns == end
        assert device.cut(seed=1).read(0).content == 1 << 50
        device.check()
    assert pickle.loads(pickle.dumps(kept[0])).device is None


def test_results_are_tables_in_notebooks():
    results = remap_ssd.compare(["none", "remap-ssd"], **SMALL)
    page = results._repr_html_()
    assert page.startswith("<table>") and page.count("<tr>") == 3 and "write amplification" in page and "remap-ssd" in page
    assert f"{results[0].write_amplification:.4g}" in page and f"{results[0].write_amplification:.4g}" in results[0]._repr_html_()


def test_stop_ends_runs_in_threads():
    raised = []

    def run():
        try:
            remap_ssd.run("none", scale="1/2", no_aging=True, writes="2G")
        except remap_ssd.Stopped as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert not raised
    remap_ssd.stop()
    for thread in threads:
        thread.join(timeout=60)
    assert len(raised) == 2 and isinstance(raised[0], remap_ssd.Error)
    assert remap_ssd.run("none", **SMALL).host_pages == 20_000, "later runs are not affected"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("handler", ["signal.default_int_handler", "lambda *given: signal.default_int_handler(*given)"])
def test_ctrl_c_ends_a_pool_of_threads(handler):
    code = f"""
import concurrent.futures, remap_ssd, signal
signal.signal(signal.SIGINT, {handler})
begun = lambda jobs: jobs[0][1] == "measuring" and print("begun", flush=True)
def one(_):
    remap_ssd.run("none", scale="1/2", no_aging=True, writes="2G", progress=begun)
try:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(6)))
except KeyboardInterrupt:
    print("interrupted", remap_ssd.run("none", scale="1/256", writes=2000).host_pages, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    said, wrong = child.communicate(timeout=120)
    assert child.returncode == 0 and said.splitlines()[-1] == "interrupted 2000", wrong


def test_each_keyword_is_an_option_of_the_command_line():
    import inspect

    named = set(inspect.signature(remap_ssd.compare).parameters) - {"progress", "schemes", "keep_devices"}
    assert named | {"scheme"} == {name for name, _, _ in remap_ssd._native.compare_options()}


def test_one_run_is_the_run_of_a_comparison():
    run = remap_ssd.run("nlog", **SMALL)
    assert run.to_dict() == remap_ssd.compare("nlog", **SMALL).runs[0].to_dict()
    for wrong in (lambda: remap_ssd.run("none,nlog", **SMALL), lambda: remap_ssd.run("none", gc="greedy,cagc", **SMALL)):
        with pytest.raises(ValueError):
            wrong()


def test_a_config_is_a_device_file(command_line, tmp_path):
    config = remap_ssd.Config("fast21-32g", scale="1/256", flash={"read_ns": 40_000}, gc_free=0.2)
    path = tmp_path / "device.toml"
    path.write_text(config.to_toml())
    ours = remap_ssd.compare("none", config=config, writes=20_000).to_dict()
    assert ours == command_line("--scheme", "none", "--config", str(path), "--writes", "20000")
    assert ours == remap_ssd.compare("none", config=path, writes=20_000).to_dict()

    with pytest.raises(ValueError, match="^config.toml: scheme nlog: "):
        remap_ssd.compare("nlog", config=config, log_size=0)


def test_a_config_runs_with_its_own_scheme_unless_another_is_named(tmp_path):
    config = remap_ssd.Config("fast21-32g", scale="1/256", scheme="nlog")
    run = remap_ssd.run(config=config, writes=20_000)
    assert run.scheme == "nlog" and run.to_dict() == remap_ssd.run("nlog", config=config, writes=20_000).to_dict()
    assert [run.scheme for run in remap_ssd.compare(config=config, writes=20_000)] == ["nlog"]
    both = remap_ssd.compare(["none", "opt"], config=config, writes=20_000)
    assert [run.scheme for run in both] == ["none", "opt"]

    path = tmp_path / "device.toml"
    path.write_text(config.to_toml())
    assert remap_ssd.run(config=path, writes=20_000).scheme == "nlog"
    assert remap_ssd.run(writes=20_000, scale="1/256").scheme == "remap-ssd"
    with pytest.raises(remap_ssd.Failed, match="^/nowhere/device.toml: "):
        remap_ssd.run(config="/nowhere/device.toml")


def test_results_survive_pickling_and_name_what_is_missing():
    results = remap_ssd.compare("none", **SMALL)
    assert pickle.loads(pickle.dumps(results)).to_dict() == results.to_dict()
    assert pickle.loads(pickle.dumps(results.runs[0])).scheme == "none"
    with pytest.raises(AttributeError, match="no `throughput` here"):
        results.runs[0].throughput
    with pytest.raises(KeyError, match="no run of scheme 'nlog'"):
        results["nlog"]
    assert results.seed == 1 and results.config.scale == 1 / 256


def test_progress_is_told_and_ends_at_the_end():
    told = []
    remap_ssd.compare(["none", "remap-ssd"], scale="1/64", progress=told.append)
    assert [(name, message) for name, message, _ in told[-1]] == [("none", "done"), ("remap-ssd", "done")]
    assert all(0 <= share <= 1 for jobs in told for _, _, share in jobs)
    remap_ssd.run("none", **SMALL, progress=True)


def test_what_progress_raises_stops_the_runs():
    def stop(jobs):
        raise LookupError("enough")

    begin = time.monotonic()
    with pytest.raises(LookupError, match="enough"):
        remap_ssd.compare(scale="1/8", progress=stop)
    assert time.monotonic() - begin < 60


def test_other_threads_go_on_while_a_run_is_under_way():
    ticks = 0
    ended = threading.Event()

    def tick():
        nonlocal ticks
        while not ended.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    remap_ssd.run("none", scale="1/32")
    ended.set()
    thread.join()
    assert ticks > 10


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_gives_up_a_trace_that_is_being_read(tmp_path):
    # A pipe that is never closed: only a signal ends the reading.
    trace = tmp_path / "trace.csv"
    os.mkfifo(trace)
    code = f"""
import remap_ssd, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
def told(jobs):
    print(*jobs[0], flush=True)
remap_ssd.compare(["none"], trace={str(trace)!r}, format="alibaba", progress=told)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def feed():
        with contextlib.suppress(BrokenPipeError), open(trace, "w") as pipe:
            for number in itertools.count():
                pipe.write(f"0,W,{4096 * (number % 1000)},4096,{number}\n")

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    assert child.stdout.readline().split() == ["trace", "reading", "0.0"]

    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert child.returncode != 0 and "KeyboardInterrupt" in said, said
    writer.join(timeout=60)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_names_its_option(number):
    with pytest.raises(ValueError, match="`scale` must be a finite number"):
        remap_ssd.compare(scale=number)


def test_an_empty_path_is_refused_before_the_run():
    with pytest.raises(ValueError, match="invalid value '' for '--report <HTML>'"):
        remap_ssd.compare(report="", **SMALL)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("aging", [True, False])
def test_ctrl_c_stops_the_runs(aging):
    code = f"""
import remap_ssd, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs inherit that it is ignored.
def told(jobs):
    print(jobs[0][1], flush=True)
remap_ssd.compare(scale="1/2", no_aging={not aging}, writes="2G", progress=told)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in child.stdout:
        if line.strip() == ("aging" if aging else "measuring"):
            break
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert child.returncode != 0 and "KeyboardInterrupt" in said, said
