"""Servers answer whatever a gRPC client may say with a status, live on, and train as before."""
import json
import os
import subprocess

from harness import PATIENCE, PEER_PYTHON, Cluster, Folder, Skip, done_event, main, wait_for, weir
from test_sweep import Sweep, write_sweep
from tickets import ticket_of

HERE = os.path.dirname(os.path.abspath(__file__))
SEEDS, CALLS = (1, 2, 3), 150


def write_spec(folder, model, name, steps):
    with open(folder.small_spec(model, 4, steps, 2)) as file:
        text = file.read().replace("name: small", f"name: {name}").replace("  seed: 3\n", "  seed: 3\n  clip_norm: 1\n")
    assert "clip_norm" in text
    return folder.file(f"{name}.yaml", text.replace("every_steps: 2}", "every_steps: 2, metrics: [top5]}"))


def attack(address, seed, *arguments, client="hostile_client.py", calls=CALLS):
    """How many calls ended with which status."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    done = subprocess.run([PEER_PYTHON, os.path.join(HERE, client), address, str(seed), str(calls),
                           *arguments], capture_output=True, text=True, timeout=PATIENCE * 3)
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def train(folder, cluster, spec, name):
    metrics = folder.file(name)
    weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
    return done_event(metrics)["weights_sha256"]


def assert_alive(cluster):
    for process in cluster.processes:
        assert process.child.poll() is None, process.output()[-3000:]


def test_hostile_messages_get_a_status_and_leave_nothing_behind():
    with Folder() as folder, Cluster(folder, servers=2, workers=1) as cluster:
        folder.small_data(480, 48)
        model = folder.model("mlp", "--hidden", "128")
        spec, long = write_spec(folder, model, "short", 20), write_spec(folder, model, "victim", 1000000)
        before = train(folder, cluster, spec, "before.jsonl")
        for seed in SEEDS:
            for address in (cluster.servers[seed % 2][1], cluster.address):
                run = weir("submit", long, "--coordinator", cluster.address).stdout.strip()
                wait_for(lambda: cluster.json("status", run)["state"] == "running", "the victim's begin")
                tickets = [ticket_of(folder.file("store"), run, holder=holder) for holder in ("", "servers")]
                statuses = attack(address, seed, run, model, *tickets)
                assert sum(statuses.values()) == CALLS and any("INVALID" in status for status in statuses), statuses
                assert_alive(cluster)
                for left in cluster.json("runs"):
                    if left["state"] in ("queued", "loading", "running"):
                        weir("cancel", left["run"], "--coordinator", cluster.address)
        wait_for(lambda: len(cluster.json("workers")) == 1 and len(cluster.json("servers")) == 2,
                 "the false members' end")
        assert train(folder, cluster, spec, "after.jsonl") == before
        assert_alive(cluster)


def test_hostile_sweeps_are_refused_in_a_line_and_hold_up_nobody():
    with Folder() as folder, Cluster(folder, servers=0, workers=0) as cluster:
        path = write_sweep(folder)
        for seed in SEEDS:
            sweep = Sweep(cluster, path)
            model = next(name for name in os.listdir(folder.path) if name.endswith(".onnx"))
            attack(cluster.address, seed, sweep.id, folder.file(model), client="hostile_sweeps.py", calls=90)
            assert_alive(cluster)
        for left in json.loads(weir("sweep", "status", "--json", "--coordinator", cluster.address).stdout):
            weir("sweep", "stop", left["sweep"], "--coordinator", cluster.address)
        sweep = Sweep(cluster, path)
        wait_for(lambda: sum(run["state"] == "queued" and run.get("sweep") == sweep.id
                             for run in cluster.json("runs", "--all")) == 3, "the trials of a sweep that means well")


if __name__ == "__main__":
    main(globals())
