"""maturin's build, after a line that says how long it will take: pip shows nothing of a build, and this one compiles for minutes.

Absent: any change to the build.
"""

import sys

from maturin import *  # noqa: F403
from maturin import build_editable as _build_editable
from maturin import build_wheel as _build_wheel

_LINE = "remap-ssd: compiling the simulator takes some minutes on two cores; `pip install -v` shows the progress\n"


def _say():
    # pip keeps a build's own output to itself.
    for place in ("/dev/tty", None):
        try:
            with open(place, "w") if place else sys.stderr as terminal:
                terminal.write(_LINE)
            return
        except OSError:
            pass


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _say()
    return _build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _say()
    return _build_editable(wheel_directory, config_settings, metadata_directory)
