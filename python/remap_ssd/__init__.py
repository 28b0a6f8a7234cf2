"""An SSD whose pages can be remapped, in virtual time.

>>> import remap_ssd
>>> both = remap_ssd.compare(schemes=["none", "remap-ssd"], scale="1/64")
>>> [(run.scheme, run.write_amplification) for run in both.runs]

``compare`` and ``run`` measure schemes, ``sweep`` many combinations of options, ``Config`` describes a device, ``Trace`` holds requests
from arrays, tables or files, and ``Device`` is one device, used step by step, whose power can be cut. The same seed gives exactly the
figures of the command line. Errors are ``Error``, and of Python's kinds too (``ValueError``, ``FileNotFoundError``, ...).
"""

from ._compare import compare, run
from ._config import Config, presets
from ._device import Completion, Device, Place, Read, Replay
from ._errors import Error, Failed, NotFound, OutOfMemory, Refused, Stopped, UsageError
from ._native import __version__, stop
from ._results import Record, Results, Run
from ._sweep import Sweep, sweep
from ._trace import Trace
from ._workload import Command

__all__ = [
    "Command",
    "Completion",
    "Config",
    "Device",
    "Error",
    "Failed",
    "NotFound",
    "OutOfMemory",
    "Place",
    "Read",
    "Record",
    "Refused",
    "Replay",
    "Results",
    "Run",
    "Stopped",
    "Sweep",
    "Trace",
    "UsageError",
    "__version__",
    "compare",
    "presets",
    "run",
    "stop",
    "sweep",
]
