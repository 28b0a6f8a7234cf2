"""The time of the same commands on FAST'21's setup A, by the project's model.

A recording is replayed on an empty device: the creation of the file system, then the commands of one arm. The difference between a replay that
ends before cleaning and one that ends after it is the time of cleaning. Requests are sent 32 at a time, as `compare` does: an arm's own
waits count in the guest's time, not here.
"""

import json
import os

from served import Failure, command

# experiments/papers/fast21.toml, [setup.sqlite]: setup A, new, without deduplication.
DEVICE = {"addressable": "1.0", "superblocks": "640", "gc_at_once": "true", "gc_joins_host": "true", "dedup": "false"}
SCALE = "1/64"


def setup_a(program, path):
    text = command(program, "presets", "--toml", "fast21-32g").splitlines()
    with open(path, "w") as file:
        for line in text:
            key = line.split(" = ")[0]
            file.write(f"{key} = {DEVICE[key]}\n" if key in DEVICE else f"{line}\n")


def replayed(program, device, trace, schemes):
    """By scheme: seconds and remaps."""
    names = ",".join(schemes)
    told = json.loads(command(program, "compare", "--config", device, "--scale", SCALE, "--scheme", names, "--no-aging", "--trace", trace, "--json"))
    return {run["scheme"]: (run["seconds_simulated"], run["remaps"]) for run in told["runs"]}


def marks_of(lines, last_page):
    """The place at which the last page, which is in no file system, was deallocated."""
    return [number for number, line in enumerate(lines) if line.split()[1:] == ["D", str(last_page), "1"]]


def phase_times(program, folder, recording, last_page, schemes):
    """By scheme: the seconds from each mark to the next."""
    device, trace = os.path.join(folder, "setup-a.toml"), os.path.join(folder, "trace.session")
    setup_a(program, device)
    with open(recording) as file:
        lines = file.readlines()
    ends = []
    for end in marks_of(lines, last_page):
        with open(trace, "w") as file:
            file.writelines(lines[:end])
        ends.append(replayed(program, device, trace, schemes))
    os.remove(trace)
    return {scheme: [round(after[scheme][0] - before[scheme][0], 6) for before, after in zip(ends, ends[1:])] for scheme in schemes}


def modelled(program, folder, made, recording, last_page):
    """Seconds, and remaps, between the two marks, which are deallocations of the last page."""
    device, trace = os.path.join(folder, "setup-a.toml"), os.path.join(folder, "trace.session")
    setup_a(program, device)
    with open(made) as file:
        before = file.readlines()
    with open(recording) as file:
        lines = file.readlines()
    marks = marks_of(lines, last_page)
    if len(marks) != 2:
        raise Failure(f"{recording}: {len(marks)} marks, not 2")
    found = []
    for end in marks:
        with open(trace, "w") as file:
            file.writelines(before)
            file.writelines(lines[:end])
        found.append(replayed(program, device, trace, ["remap-ssd"])["remap-ssd"])
    os.remove(trace)
    (seconds_before, remaps_before), (seconds_after, remaps_after) = found
    return round(seconds_after - seconds_before, 6), remaps_after - remaps_before
