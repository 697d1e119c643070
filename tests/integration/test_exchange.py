"""Updates that need sums over all blocks: servers exchange them, and no bit depends on how many there are."""
import os
import signal

from harness import Folder, Process, children_of, done_event, main, newest_step, program, wait_for, weir

# Two hidden layers, each larger than a block; the rest shares one.
MODEL = ("mlp", "--input", "1,28,28", "--hidden", "400,300", "--seed", "5")
CLUSTERS = ((1, 1), (2, 3), (3, 2))  # workers, servers
UPDATES = {
    "clip-norm": "  clip_norm: 0.5\n  optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n",
    "clip-value": "  clip_value: 0.001\n  optimizer: {name: adam, lr: 0.001}\n",
    "lamb": "  optimizer: {name: lamb, lr: 0.01, weight_decay: 0.01}\n",
    "lars": "  clip_norm: 0.5\n  optimizer: {name: lars, lr: 5, weight_decay: 0.0001}\n",
    "adafactor": "  clip_norm: 0.5\n  optimizer: {name: adafactor, lr: 0.01}\n",
}


def write_spec(folder, name, steps):
    return folder.spec(folder.file("mlp.onnx"), name=f"{name}.yaml",
                       train=f"  steps: {steps}\n  batch: 32\n  microbatches: 4\n  seed: 2\n{UPDATES[name]}",
                       tail="checkpoint: {every_steps: 4}\n")


def train(folder, name, workers, servers):
    metrics = folder.file(f"{name}-{workers}-{servers}.jsonl")
    weir("train", write_spec(folder, name, 8), "--workers", workers, "--servers", servers, "--threads", 1, "--out",
         folder.file(f"{name}-{workers}-{servers}"), "--metrics", metrics)
    return done_event(metrics)["weights_sha256"]


def test_any_number_of_servers_gives_the_same_weights():
    with Folder() as folder:
        folder.model(*MODEL)
        found = {name: {cluster: train(folder, name, *cluster) for cluster in CLUSTERS} for name in UPDATES}
        for name, hashes in found.items():
            assert len(set(hashes.values())) == 1, f"{name}: {hashes}"
        assert len({tuple(hashes.values()) for hashes in found.values()}) == len(UPDATES), "each has weights of its own"


def test_a_server_killed_while_sums_are_exchanged_changes_nothing():
    with Folder() as folder:
        folder.model(*MODEL)
        for name, victim in (("clip-norm", 0), ("adafactor", 1), ("lamb", 0)):
            spec = write_spec(folder, name, 60)
            calm, stormy = (folder.file(f"{kind}-{name}-{victim}") for kind in ("calm", "stormy"))
            weir("train", spec, "--out", calm, "--metrics", calm + ".jsonl")
            with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out", stormy,
                         "--metrics", stormy + ".jsonl") as training:
                wait_for(lambda: newest_step(stormy + ".jsonl") >= 10, "step 10")
                os.kill(children_of(training.child.pid, "weir-server")[1 + victim], signal.SIGKILL)
                assert training.wait() == 0, training.output()[-3000:]
            assert done_event(stormy + ".jsonl")["weights_sha256"] == done_event(calm + ".jsonl")["weights_sha256"]


if __name__ == "__main__":
    main(globals())
