"""Two workers of one machine, each with the servers by itself (train.collective: none), reducing among themselves (shm), and as
the coordinator decides (auto): the time of a step, the processor's time of all processes, and what the servers took in. With the
servers in memory that the workers share, by socket, and behind a slow link. Rounds alternate the sides."""
import itertools
import os
import re
import statistics

import modes
import rounds
from harness import Cluster, Folder, Process, newest_step, program, read_metrics, wait_for

ROUNDS, WARM_STEPS, WORKERS = 3, 5, 2
SIDES = ("none", "shm", "auto")
MODELS = {"the demo's": ("lenet", ("--channels", "32,64", "--hidden", "128", "--batch-norm", "--seed", "1")),
          "mlp, two layers of 2048": ("mlp", ("--hidden", "2048,2048", "--seed", "1")),
          "mlp, one layer of 32": ("mlp", ("--hidden", "32", "--seed", "1"))}
SHARED, SOCKET = "servers in shared memory", "servers by socket"
LINK = f"one server behind {modes.LINK.mbit} Mbit/s and {1000 * modes.LINK.delay_seconds:.0f} ms"
CASES = (("the demo's", SHARED, 60), ("mlp, two layers of 2048", SHARED, 25), ("mlp, one layer of 32", SHARED, 300),
         ("the demo's", SOCKET, 60), ("mlp, two layers of 2048", SOCKET, 25), ("mlp, one layer of 32", SOCKET, 300),
         ("the demo's", LINK, 20))
UNLOADED = re.compile(r"run_unloaded .* gradient_bytes=(\d+) .* weight_bytes=(\d+)")
NO_SHM = {**os.environ, "WEIR_SHM": "off"}


def cpu_seconds(process):
    with open(f"/proc/{process.child.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_run(folder, cluster, steps, collective, number):
    """Median seconds of a step, CPU seconds a step, megabytes in and out of the servers a step, and by what they reduced."""
    train = (f"  collective: {collective}\n  steps: {steps}\n  batch: 128\n  microbatches: 8\n  seed: 1\n  optimizer: {{lr: 0.01}}\n")
    spec = folder.spec(folder.file("model.onnx"), train=train, tail=f"workers: {{min: {WORKERS}}}\n")
    metrics = folder.file(f"metrics-{number}.jsonl")
    members = cluster.workers + [server for server, _ in cluster.servers]
    with Process(program("weir"), "submit", spec, "--follow", "--coordinator", cluster.address, "--metrics", metrics) as client:
        wait_for(lambda: newest_step(metrics) >= WARM_STEPS, "steps")
        first, began = newest_step(metrics), [cpu_seconds(member) for member in members]
        used = cluster.json("status", cluster.json("runs")[-1]["run"]).get("collective") or "?"
        assert client.wait() == 0, client.output()
        cpu = sum(cpu_seconds(member) for member in members) - sum(began)
    lines = [wait_for(lambda server=server: UNLOADED.findall(server.output())[number:], "the servers' figures")[0]
             for server, _ in cluster.servers]
    seconds = [event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"][WARM_STEPS:]
    return (statistics.median(seconds), cpu / (steps - 1 - first), *(sum(int(line[at]) for line in lines) / steps / 1e6 for at in range(2)),
            used)


def take_turns(folder, cluster, steps):
    numbers = itertools.count()
    return rounds.alternate({side: lambda side=side: one_run(folder, cluster, steps, side, next(numbers)) for side in SIDES},
                            ROUNDS, control="none")


def on_host(folder, steps, environment):
    with Cluster(folder, servers=0, workers=0) as cluster:
        for _ in range(2):
            cluster.add_server(env=environment)
        for _ in range(WORKERS):
            cluster.add_worker()
        cluster.all_join()
        return take_turns(folder, cluster, steps)


def behind_link(folder, steps):
    with modes.SlowLink(modes.LINK) as link, Cluster(folder, servers=0, workers=0) as cluster:
        cluster.add_server(advertise=link.address, env=NO_SHM)
        _, link.target = cluster.servers[0]
        for _ in range(WORKERS):
            cluster.add_worker()
        cluster.all_join()
        return take_turns(folder, cluster, steps)


def main():
    for model, place, steps in CASES:
        with Folder() as folder:
            kind, options = MODELS[model]
            os.rename(folder.model(kind, *options), folder.file("model.onnx"))
            seen = behind_link(folder, steps) if place == LINK else on_host(folder, steps, NO_SHM if place == SOCKET else dict(os.environ))
        print(f"groups: {model}, {place}: ms a step, CPU ms a step, MB that servers took in and gave a step; beside none")
        for side, runs in seen.items():
            step, cpu, came, went = (statistics.median(run[at] for run in runs) for at in range(4))
            step_beside, cpu_beside = (rounds.compare(seen, side, "none", at) for at in range(2))
            print(f"  {side:7} (is {runs[-1][4]:4}) {step * 1000:7.1f} {cpu * 1000:7.1f} {came:7.2f} {went:7.2f}   "
                  f"step {step_beside}, CPU {cpu_beside}", flush=True)
