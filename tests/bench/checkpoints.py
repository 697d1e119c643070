"""What checkpoints reach and cost, each figure beside its alternative in the same run; `make bench` and
`make bench LARGE=1` run it. Speeds are of the bytes of weights and optimizer state, in GB (10^9) a second."""
import glob
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from harness import Folder, Skip, done_event, program, read_metrics, weir
from redis_servers import Redis, need

ROUNDS = 3
REDIS_ROUNDS = 7  # where only checkpoints to Redis are measured
STEP_ROUNDS = 5  # of steps, in each: the first checkpoints take memory from the system, later ones have it
WIDTH = 4000  # of the layers of snapshot_bench's model: 281 MB of weights and momentum
LARGE_WIDTH = 15600  # 4.0 GB; the ONNX file stays below protobuf's 2 GB
BLOCK_BYTES = 2 * 256 * 1024  # weights and momentum: what the store gets as one value
QUIET = {**os.environ, "WEIR_LOG": "warn"}
TRAIN = ("  steps: {steps}\n  batch: 128\n  microbatches: 8\n  seed: 1\n"
         "  optimizer: {{lr: 0.05, momentum: 0.9, weight_decay: 0.0005}}\n")
# name, `weir model` arguments, steps, a checkpoint every so many
MODELS = (("the demo's model", ("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm"), 160, 20),
          ("an MLP of 5.8 M parameters", ("mlp", "--hidden", "2048,2048"), 80, 20))


def snapshot_bench(url, width=WIDTH, rounds=STEP_ROUNDS, server=0):
    done = subprocess.run([program("tests/bench/snapshot_bench"), url, str(width), str(rounds), str(server)],
                          stdout=subprocess.PIPE, text=True, check=True, env=QUIET)
    return json.loads(done.stdout)


def process_cpu(pid):
    """CPU seconds of all threads of a process: the clock that clock_getcpuclockid(3) names."""
    return time.clock_gettime(~pid << 3 | 2)


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def redis_benchmark(redis, values, clients):
    """GB/s of SETs of new keys of a block's size: a checkpoint writes new keys, too. Then the CPU seconds a GB of
    redis-benchmark and of the server."""
    began, server_began = children_cpu(), process_cpu(redis.process.child.pid)
    done = subprocess.run(
        ["redis-benchmark", "-p", str(redis.port), "-t", "set", "-d", str(BLOCK_BYTES), "-n", str(values), "-c", str(clients),
         "-r", "1000000000", "--csv"], capture_output=True, text=True, check=True)
    gb = values * BLOCK_BYTES / 1e9
    rate = float(done.stdout.splitlines()[-1].split(",")[1].strip('"')) * BLOCK_BYTES / 1e9
    return rate, (children_cpu() - began) / gb, (process_cpu(redis.process.child.pid) - server_began) / gb


def dd(source, target, size):
    began = time.monotonic()
    subprocess.run(["dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync"], capture_output=True, check=True)
    seconds = time.monotonic() - began
    os.unlink(target)
    return size / seconds / 1e9


def middle(values):
    return f"{statistics.median(values):.2f} GB/s ({min(values):.2f} to {max(values):.2f})"


def ratio(above, below):
    return f"{statistics.median(a / b for a, b in zip(above, below)):.2f}"


def rate(run, what):
    return run[f"{what}_bytes" if what == "first" else "state_bytes"] / run[f"{what}_s"] / 1e9


def print_runs(where, runs):
    """What the rounds of snapshot_bench say besides the rate of the first checkpoint."""
    last = runs[-1]
    share = statistics.median(run["second_bytes"] / run["first_bytes"] for run in runs)
    print(f"  a second checkpoint, one block of ten changed: {last['second_bytes'] / 1e6:.1f} of "
          f"{last['first_bytes'] / 1e6:.1f} MB written ({100 * share:.1f} %), "
          f"{statistics.median(run['second_s'] for run in runs):.2f} s beside "
          f"{statistics.median(run['first_s'] for run in runs):.2f} s")
    print(f"  restoring{where}, verified: {middle([rate(run, 'restore') for run in runs])}; a server's load from the "
          f"model's bytes to the restored run: {statistics.median(run['load_s'] for run in runs):.2f} s")
    step, copying, beside, stall = (statistics.median(run[key] for run in runs) * 1e3
                                    for key in ("step_s", "copying_s", "beside_s", "stall_s"))
    print(f"  steps that compute nothing, only push and pull {last['state_bytes'] / 2e6:.0f} MB each way: "
          f"{step:.0f} ms; whose updates write to new memory: {copying:.0f} ms; the next, beside the writer: "
          f"{beside:.0f} ms; stall as the server tells it: {stall:.1f} ms")


def cpu_a_gb(own, server):
    return f"CPU s a GB: {statistics.median(own):.2f} its own, {statistics.median(server):.2f} redis-server's"


def cpu_of(runs, what, size):
    own, server = ([run[f"{what}_{whose}_s"] / run[size] * 1e9 for run in runs] for whose in ("cpu", "server_cpu"))
    return cpu_a_gb(own, server)


def bench_redis(folder, rounds=ROUNDS, step_rounds=STEP_ROUNDS):
    """Each side has a new server each time: one that has just freed as much memory has pages at hand."""
    need("redis-server", "redis-benchmark")
    runs, peers = [], {4: [], 50: []}
    for _ in range(rounds):
        with Redis(folder) as redis:
            runs.append(snapshot_bench(f"redis://{redis.address}", rounds=step_rounds, server=redis.process.child.pid))
        for clients, done in peers.items():
            with Redis(folder) as redis:
                done.append(redis_benchmark(redis, runs[-1]["first_bytes"] // BLOCK_BYTES, clients))
    ours = [rate(run, "first") for run in runs]
    print(f"checkpoint to Redis, {runs[0]['state_bytes'] / 1e6:.0f} MB in {runs[0]['blocks']} blocks: {middle(ours)}; "
          f"{cpu_of(runs, 'first', 'first_bytes')}")
    for clients, done in peers.items():
        rates, own, server = zip(*done)
        print(f"  redis-benchmark SET, values of 512 KiB, {clients} clients: {middle(rates)}; {cpu_a_gb(own, server)}; "
              f"ratio to it: {ratio(ours, rates)}")
    better = [max(few[0], many[0]) for few, many in zip(*peers.values())]
    print(f"  ratio to the better one of each round: {ratio(ours, better)}")
    if step_rounds:
        print_runs("", runs)
    else:
        print(f"  restoring, verified: {middle([rate(run, 'restore') for run in runs])}; {cpu_of(runs, 'restore', 'state_bytes')}")


def redis_alone():
    with Folder() as folder:
        try:
            bench_redis(folder, REDIS_ROUNDS, 0)
        except Skip as reason:
            print(f"checkpoints to Redis: not measured, {reason}")


def bench_files(folder):
    runs, peers = [], []
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as random:
        for _ in range(ROUNDS):
            runs.append(snapshot_bench("file://" + folder.file("store")))
            shutil.rmtree(folder.file("store"))
            size = runs[0]["first_bytes"]
            if not random.tell():
                random.write(os.urandom(size))
                random.flush()
            peers.append(dd(random.name, folder.file("copy"), size))
    ours = [rate(run, "first") for run in runs]
    print(f"checkpoint to files, {runs[0]['state_bytes'] / 1e6:.0f} MB in {runs[0]['blocks']} blocks: {middle(ours)}")
    print(f"  dd of as many random bytes out of memory, conv=fsync: {middle(peers)}; ratio to it: {ratio(ours, peers)}")
    print_runs(" from the page cache", runs)


def train(folder, model, steps, every):
    """Seconds of each step, the servers' lines of each checkpoint, samples per second."""
    spec = folder.spec(folder.file(model + ".onnx"), train=TRAIN.format(steps=steps),
                       tail=f"checkpoint: {{every_steps: {every}}}\n")
    with tempfile.TemporaryDirectory(dir=folder.path) as out:
        metrics, pattern = os.path.join(out, "metrics.jsonl"), re.compile(r"snapshot_written (.*)")
        weir("train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out", os.path.join(out, "run"),
             "--metrics", metrics, env={**os.environ, "WEIR_LOG": "info"})
        written = []
        for path in glob.glob(os.path.join(out, "run", "logs", "server-*.log")):
            with open(path) as log:
                written += [dict(pair.split("=", 1) for pair in found.group(1).split())
                            for found in map(pattern.search, log) if found]
        seconds = {event["step"]: event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"}
        return seconds, written, done_event(metrics)["samples_per_second"]


def sort_steps(seconds, written, steps):
    """Seconds of those whose updates wrote to new memory, of further ones beside a writer, of all others but the
    first ten. The last version's checkpoint has no step beside it."""
    begun, beside = set(), set()
    for line in written:
        step, left = int(line["step"]), float(line["seconds"])
        begun.add(step)
        while left > 0 and step in seconds:
            beside.add(step)
            left -= seconds[step]
            step += 1
    groups = {"begun": begun & seconds.keys(), "beside": beside - begun}
    groups["others"] = seconds.keys() - begun - beside
    return {name: [seconds[step] for step in members if 10 <= step < steps] for name, members in groups.items()}


def milliseconds(values):
    return f"{1e3 * statistics.median(values):.1f} ms (of {len(values)})" if values else "none"


def bench_training(folder, title, model, steps, every):
    """With checkpoints, and with none but the last, in turns."""
    folder.model(*model, "--seed", "1")
    groups = {"begun": [], "beside": [], "others": [], "without": []}
    with_rates, without_rates, written = [], [], []
    for _ in range(ROUNDS):
        seconds, lines, samples = train(folder, model[0], steps, every)
        for name, values in sort_steps(seconds, lines, steps).items():
            groups[name] += values
        written += [line for line in lines if 0 < int(line["step"]) < steps]
        with_rates.append(samples)
        seconds, _, samples = train(folder, model[0], steps, steps)
        groups["without"] += [value for step, value in seconds.items() if step >= 10]
        without_rates.append(samples)
    print(f"training {title}, checkpoints each {every} steps to files, 2 workers, 2 servers, one thread each:")
    if not written:
        print("  no checkpoint was written before the last")
        return
    print(f"  median step without checkpoints: {milliseconds(groups['without'])}; between checkpoints: "
          f"{milliseconds(groups['others'])}; that writes to new memory because a checkpoint has begun: "
          f"{milliseconds(groups['begun'])}; further ones beside the writers: {milliseconds(groups['beside'])}")
    stall = statistics.median(float(line["stall_seconds"]) for line in written)
    step = statistics.median(groups["without"])
    print(f"  stall in a server, all its shards' added up: {1e3 * stall:.2f} ms a checkpoint, "
          f"{100 * stall / step:.2f} % of a step; {statistics.median(int(line['written_bytes']) for line in written) / 1e6:.1f} "
          f"MB a server, written in {statistics.median(float(line['seconds']) for line in written):.2f} s beside training")
    print(f"  samples/s with: {statistics.median(with_rates):.0f}, without: {statistics.median(without_rates):.0f}; "
          f"ratio: {ratio(with_rates, without_rates)}")


def main():
    with Folder() as folder:
        for bench in (bench_redis, bench_files):
            try:
                bench(folder)
            except Skip as reason:
                print(f"{bench.__name__}: not measured, {reason}")
            sys.stdout.flush()
        for model in MODELS:
            bench_training(folder, *model)
            sys.stdout.flush()


def bench_large():
    """A model whose state is 4 GB, to files; what a server's process takes before, during and after."""
    with Folder() as folder:
        run = snapshot_bench("file://" + folder.file("store"), LARGE_WIDTH, 1)
    state = run["state_bytes"]
    print(f"{state / 1e9:.2f} GB of weights and momentum in {run['blocks']} blocks, to files")
    print(f"  first checkpoint: {run['first_s']:.1f} s, {rate(run, 'first'):.2f} GB/s; a second, one block of ten "
          f"changed: {run['second_bytes'] / 1e9:.2f} GB, {run['second_s']:.1f} s")
    print(f"  restoring, verified: {run['restore_s']:.1f} s, {rate(run, 'restore'):.2f} GB/s; a server's load with it: "
          f"{run['load_s']:.1f} s")
    before, peak, after, load, restore = (run[key] * 1024 / 1e9 for key in (
        "before_kb", "peak_kb", "after_kb", "load_peak_kb", "restore_peak_kb"))
    print(f"  resident memory, a checkpoint beside steps: {before:.2f} GB before, {peak:.2f} GB at most, {after:.2f} GB "
          f"after: {(peak - before) * 1e9 / state:.2f} copies of the state more")
    print(f"  resident memory, restoring: {restore:.2f} GB at most, the blocks themselves among them; opening the model, "
          f"before: {load:.2f} GB, the file itself among them")
