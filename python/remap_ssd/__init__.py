"""An SSD whose pages can be remapped, in virtual time.

>>> import remap_ssd
>>> both = remap_ssd.compare(schemes=["none", "remap-ssd"], scale="1/64")
>>> [(run.scheme, run.write_amplification) for run in both.runs]

``compare`` and ``run`` measure schemes, ``Config`` describes a device, ``Trace`` holds requests from arrays or
tables, and ``Device`` is one device, used step by step, whose power can be cut. The same seed gives exactly the
figures of the command line.
"""

from ._compare import compare, run
from ._config import Config, presets
from ._device import Completion, Device, Place
from ._native import Failed, Refused, __version__
from ._results import Record, Results, Run
from ._sweep import Sweep, sweep
from ._trace import Trace

__all__ = [
    "Completion",
    "Config",
    "Device",
    "Failed",
    "Place",
    "Record",
    "Refused",
    "Results",
    "Run",
    "Sweep",
    "Trace",
    "__version__",
    "compare",
    "presets",
    "run",
    "sweep",
]
