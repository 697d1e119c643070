"""Stops one thread of a process, as if it hung, while the others go on: its heartbeats, say.

with FrozenThread(worker.child.pid, "executor 0"): the thread of that name (as /proc lists it) stands still within
oneDNN: not elsewhere, where it might hold a lock that others want, malloc's for one. It goes on at the end of the
block, or by thaw(). If the process dies meanwhile, its end is seen by reaped(process), not by process.wait(): the system
keeps a process until whoever stopped its threads has asked for them.

By ptrace, so on processes that this one has started, on one thread of this process."""
import ctypes
import os
import time

from harness import PATIENCE, Skip, wait_for

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def ptrace(request, thread):
    if LIBC.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def threads_named(pid, name):
    """Their numbers."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/comm") as comm:
                if comm.read().rstrip("\n") == name:
                    found.append(int(thread))
        except OSError:  # it has ended
            continue
    return found


def is_in_onednn(pid, address):
    """Whether the address lies in oneDNN's library, or in code that it has written, which no file backs."""
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            span, rights, _, _, _, *path = line.split(maxsplit=5)
            begin, end = (int(bound, 16) for bound in span.split("-"))
            if begin <= address < end:
                return "x" in rights and (not path or "/libdnnl.so" in path[0])
    return False


class FrozenThread:
    def __init__(self, pid, name):
        self.pid = pid
        self.thread = wait_for(lambda: threads_named(pid, name), f"thread {name} of process {pid}")[0]
        self.is_frozen = False
        end = time.monotonic() + PATIENCE
        try:
            while not self.freeze():
                assert time.monotonic() < end, f"thread {name} of process {pid} never computes"
                time.sleep(0.001)
        except PermissionError as refused:
            raise Skip(f"this machine allows no ptrace: {refused}") from refused

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.thaw()

    def freeze(self):
        """False: it was in the kernel or not at its products, and goes on."""
        ptrace(PTRACE_SEIZE, self.thread)
        ptrace(PTRACE_INTERRUPT, self.thread)
        os.waitpid(self.thread, WALL)
        with open(f"/proc/{self.pid}/task/{self.thread}/syscall") as place:
            call, *_, counter = place.read().split()
        self.is_frozen = call == "-1" and is_in_onednn(self.pid, int(counter, 16))
        if not self.is_frozen:
            ptrace(PTRACE_DETACH, self.thread)
        return self.is_frozen

    def thaw(self):
        if not self.is_frozen:
            return
        self.is_frozen = False
        try:
            ptrace(PTRACE_DETACH, self.thread)
        except ProcessLookupError:  # it was killed meanwhile
            os.waitpid(self.thread, WALL)

    def reaped(self, process):
        """The exit status of a harness.Process whose thread this is; None while it lives."""
        if self.is_frozen and os.waitpid(self.thread, WALL | os.WNOHANG)[0]:
            self.is_frozen = False
        return process.child.poll()
