"""Late gradients. samples/s of sync, of ssp and of async while one of two workers is frozen for 200 ms twice a second; and what a
lag, or updates by microbatches, cost: accuracy after two epochs of Fashion-MNIST, by optimizer.
`make bench PARTS="late late-accuracy async-accuracy"`."""
import itertools
import os
import re
import signal
import statistics
import threading

import rounds
from harness import Cluster, Folder, Process, newest_step, program, read_metrics, wait_for, weir

ROUNDS = 1 if os.environ.get("WEIR_BENCH_QUICK") else 3
ASYNC = "async"
LAGS = (None, 1, 2, 4)  # None: sync
FROZEN_SECONDS, PERIOD_SECONDS = 0.2, 0.5
SETTLED_STEPS, STEPS = 40, 80  # shares follow speeds after the first of them; the others are measured
OPTIMIZERS = {"sgd": "{name: sgd, lr: 0.1}", "sgd, momentum": "{name: sgd, lr: 0.02, momentum: 0.9}",
              "adam": "{name: adam, lr: 0.002}", "adamw": "{name: adamw, lr: 0.002, weight_decay: 0.01}"}


def mode(lag):
    """Of sync, of ssp with that lag, or of async."""
    if lag == ASYNC:
        return "  mode: async\n"
    return "" if lag is None else f"  mode: ssp\n  staleness: {lag}\n"


def name_of(lag):
    return lag if lag == ASYNC else "sync" if lag is None else f"ssp {lag}"


class Freezer:
    """Freezes a process now and then, until the end of the `with` block."""

    def __init__(self, process):
        self.process, self.is_over = process, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.is_over.wait(PERIOD_SECONDS - FROZEN_SECONDS):
            self.process.send(signal.SIGSTOP)
            self.is_over.wait(FROZEN_SECONDS)
            self.process.send(signal.SIGCONT)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *unused):
        self.is_over.set()
        self.thread.join()


def rate(folder, name, mode_lines, is_frozen):
    """Samples a second of two workers once their shares have settled."""
    batch = 512
    train = (f"  steps: {SETTLED_STEPS + STEPS}\n  batch: {batch}\n  microbatches: 16\n  seed: 1\n  optimizer: {{lr: 0.01}}\n"
             + mode_lines)
    spec = folder.spec(folder.file("lenet.onnx"), train=train, tail="workers: {min: 2}\n")
    metrics = folder.file(f"metrics-{name}-{is_frozen}.jsonl")
    with Cluster(folder, servers=1, workers=2, store=f"file://{folder.path}/store-{name}-{is_frozen}") as cluster, \
            Process(program("weir"), "submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address) as client:
        wait_for(lambda: newest_step(metrics) >= 0, "the first step")
        if is_frozen:
            with Freezer(cluster.workers[1]):
                assert client.wait() == 0, client.output()
        else:
            assert client.wait() == 0, client.output()
    seconds = [event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"]
    return batch * STEPS / sum(seconds[SETTLED_STEPS:])


def free_and_frozen(folder, name, mode_lines):
    return tuple(rate(folder, name, mode_lines, is_frozen) for is_frozen in (False, True))


def main():
    numbers = itertools.count()
    with Folder() as folder:
        folder.model("lenet", "--channels", "32,64", "--hidden", "128", "--seed", "1")
        print(f"late: samples/s of two workers, undisturbed and with one of them frozen for 200 ms twice a second; {ROUNDS} rounds")
        seen = rounds.alternate({name_of(lag): lambda lag=lag: free_and_frozen(folder, str(next(numbers)), mode(lag))
                                 for lag in (*LAGS, ASYNC)}, ROUNDS, control="sync")
    for name, rates in seen.items():
        free, frozen = zip(*rates)
        print(f"  {name:7} {statistics.median(free):7.0f}  {statistics.median(frozen):7.0f}: {rounds.spread(rounds.ratios(frozen, free))} "
              f"of it; frozen, times sync's: {rounds.compare(seen, name, 'sync', 1)}", flush=True)


def accuracy(folder, optimizer, lag, workers=1):
    train = f"  epochs: 2\n  batch: 128\n  microbatches: 4\n  seed: 1\n  optimizer: {optimizer}\n{mode(lag)}"
    spec = folder.spec(folder.file("mlp.onnx"), train=train, data="  eval: {format: idx, images: t10k-images-idx3-ubyte.gz, "
                       "labels: t10k-labels-idx1-ubyte.gz}\n")
    out = folder.file(f"run-{len(os.listdir(folder.path))}")
    weir("train", spec, "--threads", 2 // workers, "--workers", workers, "--out", out)
    events = read_metrics(os.path.join(out, "metrics.jsonl"))
    return [event for event in events if event["event"] == "eval"][-1]


def accuracies():
    """Which learning rate is good for a lag is not searched: each optimizer has one that is good for sync."""
    with Folder() as folder:
        folder.model("mlp", "--hidden", "128", "--seed", "1")
        print("late-accuracy: accuracy (and loss) of an MLP on Fashion-MNIST after two epochs: " + ", ".join(map(name_of, LAGS)))
        for name, optimizer in OPTIMIZERS.items():
            found = [accuracy(folder, optimizer, lag) for lag in LAGS]
            print(f"  {name:13} " + "  ".join(f"{event['accuracy']:.2%} ({event['loss']:.3f})" for event in found), flush=True)


def async_accuracies():
    """Each microbatch of four is an update: at the rate that is good for one update of all of them, and at a quarter of it."""
    with Folder() as folder:
        folder.model("mlp", "--hidden", "128", "--seed", "1")
        print("async-accuracy: accuracy (and loss) of an MLP on Fashion-MNIST after two epochs, by two workers: sync, async, "
              "async at a quarter of the rate")
        for name, optimizer in OPTIMIZERS.items():
            quarter = re.sub(r"lr: ([0-9.]+)", lambda found: f"lr: {float(found[1]) / 4:g}", optimizer)
            found = [accuracy(folder, *run, workers=2) for run in ((optimizer, None), (optimizer, ASYNC), (quarter, ASYNC))]
            print(f"  {name:13} " + "  ".join(f"{event['accuracy']:.2%} ({event['loss']:.3f})" for event in found), flush=True)
