"""Flash writes and latency by scheme: a table of all schemes that FAST'21 compares."""

import argparse
import sys

import remap_ssd

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--scale", default="1/64", help="size of the device as a share of 32 GiB")
arguments.add_argument("--workload", default="zipfrw:0.9:30", help="as for remap-ssd compare")
options = arguments.parse_args()

results = remap_ssd.compare(scale=options.scale, workload=options.workload, progress=sys.stderr.isatty())

print(f"{'scheme':10}  {'write amplification':>19}  {'p99 of writes, us':>17}  {'remaps':>9}")
for run in sorted(results, key=lambda run: run.write_amplification):
    print(f"{run.scheme:10}  {run.write_amplification:19.3f}  {run.latency_us.p99:17,.0f}  {run.remaps:9,}")

best = min(results, key=lambda run: run.write_amplification)
assert best.write_amplification < results["none"].write_amplification, "30 % of the writes repeat a content"
