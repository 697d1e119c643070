"""Models with large tensors: members get a file without them, servers read what they own, and nothing of it shows in the
results."""
import json
import os
import signal
import struct

from gate import Gate
from harness import BUILD, Cluster, Folder, Process, Skip, children_of, done_event, main, newest_step, program, wait_for, weir
from test_parity import read_tensors

# Two matrices of several blocks each, and small tensors.
MLP = ("mlp", "--input", "1,28,28", "--hidden", "300,300", "--classes", "10", "--seed", "5")
FIRST = "fc1.weight"
STEPS, ENDLESS = 12, 10**6


def write_spec(folder, name, frozen=(), steps=STEPS):
    folder.small_data(240, 48)
    text = open(folder.small_spec(folder.file("mlp.onnx"), 4, steps, 6)).read()
    return folder.file(name + ".yaml", text.replace("loss: cross_entropy", f"loss: cross_entropy, frozen: {json.dumps(frozen)}"))


def train(folder, spec, name, *options):
    metrics = folder.file(name + ".jsonl")
    weir("train", spec, "--out", folder.file(name), "--metrics", metrics, "--threads", 1, *options)
    return done_event(metrics)["weights_sha256"]


def initial_bytes(folder, spec):
    """The weights that a run began with, by name, as the coordinator gives them."""
    with Cluster(folder, servers=2, workers=1) as cluster:
        run = weir("submit", spec, "--follow", "--coordinator", cluster.address).stdout.split()[0]
        out = folder.file("initial.safetensors")
        weir("export", run, "--step", 0, "-o", out, "--coordinator", cluster.address)
        return {name: struct.pack(f"<{len(values)}f", *values) for name, values in read_tensors(out).items()}


def test_any_number_of_servers_begins_with_the_weights_of_the_file():
    with Folder() as folder:
        with open(folder.model(*MLP), "rb") as file:
            model = file.read()
        spec = write_spec(folder, "all")
        assert len({train(folder, spec, f"all-{servers}", "--servers", servers, "--workers", workers)
                    for servers, workers in ((1, 1), (3, 2))}) == 1
        for name, data in initial_bytes(folder, spec).items():
            assert data in model, name


def test_what_is_frozen_comes_to_every_worker():
    with Folder() as folder:
        folder.model(*MLP)
        free = write_spec(folder, "free")
        first = initial_bytes(folder, free)[FIRST]
        hashes = {train(folder, write_spec(folder, "frozen", [FIRST]), f"frozen-{workers}", "--workers", workers)
                  for workers in (1, 2)}
        assert len(hashes) == 1 and hashes != {train(folder, free, "free")}
        for name, is_there in (("frozen-1", True), ("free", False)):
            with open(folder.file(name + "/model.onnx"), "rb") as file:
                assert (first in file.read()) == is_there, name


def test_a_coordinator_that_begins_anew_has_what_members_need():
    with Folder() as folder:
        folder.model(*MLP)
        spec = write_spec(folder, "restart", [FIRST], steps=40)
        calm = train(folder, spec, "calm")
        gate, metrics = Gate(folder), folder.file("restart.jsonl")
        gate.stop_at(10)
        with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 1, "--threads", 1,
                     "--out", folder.file("restart"), "--metrics", metrics, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= 5, "step 5")
            for kind in ("weir-server", "weir-worker"):
                for child in children_of(training.child.pid, kind):
                    os.kill(child, signal.SIGKILL)
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert done_event(metrics)["weights_sha256"] == calm


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def worker_peak(folder, hidden, name):
    """The most memory that a worker had which trains a layer of so many units."""
    folder.file(f"{name}.jsonl", "")
    weir("model", "mlp", "--input", "1,28,28", "--hidden", hidden, "--classes", 10, "-o", folder.file("mlp.onnx"))
    spec = folder.file(name + ".yaml", open(write_spec(folder, name, steps=ENDLESS)).read().replace(
        "batch: 48", "batch: 4").replace("microbatches: 4", "microbatches: 1"))
    metrics = folder.file(name + ".jsonl")
    with Process(program("weir"), "train", spec, "--workers", 1, "--threads", 1, "--out", folder.file(name),
                 "--metrics", metrics, env=dict(os.environ, WEIR_SHM="off")) as training:  # a server's memory counts as its own
        wait_for(lambda: newest_step(metrics) >= 3, "some steps")
        peak = peak_bytes(children_of(training.child.pid, "weir-worker")[0])
        training.send(signal.SIGKILL)
    return peak


def test_a_worker_holds_no_file_beside_its_weights():
    if "san-" in BUILD:
        raise Skip("sanitizers keep what is freed")
    with Folder() as folder:
        small, large = 64, 32768
        weights = (784 + 10) * (large - small) * 4
        more = worker_peak(folder, large, "large") - worker_peak(folder, small, "small")
        # Two versions, a gradient, its way out, weights in a layout of oneDNN; the file would be one more.
        assert 4 * weights < more < 5.3 * weights, f"{more / weights:.2f} times the weights"


def present_bytes(process):
    with open(f"/proc/{process.child.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


def test_runs_of_one_model_have_it_in_memory_once():
    if "san-" in BUILD:
        raise Skip("sanitizers keep what is freed")
    runs, hidden = 16, 4096
    size = (784 + 10) * hidden * 4
    with Folder() as folder:
        weir("model", "mlp", "--input", "1,28,28", "--hidden", hidden, "--classes", 10, "-o", folder.file("mlp.onnx"))
        spec = write_spec(folder, "many")
        with Cluster(folder, servers=0, workers=0) as cluster:
            weir("submit", spec, "--coordinator", cluster.address)
            first = present_bytes(cluster.coordinator)
            for _ in range(runs):
                weir("submit", spec, "--coordinator", cluster.address)
            assert present_bytes(cluster.coordinator) - first < runs / 2 * size, "each submission keeps the model"
            blocks = folder.file("store/blocks")
            stored = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(blocks) for name in names)
            assert size < stored < 1.5 * size, stored / size
            cluster.coordinator.__exit__()
            cluster.start_coordinator()
            assert len(cluster.json("runs")) == runs + 1
            weir("export", cluster.json("runs")[-1]["run"], "--step", 0, "-o", folder.file("newest.onnx"), "--coordinator",
                 cluster.address)
            assert present_bytes(cluster.coordinator) < first + runs / 2 * size, "each run reads the model"


if __name__ == "__main__":
    main(globals())
