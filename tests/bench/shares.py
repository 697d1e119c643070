"""`make bench PARTS=shares`: the step of a small run beside one that bursts on the same parameter server, and the step of the
small run alone; what each of two busy runs takes of the server's time, by their weights. Simulated workers, which compute
nothing."""
import json
import statistics
import subprocess

import rounds
from harness import program

ROUNDS = 3
ALONE = "alone"
STEPS = 200
QUIET = "1:256:5000:1"  # workers, width of the model, microseconds of pause, weight: 1.1 MB each way a step
BURSTING = {"2 workers": "2:4096:0:1", "8 workers": "8:4096:0:1", "24 workers": "24:4096:0:1"}  # 17 MB a worker and step
EVEN = {"weights 1 and 1": ("8:2048:0:1", "8:2048:0:1"), "weights 1 and 3": ("8:2048:0:1", "8:2048:0:3")}
EVEN_STEPS = 30


def measure(steps, *runs):
    done = subprocess.run([program("tests/bench/shares_bench"), str(steps), *runs], stdout=subprocess.PIPE, text=True,
                          timeout=900, check=True)
    return json.loads(done.stdout)


def share(figures):
    """Of the first run, in what both took of the shards' time."""
    return figures["served_s"][0] / sum(figures["served_s"])


def middle(values, unit="", factor=1.0):
    return f"{factor * statistics.median(values):.1f}{unit} ({factor * min(values):.1f} to {factor * max(values):.1f})"


def step(side):
    steps = [sorted(figures["step_s"]) for figures in side]
    return (f"median step {middle([statistics.median(s) for s in steps], ' ms', 1e3)}, "
            f"nine of ten within {middle([s[len(s) * 9 // 10] for s in steps], ' ms', 1e3)}")


def quiet():
    sides = {ALONE: (), **{f"beside {name} that burst": (run,) for name, run in BURSTING.items()}}
    seen = rounds.alternate({name: lambda beside=beside: measure(STEPS, QUIET, *beside) for name, beside in sides.items()}, ROUNDS,
                            control=ALONE)
    for name, side in seen.items():
        print(f"a small run {'alone again' if name == rounds.CONTROL else name}: {step(side)}; it has {middle([share(figures) for figures in side], ' %', 100)} of the "
              f"shards' time, the other moves {statistics.median(figures['second_gb_s'] for figures in side):.2f} GB/s", flush=True)
    medians = {name: [statistics.median(figures["step_s"]) for figures in side] for name, side in seen.items()}
    print(f"  its step beside 8 workers by its step alone: {rounds.compare(medians, 'beside 8 workers that burst', ALONE)}")


def even():
    for name, runs in EVEN.items():
        shares = [share(measure(EVEN_STEPS, *runs)) for _ in range(ROUNDS)]
        print(f"two runs of 8 workers, {name}: the first has {middle(shares, ' %', 100)} of the shards' time", flush=True)


def main():
    quiet()
    even()
