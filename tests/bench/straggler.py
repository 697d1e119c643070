"""One slow worker among three: the time of a step beside the best split of its microbatches in whole numbers. The
processor's time of each worker is limited by a control group of its own, so that all speeds are known on any machine."""
import itertools
import os
import statistics

from harness import Cluster, Folder, Process, Skip, program, read_metrics, wait_for, weir

SPEEDS = (1.0, 1.0, 1.0, 0.25)
MICROBATCHES = (8, 12, 16)
FULL_SPEED = 0.4  # of a core: four workers have two cores, and the servers what is left
PERIOD_US = 10000
SETTLED_SECONDS, STEPS = 12.0, 24  # shares follow speeds after some seconds; then so many steps are measured
V1, V2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"


class Quota:
    """A control group that gives its processes this part of a core; removed at the end of the `with` block."""
    made = 0

    def __init__(self, cores):
        Quota.made += 1
        is_v1 = os.path.isdir(V1)
        self.path = os.path.join(V1 if is_v1 else V2, f"weir-bench-{os.getpid()}-{Quota.made}")
        quota_us = int(cores * PERIOD_US)
        try:
            os.mkdir(self.path)
            if is_v1:
                self.write("cpu.cfs_period_us", PERIOD_US)
                self.write("cpu.cfs_quota_us", quota_us)
            else:
                self.write("cpu.max", f"{quota_us} {PERIOD_US}")
        except OSError as error:
            raise Skip(f"no control group can be made: {error}") from error

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def add(self, process):
        self.write("cgroup.procs", process.child.pid)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        os.rmdir(self.path)


def step_seconds(folder, speeds, microbatches):
    """The median time of a step of workers of these speeds, once their shares have settled."""
    train = (f"  steps: 100000\n  batch: {microbatches * 32}\n  microbatches: {microbatches}\n  seed: 1\n"
             "  optimizer: {lr: 0.01}\n")
    spec = folder.spec(folder.file("lenet.onnx"), train=train, tail=f"workers: {{min: {len(speeds)}}}\n")
    number = len(os.listdir(folder.path))
    metrics = folder.file(f"metrics-{number}.jsonl")
    quotas = [Quota(FULL_SPEED * speed) for speed in speeds]
    try:
        with Cluster(folder, servers=1, workers=0, store=f"file://{folder.path}/store-{number}") as cluster:
            for quota in quotas:
                quota.add(cluster.add_worker())
            run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()
            seconds = follow(cluster, run, metrics)
            weir("cancel", run, "--coordinator", cluster.address)
    finally:
        for quota in quotas:
            quota.__exit__()
    return statistics.median(seconds)


def follow(cluster, run, metrics):
    """The times of STEPS steps after the first SETTLED_SECONDS."""
    with Process(program("weir"), "watch", run, "--coordinator", cluster.address, "--metrics", metrics):
        def settled():
            events = [event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"]
            passed = list(itertools.accumulate(events))
            kept = [took for took, at in zip(events, passed) if at > SETTLED_SECONDS]
            return kept if len(kept) >= STEPS else None
        return wait_for(settled, "the steps that are measured")


def best_split(speeds, microbatches):
    """The smallest possible largest of n / speed over all splits in whole numbers."""
    shares = [0] * len(speeds)
    for _ in range(microbatches):  # each goes to whom it delays least, which is the best for equal tasks
        least = min(range(len(speeds)), key=lambda i: (shares[i] + 1) / speeds[i])
        shares[least] += 1
    return max(share / speed for share, speed in zip(shares, speeds)), shares


def main():
    with Folder() as folder:
        folder.model("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")
        try:
            one, four = step_seconds(folder, SPEEDS[:3], 3), step_seconds(folder, SPEEDS[:3], 12)
        except Skip as reason:
            print(f"straggler: skipped: {reason}")
            return
        each = (four - one) / 3
        print(f"straggler: three workers of one speed: a step of 3 microbatches {one * 1000:.0f} ms, of 12 {four * 1000:.0f} ms, "
              f"so {each * 1000:.0f} ms a microbatch and {(one - each) * 1000:.0f} ms beside")
        for microbatches in MICROBATCHES:
            rounds, shares = best_split(SPEEDS, microbatches)
            best, took = one - each + rounds * each, step_seconds(folder, SPEEDS, microbatches)
            even = one - each + microbatches / 4 / SPEEDS[3] * each
            print(f"  speeds 1, 1, 1, 1/4, {microbatches} microbatches: {took * 1000:.0f} ms; the best split "
                  f"{shares} takes {best * 1000:.0f} ms: {best / took:.2f} of it; equal shares would take {even * 1000:.0f} ms")
        print(f"  the three workers' step of 12 again: {step_seconds(folder, SPEEDS[:3], 12) / four:.2f} of what it took at first")
