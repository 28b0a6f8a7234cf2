"""A package build: Debian's source package of lz4 becomes its binary packages, with Debian's own tools.

Compilers write objects, libraries are linked from them, installed into a folder, stripped, and packed: files that are similar, but
seldom equal page by page. Absent: the source package's own tests, which write nothing.
"""

import glob
import hashlib
import os
import shutil
import subprocess
import tempfile

from programs import Program
from served import Failure, command

PACKAGE = "lz4"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def archive():
    """The Debian archive that this machine's packages come from, and its release."""
    named = command("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Identifier: Packages")
    for line in named.splitlines():
        address, release = line.split()
        if address.rstrip("/").endswith("/debian"):
            return address, release
    raise Failure("this machine's apt sources name no Debian archive to take a source package from")


def fetch(folder):
    """Fetches the source package with a private apt source list; the machine's does not change."""
    address, release = archive()
    os.makedirs(os.path.join(folder, "lists", "partial"))
    sources = os.path.join(folder, "sources.list")
    with open(sources, "w") as file:
        file.write(f"deb-src [signed-by={KEYRING}] {address} {release} main\n")

    options = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": os.path.join(folder, "lists"),
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    command("apt-get", "-qq", *given, "update", cwd=folder)
    command("apt-get", "-qq", *given, "--download-only", "source", PACKAGE, cwd=folder)


class PackageBuild(Program):
    """dpkg-buildpackage of a small library and its tools."""

    tools = {"dpkg-buildpackage": "dpkg-dev", "dh": "debhelper", "g++": "build-essential"}
    environment = {"DEB_BUILD_OPTIONS": "nocheck noautodbgsym parallel=2", "LC_ALL": "C"}
    # Both runs build the sources fetched once.
    fetched = None

    def about(self):
        return f"dpkg-buildpackage of Debian's {PACKAGE}, from unpacking the source to its .deb files"

    def obtain(self):
        folder = tempfile.TemporaryDirectory(prefix="programs.source.")
        fetch(folder.name)
        PackageBuild.fetched = folder

    def prepare(self, folder, aside):
        for path in glob.glob(os.path.join(PackageBuild.fetched.name, f"{PACKAGE}_*")):
            shutil.copy(path, folder)

    def run(self, folder, aside):
        (description,) = glob.glob(os.path.join(folder, "*.dsc"))
        source = os.path.join(folder, "source")
        command("dpkg-source", "--no-check", "-x", description, source, cwd=folder)
        # Leftovers of killed compilers are removed with this run.
        environment = {**os.environ, **self.environment, "TMPDIR": aside}
        # Root needs no fakeroot. `tools` lists the build requirements.
        command("dpkg-buildpackage", "-b", "-us", "-uc", "-d", "-rtrue", cwd=source, env=environment)

    def digest(self, folder, aside):
        packages = sorted(glob.glob(os.path.join(folder, "*.deb")))
        if not packages:
            raise Failure("the build has made no package")
        digest = hashlib.sha256()
        for package in packages:
            digest.update(os.path.basename(package).encode())
            digest.update(subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout)
        return digest.hexdigest()

    def after_kill(self, folder, aside):
        """Only the source package was synced."""
        command("dpkg-source", "--no-check", "-x", *glob.glob(os.path.join(folder, "*.dsc")), os.path.join(aside, "source"))
