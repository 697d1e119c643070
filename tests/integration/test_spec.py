"""What the keys of a spec say is what a cluster does."""
import glob
import json
import os
import shlex
import shutil
import struct

from harness import ROOT, Folder, main, read_metrics, weir


def idx(shape, payload):
    return bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + payload


def safetensors(path):
    """The tensors' bytes by name."""
    content = open(path, "rb").read()
    size = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:size])
    return {name: content[size + entry["data_offsets"][0]:size + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


def write_spec(folder, name, model, model_keys="", data_keys="", seed=0, batch=1, microbatches=1, steps=4, lr=0.1):
    """A run over eight samples that are all alike."""
    folder.file("images", idx((8, 4, 4), bytes(range(100, 116)) * 8))
    folder.file("labels", idx((8,), bytes([1] * 8)))
    return folder.file(name, f"""name: keys
model: {{onnx: {model}{model_keys}}}
data:
  root: {folder.path}
  train: {{format: idx, images: images, labels: labels}}
  transforms: [{{scale: 0.01}}]
{data_keys}train: {{steps: {steps}, batch: {batch}, microbatches: {microbatches}, seed: {seed}, optimizer: {{lr: {lr}}}}}
""")


def train(folder, name, *arguments, **keys):
    out = folder.file(name + ".out")
    weir("train", write_spec(folder, name + ".yaml", *arguments, **keys), "--threads", 1, "--out", out)
    losses = [event["loss"] for event in read_metrics(out + "/metrics.jsonl") if event["event"] == "step"]
    return losses, safetensors(out + "/model.safetensors")


def small_mlp(folder, *options):
    return folder.model("mlp", "--input", "1,4,4", "--hidden", "32", *options)


def test_dropout_is_drawn_anew_for_each_step_microbatch_and_seed():
    with Folder() as folder:
        model = small_mlp(folder, "--dropout", "0.5")
        still = {"lr": 1e-30}  # the weights stay: losses differ by what was dropped alone
        losses, _ = train(folder, "one", model, **still)
        assert len(set(losses)) == 4, f"steps drop differently: {losses}"
        assert train(folder, "again", model, **still)[0] == losses
        other, _ = train(folder, "seed", model, seed=1, **still)
        assert not set(other) & set(losses), f"seeds drop differently: {other}, {losses}"
        pair, _ = train(folder, "two", model, batch=2, microbatches=2, **still)
        assert all(mean != first for mean, first in zip(pair, losses)), "microbatches drop differently"
        plain, _ = train(folder, "none", small_mlp(folder), **still)
        assert len(set(plain)) == 1, f"without dropout equal samples lose alike: {plain}"


def test_frozen_initializers_keep_their_values():
    with Folder() as folder:
        model = small_mlp(folder)
        _, whole = train(folder, "whole", model)
        assert set(whole) == {"fc1.weight", "fc1.bias", "head.weight", "head.bias"}
        _, part = train(folder, "part", model, ', frozen: ["fc1.*"]')
        assert set(part) == {"head.weight", "head.bias"}, "only what training changed"
        exported = open(folder.file("part.out/model.onnx"), "rb").read()
        _, initial = train(folder, "initial", model, lr=1e-30)
        assert initial["fc1.weight"] in exported and initial["fc1.bias"] in exported, "as they were"
        assert part["head.weight"] in exported and part["head.weight"] != initial["head.weight"]
        assert whole["fc1.weight"] != initial["fc1.weight"]


def test_columns_are_fed_where_the_spec_says():
    with Folder() as folder:
        model = small_mlp(folder)
        unsaid, _ = train(folder, "unsaid", model)
        said, _ = train(folder, "said", model, ", inputs: {image: images}, labels: labels")
        assert said == unsaid
        for keys, words in ((", inputs: {image: pictures}", ("pictures", "images labels")),
                            (", inputs: {picture: images}", ("model.inputs", "picture", "image")),
                            (", inputs: {image: labels}", ("labels", "[1,4,4]")),
                            (", labels: images", ("images", "are [4,4] in each sample"))):
            spec = write_spec(folder, "wrong.yaml", model, keys)
            said = weir("train", spec, "--out", folder.file("wrong.out"), "--force", status=2).stderr
            assert all(word in said for word in words), said


def test_an_evaluation_counts_every_sample_once_whatever_the_batch():
    with Folder() as folder:
        model = small_mlp(folder)
        folder.file("eval-images", idx((37, 4, 4), bytes(range(100, 116)) * 37))
        folder.file("eval-labels", idx((37,), bytes([1] * 20 + [2] * 6 + [1] * 11)))
        data = "  eval: {format: idx, images: eval-images, labels: eval-labels}\n"
        for batch in (1, 8, 30, 64):  # the last microbatch of the evaluation is whole, or holds 5, 7 or 37 samples
            train(folder, f"eval-{batch}", model, data_keys=data, batch=batch, steps=20)
            event = read_metrics(folder.file(f"eval-{batch}.out/metrics.jsonl"))[-2]
            assert event["event"] == "eval" and abs(event["accuracy"] - 31 / 37) < 1e-6, (batch, event)


def test_a_setting_stands_above_the_spec():
    """The run is that of a spec which says so itself, and the folder's spec.yaml is one."""
    with Folder() as folder:
        model = small_mlp(folder)
        said, _ = train(folder, "said", model, seed=3, lr=0.25)
        spec, settings = write_spec(folder, "spec.yaml", model), ("train.seed=3", "train.optimizer.lr=0.25")
        out = folder.file("set.out")
        weir("train", spec, *settings, "--threads", 1, "--out", out)
        shutil.copy(os.path.join(out, "spec.yaml"), folder.file("kept.yaml"))
        again = folder.file("again.out")
        weir("train", folder.file("kept.yaml"), "--threads", 1, "--out", again)
        for run in (out, again):
            assert [event["loss"] for event in read_metrics(run + "/metrics.jsonl") if event["event"] == "step"] == said
        refusal = weir("train", spec, "--threads", 1, "--out", out, "--resume", status=2).stderr
        assert "train.seed is 0 and was 3" in refusal, refusal
        assert "groups[0]" in weir("inspect", spec, 'train.optimizer.groups=[{params: ["fc1.*"], lr: 0.5}]').stdout


def test_a_setting_that_makes_no_sense_is_named():
    with Folder() as folder:
        spec = write_spec(folder, "spec.yaml", small_mlp(folder))
        for command in (("train",), ("submit",), ("inspect",)):
            for setting, words in (
                    ("train.optimiser.lr=1", "weir: train.optimiser.lr=1: unknown key 'optimiser' in train"),
                    ("train.optimizer.name=adm", "weir: train.optimizer.name=adm: train.optimizer.name: "),
                    ("train.optimizer.lr=fast", "weir: train.optimizer.lr=fast: train.optimizer.lr: 'fast' is no"),
                    ("model.onnx=gone.onnx", "gone.onnx: No such file"),
                    ("other.yaml", "weir: 'other.yaml' is no PATH=VALUE, as train.optimizer.lr=0.1")):
                said = weir(*command, spec, "train.seed=1", setting, status=2).stderr
                assert said.count("\n") == 1 and words in said, said
        said = weir("inspect", folder.file("mlp.onnx"), "train.seed=1", status=2).stderr
        assert "'train.seed=1': PATH=VALUE changes a spec" in said, said


def test_an_example_without_its_model_says_how_to_make_it():
    """What it says does it: after the command the file is there, and the spec is read on."""
    with Folder() as folder:
        examples = folder.file("examples")
        shutil.copytree(os.path.join(ROOT, "examples"), examples, ignore=shutil.ignore_patterns("*.onnx", "weir-out"))
        sweeps = glob.glob(f"{examples}/*-sweep.yaml")
        specs = sorted(set(glob.glob(f"{examples}/*.yaml")) - set(sweeps))
        assert len(specs) >= 8 and len(sweeps) >= 1
        for sweep in sweeps:  # over one of the others, whose model it needs
            name = os.path.relpath(sweep, folder.path)
            assert " says how to make it: weir model " in weir("sweep", name, "--dry-run", status=2, cwd=folder.path).stderr
        for spec in specs:
            name = os.path.relpath(spec, folder.path)
            said = weir("inspect", name, status=2, cwd=folder.path).stderr
            assert said.count("\n") == 1 and f"the top of {name} says how to make it: " in said, said
            model, command = said[len("weir: "):].split(": ")[0], shlex.split(said.split("says how to make it: ")[1])
            if command[0] == "python3":  # with packages that this test has not
                assert os.path.exists(os.path.join(folder.path, command[1])), said
                continue
            assert command[:2] == ["weir", "model"] and command[-1] == model, said
            os.makedirs(os.path.dirname(os.path.join(folder.path, model)), exist_ok=True)
            weir(*command[1:], cwd=folder.path)
            weir("inspect", name, cwd=folder.path)
        for sweep in sweeps:
            weir("sweep", os.path.relpath(sweep, folder.path), "--dry-run", cwd=folder.path)


def test_a_spec_of_ones_own_without_its_model_names_the_file_alone():
    with Folder() as folder:
        spec = write_spec(folder, "own.yaml", "gone.onnx, loss: cross_entropy")
        said = weir("train", spec, status=2).stderr
        assert said == f"weir: {folder.file('gone.onnx')}: No such file or directory\n", said


if __name__ == "__main__":
    main(globals())
