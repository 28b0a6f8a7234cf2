"""Debian packages that a rig needs."""

import os
import shutil
import subprocess


def installed(packages):
    """Installs packages if possible; the caller checks again for missing ones."""
    if packages and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # The lock of `./check`, whose parts install packages beside each other.
        alone = ["flock", "/run/lock/remap-ssd-apt"]
        subprocess.run([*alone, "apt-get", "-qq", "update"], **quiet)
        install = [*alone, "apt-get", "-qq", "-y", "--no-install-recommends", "install", *sorted(packages)]
        # Debian starts the servers that it installs; here the rig starts them.
        policy = "/usr/sbin/policy-rc.d"
        ours = not os.path.exists(policy)
        if ours:
            with open(policy, "w") as file:
                file.write("#!/bin/sh\nexit 101\n")
            os.chmod(policy, 0o755)
        try:
            subprocess.run(install, env=environment, **quiet)
        finally:
            if ours:
                os.remove(policy)
