"""Two workers of one machine, each with the servers by itself and reducing among themselves (train.collective: shm):
the time of a step, the processor's time of all processes, and what the servers took in. Rounds alternate the sides."""
import os
import re
import statistics
import tempfile

import rounds
from harness import Cluster, Folder, read_metrics, wait_for, weir

ROUNDS, STEPS, WARM_UP, WORKERS, SERVERS = 5, 60, 10, 2, 2
MODELS = (("lenet", ("--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")),
          ("mlp", ("--hidden", "2048,2048", "--seed", "1")))
UNLOADED = re.compile(r"run_unloaded .* gradient_bytes=(\d+) .* weight_bytes=(\d+)")


def cpu_seconds(process):
    with open(f"/proc/{process.child.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_run(folder, model, collective):
    """(median seconds of a step, CPU seconds a step, megabytes in and out of the servers a step)"""
    train = (f"  collective: {collective}\n  steps: {STEPS}\n  batch: 128\n  microbatches: 8\n  seed: 1\n"
             "  optimizer: {lr: 0.01}\n")
    spec = folder.spec(folder.file(f"{model}.onnx"), train=train, tail=f"workers: {{min: {WORKERS}}}\n")
    metrics = folder.file("metrics.jsonl")
    store = "file://" + tempfile.mkdtemp(dir=folder.path)
    with Cluster(folder, SERVERS, WORKERS, store=store) as cluster:
        members = cluster.workers + [server for server, _ in cluster.servers]
        began = [cpu_seconds(member) for member in members]
        weir("submit", spec, "--follow", "--coordinator", cluster.address, "--metrics", metrics)
        cpu = sum(cpu_seconds(member) for member in members) - sum(began)
        lines = [wait_for(lambda server=server: UNLOADED.findall(server.output()), "the servers' figures")[0]
                 for server, _ in cluster.servers]
    seconds = [event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"][WARM_UP:]
    os.remove(metrics)
    return (statistics.median(seconds), cpu / STEPS,
            *(sum(int(line[at]) for line in lines) / STEPS / 1e6 for at in range(2)))


def main():
    for model, options in MODELS:
        with Folder() as folder:
            folder.model(model, *options)
            seen = rounds.alternate({collective: lambda collective=collective: one_run(folder, model, collective)
                                     for collective in ("none", "shm")}, ROUNDS, control="none")
        for collective, runs in seen.items():
            step, cpu, came, went = (statistics.median(run[at] for run in runs) for at in range(4))
            print(f"groups: {model}, {WORKERS} workers, collective {collective}: step {step * 1000:.1f} ms, "
                  f"CPU {cpu * 1000:.1f} ms a step; servers took in {came:.2f} MB and gave {went:.2f} MB a step")
        for at, what in ((0, "step"), (1, "CPU")):
            none, shm, control = ([run[at] for run in seen[side]] for side in ("none", "shm", rounds.CONTROL))
            print(f"  {what}, shm to none: {rounds.beside(shm, none, rounds.noise(none, control))}")
