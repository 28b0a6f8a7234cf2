"""The virtual machine: Debian's kernel that f2fs.ko was built for, on rig/setup's QEMU and root file system.

Invariants: the guest executes one order at a time and answers it with one line; a machine that has ended, or is silent for too long, is a
failure. Absent: the orders.
"""

import glob
import json
import lzma
import os
import re
import shutil
import subprocess
import threading
import queue
import time

from served import Failure, command

rig = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ANSWER_SECONDS = int(os.environ.get("LIMIT", "600"))
# Modules to find the root, and those for the file system and the device; other kernels' module folders have them under the same names.
MODULES = ["virtio_pci", "virtio_blk", "virtio_net", "ext4", "crc32c_generic", "crc32c_intel", "crc32_generic", "nvme_tcp", "f2fs"]
# The guest's script of rig/f2fs, and the programs that it runs.
OURS = [os.path.join(rig, "cleaning", name) for name in ("f2fs", "work.py", "load.py")]


class Ended(Failure):
    """The machine has ended."""


def scratch():
    """rig/setup's folder, found as rig/setup does."""
    return command("bash", "-c", '. "$1/common.sh"; echo "$scratch"', "bash", rig).strip()


def own(tree, *arguments):
    """Runs a program of an unpacked tree."""
    return command("bash", "-c", '. "$0/common.sh"; own "$@"', rig, tree, *arguments)


class Kernel:
    """A kernel image, unpacked, and the initramfs with the modules that it needs; f2fs comes later."""

    def __init__(self, image, release, folder):
        self.root = os.path.join(scratch(), "root.img")
        self.image, self.release = image, release
        self.vmlinuz = os.path.join(image, "boot", f"vmlinuz-{release}")
        merged = os.path.join(image, "usr", "lib", "modules", release)
        self.tree = merged if os.path.isdir(merged) else os.path.join(image, "lib", "modules", release)
        self.early = os.path.join(folder, "early")
        self.stock = os.path.join(folder, "stock.ko")
        self.drivers = []
        self.make_early()

    def ordered(self):
        """Module files, each after those that it needs."""
        base = self.tree.removesuffix(os.path.join("lib", "modules", self.release))
        own("guest", "depmod", "-b", base, self.release)
        needs = {}
        with open(os.path.join(self.tree, "modules.dep")) as file:
            for line in file:
                path, _, rest = line.strip().partition(":")
                needs[path] = rest.split()
        names = {re.sub(r"\.ko(\.xz|\.zst)?$", "", os.path.basename(path)).replace("-", "_"): path for path in needs}
        found = []
        for name in MODULES:
            # Built-in modules have no file.
            if name in names:
                for path in [*reversed(needs[names[name]]), names[name]]:
                    if path not in found:
                        found.append(path)
        return found

    def unpack(self, path, to):
        source = os.path.join(self.tree, path)
        if path.endswith(".xz"):
            with lzma.open(source) as packed, open(to, "wb") as module:
                shutil.copyfileobj(packed, module)
        else:
            shutil.copy(source, to)

    def make_early(self):
        """Modules that are loaded before the root is mounted."""
        shutil.rmtree(self.early, ignore_errors=True)
        for folder in ("bin", "dev", "proc", "sys", "newroot", "modules"):
            os.makedirs(os.path.join(self.early, folder))
        shutil.copy(os.path.join(scratch(), "guest", "usr", "bin", "busybox"), os.path.join(self.early, "bin"))
        shutil.copy(os.path.join(rig, "guest", "init"), self.early)
        os.chmod(os.path.join(self.early, "init"), 0o755)
        with open(os.path.join(self.early, "modules", "order"), "w") as order:
            for path in self.ordered():
                name = os.path.basename(path).removesuffix(".xz")
                # The stock module is loaded later, in the same way as this project's.
                if name == "f2fs.ko":
                    self.unpack(path, self.stock)
                # The guest loads these, with options that a machine's user chooses.
                elif name.startswith("nvme"):
                    self.drivers.append(os.path.join(os.path.dirname(self.early), name))
                    self.unpack(path, self.drivers[-1])
                else:
                    self.unpack(path, os.path.join(self.early, "modules", name))
                    order.write(f"{name}\n")

    def initramfs(self, to, extra):
        """The early part, plus the contents of the folder `extra`."""
        busybox = os.path.join(self.early, "bin", "busybox")
        pack = 'cd "$1" && find . | "$2" cpio -o -H newc 2> /dev/null'
        with open(to, "wb") as file:
            for folder in (self.early, extra):
                subprocess.run(["bash", "-c", pack, "bash", folder, busybox], stdout=file, check=True)


class SetupKernel:
    """A kernel of rig/setup's, whose modules are on the root file system, where the guest loads them by modprobe."""

    drivers = ()

    def __init__(self, name="stock"):
        """`name`: RIG_KERNEL of rig/setup."""
        self.place = scratch() if name == "stock" else os.path.join(scratch(), name)
        self.vmlinuz = os.path.join(self.place, "vmlinuz")
        self.root = os.path.join(self.place, "root.img")
        with open(os.path.join(self.place, "kernel.done")) as file:
            self.release = file.read().strip()

    def initramfs(self, to, extra):
        busybox = os.path.join(scratch(), "guest", "usr", "bin", "busybox")
        shutil.copy(os.path.join(self.place, "initramfs"), to)
        pack = 'cd "$1" && find . | "$2" cpio -o -H newc 2> /dev/null'
        with open(to, "ab") as file:
            subprocess.run(["bash", "-c", pack, "bash", extra, busybox], stdout=file, check=True)


class Machine:
    """A booted machine that waits for orders."""

    def __init__(self, kernel, folder, modules, nqn, records=(), task=OURS, multipath=True):
        """`modules`: f2fs.ko by arm. `records`: files that the guest finds in /run/rig. `task`: the guest's script, and the programs that it runs.

        `multipath`: Linux's default. With it a flush under way when the drive disappears is reported as done, so a guest that must outlive
        its drive must not have it (docs/f2fs.md).
        """
        self.folder = folder
        self.told = []
        self.console = os.path.join(folder, "console")
        extra = os.path.join(folder, "extra")
        shutil.rmtree(extra, ignore_errors=True)
        to = os.path.join(extra, "rig")
        os.makedirs(to)
        for source in [*glob.glob(os.path.join(rig, "guest", "*")), *task, *records, *kernel.drivers]:
            shutil.copy(source, to)
        with open(os.path.join(to, "drivers"), "w") as file:
            for driver in map(os.path.basename, kernel.drivers):
                file.write(f"{driver} {'multipath=N' if driver == 'nvme-core.ko' and not multipath else ''}\n")
        for arm, module in modules.items():
            shutil.copy(module, os.path.join(to, f"{arm}.ko"))
        with open(os.path.join(to, "settings"), "w") as file:
            file.write(f"TASK={os.path.basename(task[0])}\nTRANSPORT=tcp\nNQN={nqn}\nPORT=\n")
        initramfs = os.path.join(folder, "initramfs")
        kernel.initramfs(initramfs, extra)
        self.start(kernel, initramfs)

    def start(self, kernel, initramfs):
        base = scratch()
        share = os.path.join(base, "qemu", "usr", "share")
        qemu = ["qemu-system-x86_64", "-L", f"{share}/qemu", "-L", f"{share}/seabios", "-nodefaults", "-no-user-config", "-no-reboot"]
        qemu += ["-display", "none", "-machine", "q35,usb=off,smbus=off,sata=off,vmport=off", "-accel", os.environ.get("ACCEL", "tcg,thread=multi")]
        qemu += ["-cpu", "max", "-smp", "1", "-m", os.environ.get("MEMORY", "1024"), "-kernel", kernel.vmlinuz, "-initrd", initramfs]
        qemu += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on"]
        qemu += ["-drive", f"file={kernel.root},if=none,id=root,format=raw,readonly=on,cache=unsafe", "-device", "virtio-blk-pci,drive=root"]
        qemu += ["-netdev", "user,id=net,ipv6=off", "-device", "virtio-net-pci,netdev=net,romfile="]
        qemu += ["-serial", f"file:{self.console}", "-serial", "stdio"]
        self.log = open(os.path.join(self.folder, "qemu.log"), "w")
        become = ["bash", "-c", '. "$0/common.sh"; become qemu "$@"', rig, *qemu]
        self.process = subprocess.Popen(become, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            # A power cut may leave a partial line, which does not count.
            if line.endswith(b"\n"):
                self.lines.put(line.decode(errors="replace").strip())
        self.lines.put(None)

    def hear(self, seconds=ANSWER_SECONDS):
        """The guest's next line."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise Ended(f"the virtual machine says nothing for {seconds} s (LIMIT); its console is in {self.console}") from None
        if line is None:
            with open(self.log.name) as log:
                raise Ended(f"the virtual machine ended early; its console is in {self.console}\n{log.read()[-500:]}")
        return line

    def say(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Ended(f"the virtual machine ended early; its console is in {self.console}") from None

    def answer(self, *expected, other=None):
        """Waits for `@WORD {...}`; other lines go to `other`, or to `told`. Returns the word and the object."""
        told = self.told = []
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until:
            line = self.hear()
            word, _, rest = line.partition(" ")
            if word.startswith("@") and word[1:] in expected:
                return word[1:], json.loads(rest or "{}")
            if word == "@failed":
                raise Failure(f"the guest: {rest}\n" + "\n".join(told[-30:]))
            if other and other(line):
                continue
            told.append(line)
        raise Ended(f"the virtual machine does not answer; its console is in {self.console}")

    def kill(self):
        """Ends the machine like a power cut."""
        self.process.kill()
        self.process.wait()
        self.log.close()
