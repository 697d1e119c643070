"""A search over the training of the demo's model on Fashion-MNIST, beside Ray Tune and Optuna with PyTorch: two trials of
one thread at a time on this machine, the same space, budget and rungs, trials of about 1, 10 and 60 seconds. Trials an
hour, samples a second, the best accuracy and the samples that it took; what a trial costs that trains nothing to speak of;
and a population of trials beside Ray's, with what its exploits move and how long they take.

In turns, each side as its documents recommend (tests/bench/peer_tune.py says how); without the start of either's processes.
Needs build/tune, as `make bench PARTS=tune` makes it. Takes some 20 minutes on two cores; a search that has not ended after
LIMIT_SECONDS is given up, and said. WEIR_BENCH_QUICK=1: few and short trials, to try it."""
import json
import os
import re
import signal
import statistics
import subprocess
import time

from harness import ROOT, Cluster, Folder, weir

IS_QUICK = bool(os.environ.get("WEIR_BENCH_QUICK"))
PYTHON = os.path.join(ROOT, "build", "tune", "bin", "python")
TRAIN_SAMPLES, EVAL_SAMPLES, BATCH = (6000, 500, 128) if IS_QUICK else (60000, 2000, 128)
# Seconds of a trial in PyTorch: how many trials, and seeds.
KINDS = {0.2: (4, (1,))} if IS_QUICK else {1: (40, (1, 2, 3)), 10: (18, (1, 2)), 60: (9, (1,))}
EMPTY_TRIALS = 4 if IS_QUICK else 20
POPULATION, PBT_SECONDS, GENERATIONS = (4, 1, 8) if IS_QUICK else (8, 20, 8)
LIMIT_SECONDS = 600
MODEL = ("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")
SPEC = """name: demo
model: {onnx: lenet.onnx, loss: cross_entropy}
data:
  root: %s
  train: {format: idx, images: train-images-idx3, labels: train-labels-idx1}
  eval: {format: idx, images: t10k-images-idx3, labels: t10k-labels-idx1}
  transforms: [{scale: 0.00392156862745098}, {normalize: {mean: [0.2860], std: [0.3530]}}]
train:
  steps: 100
  batch: %d
  microbatches: 1
  seed: 1
  optimizer: {name: sgd, lr: 0.01, momentum: 0.9, weight_decay: 0.0005}
eval: {every_steps: 10000000}
"""
SWEEP = """name: tune
spec: spec.yaml
objective: {metric: accuracy}
search: {name: random, seed: %d}
schedule: %s
budget: {trials: %d}
concurrency: 2
space:
  train.optimizer.lr: {log: [0.001, 0.3]}
  train.optimizer.momentum: {uniform: [0.8, 0.99]}
  train.optimizer.weight_decay: {log: [0.00001, 0.01]}
"""


def schedule_of(name, steps):
    if name == "asha":
        return f"{{name: asha, rungs: [{steps // 9}, {steps // 3}, {steps}], eta: 3}}"
    if name == "pbt":
        return f"{{name: pbt, rungs: {[steps * (number + 1) // GENERATIONS for number in range(GENERATIONS)]}}}"
    return f"{{name: none, rungs: [{steps}]}}"


def forks_of(cluster):
    """(bytes that each exploit's fork read, seconds from its order to its blocks at the server)."""
    log = cluster.servers[0][0].output()
    moved = {run: int(read) for run, read in re.findall(r" run_restored run=(\S+) .*read_bytes=(\d+)", log)}
    return [moved[run] for run in moved], [float(seconds) for run, seconds in
                                           re.findall(r" run_loaded run=(\S+) .*seconds=([0-9.]+)", log) if run in moved]


def samples_of(trials, steps, scheduler):
    """That all trials computed."""
    rungs = {"none": [steps], "asha": [steps // 9, steps // 3, steps],
             "pbt": [steps * (number + 1) // GENERATIONS for number in range(GENERATIONS)]}[scheduler]
    return sum(rungs[len(trial["results"]) - 1] for trial in trials if trial["results"]) * BATCH


def ours(folder, scheduler, steps, trials, seed):
    folder.file("spec.yaml", SPEC % (folder.path, BATCH))
    path = folder.file("sweep.yaml", SWEEP % (seed, schedule_of(scheduler, steps), trials))
    with Cluster(folder, workers=2, store="file://" + folder.file(f"store-{time.monotonic_ns()}")) as cluster:
        at = ("--coordinator", cluster.address)
        begin = time.monotonic()
        sweep = weir("sweep", path, *at).stdout.strip()
        weir("sweep", "watch", sweep, *at)
        seconds = time.monotonic() - begin
        info = json.loads(weir("sweep", "status", sweep, *at, "--json").stdout)
        moved, took = forks_of(cluster)
    return {"seconds": seconds, "trials": len(info["trials"]), "samples": samples_of(info["trials"], steps, scheduler),
            "accuracy": max(max(trial["results"], default=0) for trial in info["trials"]), "moved": moved, "exploits": took}


def theirs(side):
    def search(folder, *arguments):
        command = [PYTHON, os.path.join(ROOT, "tests", "bench", "peer_tune.py"), side, folder.path, *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as child:
            try:
                out, errors = child.communicate(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"  {side} {' '.join(map(str, arguments))}: given up after {LIMIT_SECONDS} s", flush=True)
                return None
            finally:
                if child.poll() is None:  # also where somebody has interrupted us
                    os.killpg(child.pid, signal.SIGKILL)  # with the processes of its trials
        assert child.returncode == 0, errors[-2000:]
        return json.loads(out.splitlines()[-1])
    return search


SIDES = {"Weir": ours, "Ray Tune": theirs("ray"), "Optuna": theirs("optuna")}


def peer_rate():
    done = subprocess.run([PYTHON, os.path.join(ROOT, "tests", "bench", "peer_tune.py"), "rate"], capture_output=True, text=True,
                          check=True)
    return float(done.stdout)


def compare_asha(folder, rate):
    for seconds, (trials, seeds) in KINDS.items():
        steps = max(9 * round(seconds * rate / BATCH / 9), 9)
        print(f"ASHA over {trials} trials of {steps} steps ({seconds:g} s of one thread in PyTorch), {len(seeds)} seeds in turns:", flush=True)
        found = {side: [] for side in SIDES}
        for seed in seeds:
            for side, search in SIDES.items():
                found[side].append(search(folder, "asha", steps, trials, seed))
        for side, rounds in found.items():
            rounds = [done for done in rounds if done]
            if not rounds:
                continue
            hourly = statistics.median(3600 * done["trials"] / done["seconds"] for done in rounds)
            speed = statistics.median(done["samples"] / done["seconds"] for done in rounds)
            print(f"  {side:8}  {hourly:7.0f} trials an hour   {speed:7.0f} samples/s   best accuracy "
                  f"{statistics.median(done['accuracy'] for done in rounds):.4f} with {statistics.median(done['samples'] for done in rounds):.0f} "
                  f"samples", flush=True)


def compare_empty(folder):
    print(f"{EMPTY_TRIALS} trials of one step each:", flush=True)
    for side, search in SIDES.items():
        done = search(folder, "none", 1, EMPTY_TRIALS, 1)
        if done:
            print(f"  {side:8}  {1e3 * done['seconds'] / done['trials']:7.1f} ms a trial", flush=True)


def compare_pbt(folder, rate):
    steps = max(GENERATIONS * round(PBT_SECONDS * rate / BATCH / GENERATIONS), GENERATIONS)
    print(f"population based training, {POPULATION} trials of {steps} steps, {GENERATIONS} generations:", flush=True)
    for side in ("Weir", "Ray Tune"):
        done = SIDES[side](folder, "pbt", steps, POPULATION, 1)
        if not done:
            continue
        took = f"{1e3 * statistics.median(done['exploits']):.1f} ms each" if done["exploits"] else "no exploit"
        moved = f", {sum(done['moved'])} bytes read from the store" if "moved" in done else ""
        print(f"  {side:8}  {done['seconds']:7.1f} s   best accuracy {done['accuracy']:.4f}   {len(done['exploits'])} exploits: "
              f"{took}{moved}", flush=True)


def main():
    if not os.path.exists(PYTHON):
        print("tune: left out: `make bench PARTS=tune` installs Ray Tune and Optuna")
        return
    with Folder() as folder:
        folder.small_data(TRAIN_SAMPLES, EVAL_SAMPLES)
        folder.model(*MODEL)
        rate = peer_rate()
        print(f"tune: PyTorch trains the demo's model with {rate:.0f} samples/s on one thread", flush=True)
        compare_empty(folder)
        compare_asha(folder, rate)
        compare_pbt(folder, rate)


if __name__ == "__main__":
    main()
