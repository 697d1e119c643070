"""Machines that lose packets: network namespaces around one that routes between them, all of them the test's own.

A packet that is to vanish is dropped by the router, so neither end is told: no reset, no refusal."""
import ctypes
import os
import subprocess
import sys

from harness import Process, Skip, wait_for

CLONE_NEWNET = 0x40000000
OWN = "WEIR_TEST_NETWORK"  # "own" in a namespace of ours, else why there is none
WAYS = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])


def enter():
    """Begins this program anew in a network namespace of its own, where that is allowed; returns in it."""
    if os.environ.get(OWN) == "own":
        probe()
    if OWN in os.environ:
        return
    reason = "no network namespace can be made"
    for way in WAYS:
        try:
            tried = subprocess.run([*way, sys.executable, os.path.abspath(__file__)], capture_output=True, text=True,
                                   check=False)
        except FileNotFoundError:
            reason = "unshare is not installed"
            break
        if tried.returncode == 0:
            os.environ[OWN] = "own"
            os.execvp(way[0], [*way, sys.executable, *sys.argv])
        reason = (tried.stderr.strip().splitlines() or [reason])[-1]
    os.environ[OWN] = reason


def command(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


class Machine:
    """A namespace with one link to the router, at 10.77.N.2."""

    def __init__(self, number):
        self.address, self.link = f"10.77.{number}.2", f"machine{number}"
        self.holder = Process("unshare", "--net", "sleep", "infinity")
        path = f"/proc/{self.holder.child.pid}/ns/net"
        wait_for(lambda: os.readlink(path) != os.readlink("/proc/self/ns/net"), "the machine")
        self.namespace = os.open(path, os.O_RDONLY)
        command("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.holder.child.pid)
        command("ip", "address", "add", f"10.77.{number}.1/24", "dev", self.link)
        command("ip", "link", "set", self.link, "up")
        for words in (("link", "set", "lo", "up"), ("address", "add", f"{self.address}/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up"), ("route", "add", "default", "via", f"10.77.{number}.1")):
            command("ip", *words, preexec_fn=self.enter)

    def enter(self):
        """For Popen's preexec_fn: the process is on this machine."""
        if ctypes.CDLL(None, use_errno=True).setns(self.namespace, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def limit(self, mbit, queue_ms=200):
        """Both directions of its link carry this many Mbit/s, and queue no more than that; None: as many as they can."""
        for device, options in ((self.link, {}), ("eth0", {"preexec_fn": self.enter})):
            if mbit is None:
                command("tc", "qdisc", "del", "dev", device, "root", **options)
            else:
                command("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb",
                        "latency", f"{queue_ms}ms", **options)

    def close(self):
        command("ip", "link", "del", self.link)  # or it would be there until the kernel has let go of the namespace
        self.holder.__exit__()
        os.close(self.namespace)


class Network:
    """The router is this process's namespace, which reaches all machines and is not cut off."""

    def __init__(self, machines):
        if os.environ.get(OWN) != "own":
            raise Skip(os.environ.get(OWN, "not in a network namespace"))
        os.environ["WEIR_INSECURE"] = "1"  # what is lost is not encrypted
        self.cuts = set()
        self.machines = [Machine(number) for number in range(1, machines + 1)]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for one, other in list(self.cuts):
            self.mend(one, other)
        for machine in self.machines:
            machine.close()

    def cut(self, one, other):
        """From here on packets between the two machines vanish."""
        self.cuts.add((one, other))
        for source, target in ((one, other), (other, one)):
            command("ip", "rule", "add", "from", source.address, "to", target.address, "blackhole")

    def mend(self, one, other):
        self.cuts.remove((one, other))
        for source, target in ((one, other), (other, one)):
            command("ip", "rule", "del", "from", source.address, "to", target.address, "blackhole")


def probe():
    """Whether a namespace has all that Network needs; this one routes from here on."""
    command("ip", "link", "set", "lo", "up")
    with open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
        forward.write("1")
    command("ip", "link", "add", "probe", "type", "veth", "peer", "name", "eborp")
    command("tc", "qdisc", "replace", "dev", "probe", "root", "tbf", "rate", "1mbit", "burst", "64kb", "latency", "200ms")
    command("ip", "link", "del", "probe")
    command("ip", "rule", "add", "from", "10.77.1.2", "to", "10.77.2.2", "blackhole")
    command("ip", "rule", "del", "from", "10.77.1.2", "to", "10.77.2.2", "blackhole")


if __name__ == "__main__":
    try:
        probe()
    except OSError as error:
        sys.exit(str(error))
