"""Pipelines inside one process (workers.stages): ResNet-50 on images of 64x64, a batch cut into more and more
microbatches, two stages on two cores. Beside it the same executors side by side without stages, which is data parallelism,
and PyTorch's pipelines. Three and four stages show bits and memory alone. Runs at equal microbatches must end in the same
weights. PLOT=FILE.svg draws it; WEIR_BENCH_QUICK=1 tries it out with few small microbatches."""
import collections
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import tempfile

import chart
from formats import npy
from harness import Cluster, Folder, done_event, read_metrics, weir
from memory import peak_bytes

SIDE, CLASSES, STAGES = 64, 1000, 2
IS_QUICK = bool(os.environ.get("WEIR_BENCH_QUICK"))
BATCH, MICROBATCHES, MORE_STAGES_AT = (8, (1, 2, 4), (4,)) if IS_QUICK else (120, (1, 3, 5, 8, 10, 12, 20, 40, 60), (5, 12))
ROUNDS, WARM_UP, STEPS = (1, 1, 2) if IS_QUICK else (2, 1, 3)
SCHEDULES = ("1F1B", "GPipe")
PEER_CUTS = ("layer4.0",) if IS_QUICK else ("layer3.4", "layer4.0", "layer4.1")  # tried besides Weir's
PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_pipeline.py")
AIM_PEER, AIM_UNCUT = 1.3, 0.9

# weights: their hash. seconds: of the measured steps. program_bytes: of each stage. idle: the share of each stage, of each
# step; balance: what all stages compute beside the slowest one's time as often, of each step.
Run = collections.namedtuple("Run", "weights seconds program_bytes peak_bytes idle balance")
Peer = collections.namedtuple("Peer", "seconds cpu_seconds peak_bytes")


def write_data(folder):
    draw = random.Random(1)
    folder.file("image.npy", npy("|u1", (BATCH, 3, SIDE, SIDE), draw.randbytes(BATCH * 3 * SIDE * SIDE)))
    folder.file("labels.npy", npy("|u1", (BATCH,), draw.randbytes(BATCH)))


def find_cut(folder, microbatches):
    """Where Weir cuts in two."""
    done = weir("inspect", write_spec(folder, microbatches, STAGES), "--stages", STAGES, "--json")
    return json.loads(done.stdout)["pipeline"]["cuts"][0]


def write_spec(folder, microbatches, stages):
    return folder.file("spec.yaml", f"""name: pipeline
model: {{onnx: resnet50.onnx, loss: cross_entropy}}
data:
  root: {folder.path}
  train: {{format: npy, columns: {{image: image.npy, labels: labels.npy}}}}
  transforms: [{{scale: 0.00392156862745098}}]
train: {{steps: {WARM_UP + STEPS}, batch: {BATCH}, microbatches: {microbatches}, seed: 1, optimizer: {{lr: 0.01, momentum: 0.9}}}}
workers: {{stages: {stages}}}
""")


def read_timeline(path):
    """{step: {executor: [when it began, when it ended, for how long it computed]}}, in seconds. An executor that waits for
    weights, or for a batch, computes nothing."""
    names, spans = {}, {}
    with open(path, encoding="utf-8") as file:
        events = [event for event in json.load(file) if event["name"] == "thread_name" or event.get("cat") in ("train", "wait")]
    for event in events:
        if event["name"] == "thread_name":
            names[event["tid"]] = event["args"]["name"]
    for event in events:
        if event["name"] == "thread_name":
            continue
        begin, took = event["ts"] / 1e6, event["dur"] / 1e6
        seen = spans.setdefault(event["args"]["step"], {}).setdefault(names[event["tid"]], [math.inf, 0.0, 0.0])
        if event["cat"] == "train":
            seen[:] = min(seen[0], begin), max(seen[1], begin + took), seen[2] + took
        else:
            seen[2] -= took
    return spans


def measure_stages(path, stages):
    """(idle shares of each stage, balances), of each step but those to warm up: from the first forward part to the last
    backward part."""
    idle, balances = [], []
    for step, executors in sorted(read_timeline(path).items()):
        if step < WARM_UP:
            continue
        begins, ends, busy = zip(*(executors[f"executor {stage}"] for stage in range(stages)))
        idle.append([1 - seconds / (max(ends) - min(begins)) for seconds in busy])
        balances.append(sum(busy) / (stages * max(busy)))
    return idle, balances


def train(folder, microbatches, stages, threads):
    """A cluster of one worker, whose timeline is written where there are stages."""
    metrics, timeline = folder.file("metrics.jsonl"), folder.file("timeline.json")
    options = ("--trace", timeline) if stages > 1 else ()
    with Cluster(folder, workers=0, store="file://" + tempfile.mkdtemp(dir=folder.path)) as cluster:
        worker = cluster.add_worker(threads, options=options)
        weir("submit", write_spec(folder, microbatches, stages), "--follow", "--coordinator", cluster.address, "--metrics", metrics)
        peak = peak_bytes(worker.child.pid)
        worker.send(signal.SIGTERM)
        worker.wait()
        said = re.findall(r" worker stage .* program_bytes=(\d+)" if stages > 1 else r" worker loaded .* program_bytes=(\d+)",
                          worker.output())
    assert len(said) == stages, f"{len(said)} stages were loaded, not {stages}"
    steps = [event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"]
    idle, balances = measure_stages(timeline, stages) if stages > 1 else ([], [])
    run = Run(done_event(metrics)["weights_sha256"], steps[WARM_UP:], [int(size) for size in said], peak, idle, balances)
    for path in (metrics, timeline) if stages > 1 else (metrics,):
        os.remove(path)
    return run


def train_peer(python, schedule, cut, microbatches):
    numbers = (microbatches, BATCH, SIDE, CLASSES, WARM_UP + STEPS)
    done = subprocess.run([python, PEER, schedule, cut, *map(str, numbers)], capture_output=True, text=True, timeout=3600,
                          check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    return Peer(told["seconds"][WARM_UP:], [steps[WARM_UP:] for steps in told["cpu_seconds"]], told["peak_bytes"])


def choose_cut(python, cut):
    """Where PyTorch's pipeline is fastest: at Weir's cut, or at another place near the middle."""
    microbatches = MORE_STAGES_AT[-1]
    took = {place: statistics.median(train_peer(python, "1F1B", place, microbatches).seconds) for place in (cut, *PEER_CUTS)}
    best = min(took, key=took.get)
    print(f"  PyTorch's cut: {best}, the fastest of " + ", ".join(
        f"{place} ({seconds:.2f} s)" for place, seconds in took.items()) + f" at {microbatches} microbatches", flush=True)
    return best


class Results:
    """Of one number of microbatches: runs of each side."""

    def __init__(self, microbatches, cut):
        self.microbatches, self.cut, self.sides = microbatches, cut, collections.defaultdict(list)

    def add(self, side, run):
        self.sides[side].append(run)

    def rate(self, side):
        """Samples per second by the median step; None where the side has no runs."""
        seconds = [took for run in self.sides[side] for took in run.seconds]
        return BATCH / statistics.median(seconds) if seconds else None

    def idle(self):
        """The median of each stage."""
        return [statistics.median(shares) for shares in zip(*(step for run in self.sides["staged"] for step in run.idle))]

    def balance(self):
        return statistics.median(value for run in self.sides["staged"] for value in run.balance)

    def best_peer(self):
        return max((self.rate(side) for side in SCHEDULES if self.rate(side)), default=None)

    def share_of_uncut(self):
        """Of what two executors without stages reach while both compute, times m / (m + p - 1) and the balance. The measured
        run of an odd number ends with one of them idle, which is no part of that."""
        m = self.microbatches
        both = self.rate("uncut") * math.ceil(m / STAGES) * STAGES / m
        return self.rate("staged") / (both * self.balance() * m / (m + STAGES - 1))


def measure(folder, python, peer_cut):
    """[Results], in the order of MICROBATCHES. Rounds alternate the sides."""
    all_results = [Results(m, find_cut(folder, m)) for m in MICROBATCHES]
    for number in range(ROUNDS):
        for results in all_results:
            m = results.microbatches
            results.add("staged", train(folder, m, STAGES, STAGES))
            results.add("uncut", train(folder, m, 1, STAGES))
            check_weights(results)
            for schedule in SCHEDULES if python else ():
                if schedule != "1F1B" or m >= STAGES:  # which PyTorch refuses
                    results.add(schedule, train_peer(python, schedule, peer_cut, m))
        print(f"  samples/s, medians of {STEPS} steps of each of {number + 1} rounds; at equal microbatches the same weights")
        print_rates(all_results)
    return all_results


def check_weights(results):
    hashes = {run.weights for side, runs in results.sides.items() if side not in SCHEDULES for run in runs}
    assert len(hashes) == 1, f"{results.microbatches} microbatches: the weights differ: {hashes}"


def megabytes(sizes):
    return " + ".join(f"{size / 1e6:.0f}" for size in sizes)


def number(value, form):
    return "-" if value is None else format(value, form)


def print_rates(all_results):
    print("    m  2 stages  uncut   1F1B  GPipe  to the better  balance  idle of each stage  (p-1)/(m+p-1)  of the ideal  cut at")
    for results in all_results:
        best, m = results.best_peer(), results.microbatches
        ratio = results.rate("staged") / best if best else None
        rates = " ".join(f"{number(results.rate(side), '.1f'):>6}" for side in ("uncut", *SCHEDULES))
        idle = ", ".join(f"{100 * share:.0f} %" for share in results.idle())
        print(f"  {m:3} {results.rate('staged'):9.1f} {rates} {number(ratio, '.2f'):>14} {results.balance():8.2f} "
              f"{idle:>19} {100 * (STAGES - 1) / (m + STAGES - 1):12.0f} % {results.share_of_uncut():13.2f}  {results.cut}", flush=True)


def print_memory(all_results):
    print("  memory, MB: the stages' programs and the worker's process; of the run without stages each executor's; PyTorch's processes")
    for results in all_results:
        staged, uncut = results.sides["staged"][-1], results.sides["uncut"][-1]
        peers = "".join(f"; {side} {megabytes(results.sides[side][-1].peak_bytes)}" for side in SCHEDULES if results.sides[side])
        executors = uncut.program_bytes * min(STAGES, results.microbatches)
        print(f"  {results.microbatches:3} {megabytes(staged.program_bytes)}, process {megabytes([staged.peak_bytes])}; uncut "
              f"{megabytes(executors)}, process {megabytes([uncut.peak_bytes])}{peers}")


def print_verdict(all_results):
    ratios = [results.rate("staged") / results.best_peer() for results in all_results if results.best_peer()]
    if ratios:
        print(f"  to the better of PyTorch's: {min(ratios):.2f} to {max(ratios):.2f} (aim: {AIM_PEER} at least)")
    shares = [results.share_of_uncut() for results in all_results]
    print(f"  of m / (m + p - 1) x balance x two executors side by side: {min(shares):.2f} to {max(shares):.2f} "
          f"(aim: {AIM_UNCUT} at least)")
    faster = {results.microbatches: results.rate("uncut") / results.rate("staged") for results in all_results}
    listed = ", ".join(f"{m} ({ratio:.2f} times)" for m, ratio in faster.items() if ratio > 1)
    print(f"  data parallelism, where each executor has room for the whole model, is faster at m = {listed or 'none'}")


def more_stages(folder, all_results):
    """Three and four stages beside the runs that there are already."""
    for results in all_results:
        for stages in (3, 4) if results.microbatches in MORE_STAGES_AT else ():
            run = train(folder, results.microbatches, stages, stages)
            results.add(f"{stages} stages", run)
            check_weights(results)
            print(f"  {stages} stages, {results.microbatches} microbatches: the same weights; programs {megabytes(run.program_bytes)} "
                  f"MB, process {megabytes([run.peak_bytes])} MB")


def draw(path, all_results, has_peer):
    sides = [("Weir, 2 stages", "staged"), ("Weir, without stages", "uncut")]
    sides += [(f"PyTorch, {schedule}", schedule) for schedule in SCHEDULES if has_peer]
    rates = [(name, [results.rate(side) for results in all_results], False) for name, side in sides]
    idle = [(f"stage {stage}", list(shares), False) for stage, shares in enumerate(zip(*(r.idle() for r in all_results)))]
    idle.append(("(p - 1) / (m + p - 1)", [(STAGES - 1) / (m + STAGES - 1) for m in MICROBATCHES], True))
    chart.write(path, MICROBATCHES, f"microbatches of a batch of {BATCH}", [
        chart.Panel("ResNet-50 on two cores, samples/s", rates),
        chart.Panel("part of a step in which a stage is idle", idle, lambda share: f"{100 * share:.0f} %")])
    print(f"  drawn: {path}")


def bench(python):
    """python: of an environment that has PyTorch; None."""
    with Folder() as folder:
        folder.model("resnet50", "--input", f"3,{SIDE},{SIDE}", "--classes", CLASSES)
        write_data(folder)
        print(f"pipeline: ResNet-50, images of {SIDE}x{SIDE}, batch {BATCH}, {STAGES} stages on two cores", flush=True)
        peer_cut = choose_cut(python, find_cut(folder, MORE_STAGES_AT[-1])) if python else None
        all_results = measure(folder, python, peer_cut)
        print_memory(all_results)
        print_verdict(all_results)
        more_stages(folder, all_results)
    if os.environ.get("PLOT"):
        draw(os.environ["PLOT"], all_results, bool(python))
    if not python:
        print("  PyTorch: left out: `make parity` installs it")


if __name__ == "__main__":
    bench(None)
