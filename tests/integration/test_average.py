"""Parameter groups and the average of the weights, in whole runs: the same bits whoever computed and whoever died, from a
coordinator and from a store, and one clear line where there is no average."""
import json
import os
import signal

from gate import Gate
from harness import (Cluster, Folder, Process, children_of, done_event, main, newest_step, program, read_metrics,
                     wait_for, weir)

STEPS, EVERY = 60, 10
MODEL = ("lenet", "--channels", "4,8", "--hidden", "400", "--batch-norm", "--seed", "3")
# Groups with and without momentum keep blocks of different sizes.
OPTIMIZER = ("optimizer: {name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.001, groups: "
             "[{params: ['*.bias', 'bn*'], weight_decay: 0, momentum: 0}, {params: [fc1.weight], lr: 0.01}, "
             "{params: [conv1.*], frozen: true}]}\n  average: {decay: 0.9}")


def write_spec(folder, average=True):
    folder.small_data(480, 24)
    path = folder.small_spec(folder.model(*MODEL), 4, STEPS, EVERY)
    with open(path) as file:
        text = file.read()
    train = OPTIMIZER if average else OPTIMIZER.split("\n")[0]
    text = text.replace("optimizer: {name: sgd, lr: 0.05, momentum: 0.9}", train)
    assert train in text
    with open(path, "w") as file:
        file.write(text + f"checkpoint: {{every_steps: {EVERY}, keep: 2}}\n")
    return path


def files(out):
    """What a run left, by name."""
    found = {}
    for name in ("model.safetensors", "model.average.safetensors", "model.average.onnx"):
        with open(os.path.join(out, name), "rb") as file:
            found[name] = file.read()
    return found


def train(folder, spec, workers, servers):
    out = folder.file(f"{workers}-{servers}")
    weir("train", spec, "--workers", workers, "--servers", servers, "--threads", 1, "--out", out)
    return out


def read(folder, run, *options):
    path = folder.file("exported.safetensors")
    weir("export", run, "-o", path, *options)
    with open(path, "rb") as file:
        return file.read()


def test_the_average_is_the_same_whoever_computes_and_whoever_dies():
    with Folder() as folder:
        spec = write_spec(folder)
        calm = files(train(folder, spec, 1, 1))
        assert calm["model.safetensors"] != calm["model.average.safetensors"]
        assert files(train(folder, spec, 3, 2)) == calm
        gate, metrics = Gate(folder), folder.file("metrics.jsonl")
        gate.stop_at(STEPS // 2)
        with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out",
                     folder.file("stormy"), "--metrics", metrics, env=gate.environment) as training:
            wait_for(lambda: newest_step(metrics) >= STEPS // 4, f"step {STEPS // 4}")
            victim = next(pid for pid in children_of(training.child.pid, "weir-server")
                          if b"--role=parameters" in open(f"/proc/{pid}/cmdline", "rb").read())
            os.kill(victim, signal.SIGKILL)
            gate.open()
            assert training.wait() == 0, training.output()[-3000:]
        assert any("incarnation" in event for event in read_metrics(metrics)), "the run was rolled back"
        assert files(folder.file("stormy")) == calm


def test_the_average_of_any_checkpoint_is_exported_by_coordinator_and_store():
    with Folder() as folder, Cluster(folder, servers=2, workers=1) as cluster:
        spec, metrics = write_spec(folder), folder.file("metrics.jsonl")
        weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
        from_coordinator = ("--coordinator", cluster.address)
        from_store = ("--store", cluster.store)
        averages = {}
        for step in [checkpoint["step"] for checkpoint in cluster.json("checkpoints", "small")]:
            averages[step] = read(folder, "small", "--average", "--step", step, *from_coordinator)
            assert averages[step] == read(folder, "small", "--average", "--step", step, *from_store)
            assert averages[step] != read(folder, "small", "--step", step, *from_coordinator)
        assert read(folder, "small", "--average", *from_coordinator) == averages[STEPS], "the newest, if no step is said"
        assert len(set(averages.values())) == len(averages), "each version has its own"
        first = read(folder, "small", "--average", "--step", 0, *from_store)
        assert first == read(folder, "small", "--step", 0, *from_coordinator), "it begins as the weights"
        assert done_event(metrics)["steps"] == STEPS


def test_a_run_without_an_average_says_so_in_one_line():
    with Folder() as folder:
        out = train(folder, write_spec(folder, average=False), 1, 1)
        assert not os.path.exists(os.path.join(out, "model.average.onnx"))
        refused = weir("export", "small", "--average", "--store", f"file://{out}/store", "-o", folder.file("x.onnx"),
                       status=2).stderr
        assert "keeps no average of its weights: its spec has no train.average" in refused, refused
        assert refused.count("\n") == 1 and not os.path.exists(folder.file("x.onnx"))


def test_inspect_of_a_spec_tells_which_group_trains_a_tensor():
    with Folder() as folder:
        spec = write_spec(folder)
        tensors = {tensor["name"]: tensor for tensor in json.loads(weir("inspect", spec, "--json").stdout)["tensors"]}
        found = {name: (tensor["role"], tensor.get("group")) for name, tensor in tensors.items()}
        assert found["conv1.weight"] == ("frozen", None)
        assert found["conv1.bias"] == ("trained", 0), "the first group that names it has it"
        assert found["fc1.weight"] == ("trained", 1)
        assert found["conv2.weight"] == ("trained", None)
        assert found["bn1.running_mean"] == ("statistic", None)
        assert "groups[1]" in weir("inspect", spec).stdout
        with open(spec) as file:
            text = file.read()
        folder.file("wrong.yaml", text.replace("conv1.*", "conv9.*"))
        refused = weir("inspect", folder.file("wrong.yaml"), status=2).stderr
        assert "train.optimizer.groups[2].params: 'conv9.*' matches no initializer" in refused, refused


if __name__ == "__main__":
    main(globals())
