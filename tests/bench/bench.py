#!/usr/bin/env python3
"""`make bench`: what training and the data plane reach on this machine, each beside its alternative in the same run.

Machines are noisy: rounds alternate between the two sides, and medians and ratios are what to quote."""
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from harness import Folder, done_event, program, weir  # noqa: E402

ROUNDS = 3
TRAIN = ("  steps: 150\n  batch: 128\n  microbatches: 8\n  seed: 1\n"
         "  optimizer: {lr: 0.05, momentum: 0.9, weight_decay: 0.0005}\n")


def train_rate(folder, spec, workers):
    """Samples per second of one run of the demo's model, one executor per worker."""
    with tempfile.TemporaryDirectory(dir=folder.path) as out:
        metrics = os.path.join(out, "metrics.jsonl")
        weir("train", spec, "--workers", workers, "--servers", 2, "--threads", 1, "--out", os.path.join(out, "run"),
             "--metrics", metrics)
        return done_event(metrics)["samples_per_second"]


def bench_training():
    with Folder() as folder:
        model = folder.model("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")
        spec = folder.spec(model, train=TRAIN)
        rates = {1: [], 2: []}
        for _ in range(ROUNDS):
            for workers, found in rates.items():
                found.append(train_rate(folder, spec, workers))
        for workers, found in rates.items():
            print(f"training, demo's model, {workers} worker{'s' if workers > 1 else ''}: "
                  f"{statistics.median(found):.0f} samples/s (median of {ROUNDS}; "
                  f"{min(found):.0f} to {max(found):.0f})")
        ratio = statistics.median(two / one for one, two in zip(rates[1], rates[2]))
        print(f"2 workers beside 1: {ratio:.2f} times (2 cores hold 2 workers, 2 servers and the coordinator)")


def main():
    bench_training()
    sys.stdout.flush()
    subprocess.run([program("tests/bench/rpc_bench")], check=True)


if __name__ == "__main__":
    main()
