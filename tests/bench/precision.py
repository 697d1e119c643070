"""What the other precisions are beside fp32 on this CPU: forward and backward of one microbatch on one thread, rounds that
alternate, and fp32 a second time in each round as the control. WEIR_BENCH_MODELS names some of the models alone."""
import os
import statistics
import subprocess

import rounds
from harness import Folder, program

ROUNDS, STEPS = 5, 3
SIDES = ("fp32", "fp32-fast", "bf16")
# name, options of `weir model`, samples
MODELS = (("lenet", (), 128), ("mlp", ("--hidden", "1024,1024"), 128), ("resnet18", ("--input", "3,32,32"), 32),
          ("resnet50", ("--input", "3,64,64"), 16), ("mobilenet_v2", ("--input", "3,64,64"), 32),
          ("vit", ("--input", "3,64,64", "--patch", "8", "--width", "192", "--depth", "6", "--heads", "6"), 32),
          ("gpt", ("--vocabulary", "4096", "--context", "128", "--width", "256", "--depth", "4", "--heads", "4"), 8))


def measure(path, samples, precision):
    """(CPU milliseconds, bytes) of a step; None where this CPU has not the precision."""
    done = subprocess.run([program("tests/bench/engine_bench"), path, str(samples), str(STEPS), "cross_entropy",
                           f"cpu:{precision}"], capture_output=True, text=True, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if "without instructions" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    took, memory = done.stdout.split()
    return float(took), int(memory)


def report(kind, samples, seen):
    """seen: by side, what measure() gave in each round."""
    print(f"  {kind}, {samples} samples:")
    took = {side: [ms for ms, _ in measured] for side, measured in seen.items()}
    noise = rounds.noise(took["fp32"], took[rounds.CONTROL])
    for side in (*SIDES, rounds.CONTROL):
        if side not in seen:
            print(f"    {side:9} left out: this CPU has no instructions for it")
            continue
        beside = "" if side == "fp32" else f", times its speed {rounds.beside(took['fp32'], took[side], noise)}"
        print(f"    {side:9} {statistics.median(took[side]):8.1f} ms, {seen[side][0][1] / 1e6:.0f} MB{beside}", flush=True)


def main():
    wanted = os.environ.get("WEIR_BENCH_MODELS", "").split()
    print(f"precision: CPU time of forward and backward on one thread, beside fp32, medians of {ROUNDS} rounds")
    with Folder() as folder:
        for kind, options, samples in MODELS:
            if wanted and kind not in wanted:
                continue
            path = folder.model(kind, *options)
            sides = {side: lambda side=side: measure(path, samples, side) for side in SIDES}
            report(kind, samples, rounds.alternate(sides, ROUNDS, control="fp32"))


if __name__ == "__main__":
    main()
