"""What bf16 is beside fp32 on this CPU: forward and backward of one microbatch on one thread, rounds that alternate, and
fp32 a second time in each round as the control."""
import os
import statistics
import subprocess

from harness import Folder, program, weir

ROUNDS, STEPS = 5, 3
# name, options of `weir model`, samples
MODELS = (("lenet", (), 128), ("mlp", ("--hidden", "1024,1024"), 128), ("resnet18", ("--input", "3,32,32"), 32),
          ("mobilenet_v2", ("--input", "3,64,64"), 32),
          ("vit", ("--input", "3,64,64", "--patch", "8", "--width", "192", "--depth", "6", "--heads", "6"), 32),
          ("gpt", ("--vocabulary", "4096", "--context", "128", "--width", "256", "--depth", "4", "--heads", "4"), 8))


def measure(path, samples, precision):
    """(CPU milliseconds, bytes) of a step; None where this CPU has not the precision."""
    done = subprocess.run([program("tests/bench/engine_bench"), path, str(samples), str(STEPS), "cross_entropy",
                           f"cpu:{precision}"], capture_output=True, text=True, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if "without instructions" in done.stderr:
        print(f"precision: left out: {done.stderr.strip()}")
        return None
    assert done.returncode == 0, done.stderr
    took, memory = done.stdout.split()
    return float(took), int(memory)


def main():
    print(f"precision: CPU time of forward and backward on one thread, bf16 beside fp32, medians of {ROUNDS} rounds")
    with Folder() as folder:
        for kind, options, samples in MODELS:
            path, rounds = folder.model(kind, *options), []
            for _ in range(ROUNDS):
                measured = [measure(path, samples, precision) for precision in ("fp32", "bf16", "fp32")]
                if None in measured:
                    return
                rounds.append(measured)
            times = [statistics.median(measured[side][0] for measured in rounds) for side in range(3)]
            ratio, control = (statistics.median(measured[0][0] / measured[side][0] for measured in rounds) for side in (1, 2))
            memory = [rounds[0][side][1] / 1e6 for side in (0, 1)]
            print(f"  {kind:14} {samples:4} samples: fp32 {times[0]:8.1f} ms, bf16 {times[1]:8.1f} ms:"
                  f" {ratio:.2f} times its speed (control {control:.2f}); {memory[0]:.0f} and {memory[1]:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
