"""What TLS costs: push-pull and the training of the demo's model with it beside both in plaintext, in alternating rounds."""
import os
import resource
import statistics
import subprocess
import tempfile

import rounds
from harness import Folder, done_event, program, weir

ROUNDS = 5
SPEC = ("  steps: 150\n  batch: 128\n  microbatches: 8\n  seed: 1\n"
        "  optimizer: {lr: 0.05, momentum: 0.9, weight_decay: 0.0005}\n")


def cpu_seconds():
    """Of the processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(folder, spec, *options):
    """(samples per second, CPU-seconds of all processes, sha256 of the weights) of a run on a private cluster."""
    began = cpu_seconds()
    with tempfile.TemporaryDirectory(dir=folder.path) as out:
        metrics = os.path.join(out, "metrics.jsonl")
        weir("train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out", os.path.join(out, "run"),
             "--metrics", metrics, *options)
        done = done_event(metrics)
        return done["samples_per_second"], cpu_seconds() - began, done["weights_sha256"]


def main():
    with Folder() as folder:
        weir("certs", "init", folder.file("certs"))
        certificates = folder.file("certs/all")
        subprocess.run([program("tests/bench/rpc_bench"), certificates], check=True)
        folder.model("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")
        spec = folder.spec(folder.file("lenet.onnx"), train=SPEC)
        sides = {"in plaintext": lambda: train(folder, spec), "with TLS": lambda: train(folder, spec, "--tls", certificates)}
        seen = rounds.alternate(sides, ROUNDS, control="in plaintext")
    assert len({sha256 for runs in seen.values() for *_, sha256 in runs}) == 1, "TLS changes the bits"
    for name, runs in seen.items():
        print(f"training the demo's model on 2 workers and 2 servers {name}: "
              f"{statistics.median(rate for rate, *_ in runs):.0f} samples/s, "
              f"{statistics.median(cpu for _, cpu, _ in runs):.1f} CPU-seconds")
    plain, tls, control = ([rate for rate, *_ in seen[side]] for side in (*sides, rounds.CONTROL))
    print(f"ratio to plaintext, median of {ROUNDS} rounds: {rounds.beside(tls, plain, rounds.noise(plain, control))}")
