"""Activations that are computed again instead of kept: no bit of the weights changes, whatever a worker's memory is."""
import glob
import os
import re
import subprocess

from harness import PEER_PYTHON, ROOT, Cluster, Folder, Skip, done_event, main, program, simulated_gpus, weir

PARITY = os.path.join(ROOT, "tests", "parity")
# A graph of tests/parity/graphs, with its case in golden.json: skips over many layers, weights used twice, a walk over time.
GRAPHS = {"unet": "unet-old.onnx", "gpt": "gpt-old.onnx", "lstm": "lstm-old.onnx"}
STEPS = 3


def graph_specs(folder):
    """(name, spec) of each of GRAPHS, to be trained for STEPS."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    import test_parity
    golden = test_parity.read_golden()
    subprocess.run([PEER_PYTHON, os.path.join(PARITY, "fill.py"), folder.path, *GRAPHS], check=True)
    for name, graph in GRAPHS.items():
        yield name, test_parity.graph_spec(folder, name, dict(golden[name], steps=STEPS), graph)


def loaded(out):
    """What the first worker said when it had loaded the run."""
    for log in sorted(glob.glob(os.path.join(out, "logs", "worker*.log"))):
        with open(log) as file:
            said = re.search(r"executors=(\d+) stages=1 program_bytes=(\d+) unreplayed_bytes=(\d+) steps=(\d+) replays=(\d+)",
                             file.read())
        if said:
            return dict(zip(("executors", "bytes", "unreplayed", "steps", "replays"), map(int, said.groups())))
    raise AssertionError(f"no worker of {out} says what it has loaded")


class Runs:
    """Of one spec, which ends in its section `train`."""

    def __init__(self, folder, spec):
        self.folder, self.n = folder, 0
        with open(spec) as file:
            self.text = file.read()

    def train(self, mode, *options, workers=1):
        """(the hash of the weights, what a worker has loaded)"""
        self.n += 1
        spec = self.folder.file("again.yaml", self.text + (f"workers: {{recompute: {mode}}}\n" if mode else ""))
        out = self.folder.file(f"out-{self.n}")
        weir("train", spec, "--workers", workers, "--threads", 1, "--out", out, "--force", *options)
        return done_event(os.path.join(out, "metrics.jsonl"))["weights_sha256"], loaded(out)


def compare(name, folder, spec):
    """Fewer bytes with every mode, the same weights."""
    runs = Runs(folder, spec)
    weights, none = runs.train("")
    assert none["bytes"] == none["unreplayed"] and none["replays"] == 0, none
    same, full = runs.train("full", workers=2)
    assert same == weights, f"{name}: full changes the weights"
    assert full["unreplayed"] == none["bytes"] and full["bytes"] < none["bytes"] and full["replays"] > 0, (name, none, full)
    for share in (0, 1 / 3, 2 / 3, 1):
        most = int(full["bytes"] + share * (none["bytes"] - full["bytes"]))
        same, auto = runs.train("auto", "--memory", most, workers=1 + (share == 1 / 3))
        assert same == weights, f"{name}: auto with {most} bytes changes the weights"
        assert auto["bytes"] <= most and (auto["replays"] > 0) == (share < 1), (name, most, auto)
    print(f"# {name}: {none['bytes']} bytes, {full['bytes']} with {full['replays']} of {full['steps']} steps again")


def train_section(batch, microbatches):
    return (f"  steps: {STEPS}\n  batch: {batch}\n  microbatches: {microbatches}\n  seed: 5\n"
            "  optimizer: {name: sgd, lr: 0.01, momentum: 0.9}\n")


def test_a_residual_network_with_batch_norm_keeps_its_weights_to_the_bit():
    with Folder() as folder:
        model = folder.model("resnet18", "--input", "1,28,28", "--width", "8", "--depth", "2,2,1,1", "--classes", "10")
        compare("resnet18", folder, folder.spec(model, train=train_section(32, 2)))


def test_a_network_of_few_layers_takes_no_more_memory_and_keeps_its_weights():
    """Its peak is where the widest layer is differentiated, whatever is kept."""
    with Folder() as folder:
        model = folder.model("lenet", "--channels", "8,16", "--hidden", "64", "--batch-norm", "--dropout", "0.25")
        runs = Runs(folder, folder.spec(model, train=train_section(32, 2)))
        weights, none = runs.train("none")
        same, full = runs.train("full", workers=2)
        assert same == weights and full["bytes"] <= none["bytes"], (none, full)


def test_skips_tied_weights_and_recurrence_keep_their_weights_to_the_bit():
    with Folder() as folder:
        for name, spec in graph_specs(folder):
            compare(name, folder, spec)


def test_dropout_is_drawn_alike_again():
    with Folder() as folder:
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "32x12", "--dropout", "0.5")
        compare("mlp", folder, folder.spec(model, train=train_section(2048, 2)))


def test_the_reference_backend_keeps_everything():
    with Folder() as folder:
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "16")
        hashes = set()
        with Cluster(folder, workers=0) as cluster:
            worker = cluster.add_worker(options=("--backend", "ref"))
            for mode in ("none", "full"):
                metrics = folder.file(mode + ".jsonl")
                spec = folder.spec(model, train=train_section(16, 2) + f"workers: {{recompute: {mode}}}\n")
                weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
                hashes.add(done_event(metrics)["weights_sha256"])
            said = re.findall(r"program_bytes=(\d+) unreplayed_bytes=(\d+)", worker.output())
        assert len(hashes) == 1 and len(said) == 2, (hashes, said)
        assert all(taken == unreplayed for taken, unreplayed in said), said


def test_a_value_that_is_not_known_is_refused_where_it_stands():
    with Folder() as folder:
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "16")
        spec = folder.spec(model, train=train_section(16, 2) + "workers: {recompute: sometimes}\n")
        for command in ("train", "submit", "inspect"):
            done = weir(command, spec, status=2)
            assert "workers.recompute: 'sometimes' is not known (known: auto, full, none)" in done.stderr, done.stderr
            assert done.stderr.count("\n") == 1 and "spec.yaml" in done.stderr, done.stderr
        spec = folder.spec(model, name="good.yaml", train=train_section(16, 2))
        for size in ("much", "-1", "2 gigs", "0"):
            done = weir("train", spec, "--memory", size, status=2)
            assert "--memory" in done.stderr and size in done.stderr, done.stderr
            worker = subprocess.run([program("weir-worker"), "--data-root", "/", "--memory", size], capture_output=True,
                                    text=True, check=False)
            assert worker.returncode == 2 and "--memory" in worker.stderr, worker.stderr


def refused_for_memory(device, **process):
    """One line and status 2, however little a run may take, and however many workers refuse it."""
    with Folder() as folder:
        model = folder.model("mlp", "--input", "1,28,28", "--hidden", "256,256")
        spec = folder.spec(model, train=train_section(64, 2) + "workers: {recompute: auto}\n")
        for size, workers in (("10KB", 1), ("1", 1), ("1", 2)):
            done = weir("train", spec, "--memory", size, "--workers", workers, "--device", device, "--out", folder.file("out"),
                        "--force", status=2, **process)
            assert done.stderr.count("\n") == 1, done.stderr
            assert re.search(r"refused: .* needs \d+ bytes for its activations, \d+ when as much is recomputed as can be, "
                             r"and may take \d+", done.stderr), done.stderr


def test_a_run_that_does_not_fit_says_what_it_needs():
    refused_for_memory("cpu")


def test_a_run_that_does_not_fit_on_a_gpu_says_what_it_needs():
    refused_for_memory("cuda", env=simulated_gpus())


if __name__ == "__main__":
    main(globals())
