"""Loss and learning rate per step equal PyTorch's in float64 (tests/parity/golden.py made the numbers)."""
import json
import os
import struct
import subprocess

from harness import PEER_PYTHON, ROOT, Cluster, Folder, Skip, main, read_metrics, table_rows, weir

PARITY = os.path.join(ROOT, "tests", "parity")


def read_golden():
    with open(os.path.join(PARITY, "golden.json")) as file:
        return json.load(file)["cases"]


def train_section(case):
    options = ", ".join(f"{key}: {str(value).lower()}" for key, value in case["optimizer"].items())
    return (f"  steps: {case['steps']}\n  batch: {case['batch']}\n  microbatches: {case['microbatches']}\n"
            f"  optimizer: {{name: sgd, {options}}}\n"
            f"  schedule: {{name: cosine, warmup_steps: {case['warmup_steps']}}}\n")


def image_spec(folder, name, case):
    model = folder.model(*case["model"])
    spec = folder.spec(model, run=name, data="  shuffle: false\n", train=train_section(case))
    with open(spec) as file:
        text = file.read()
    if "loss_options" in case:
        options = json.dumps(case["loss_options"])
        text = text.replace("loss: cross_entropy", f"loss: cross_entropy, loss_options: {options}")
    if "mixup" in case:
        text = text.replace("}}]\n", f"}}}}, {json.dumps({'mixup': case['mixup']})}]\n")
    return folder.file(name + ".yaml", text)


def graph_spec(folder, name, case, graph):
    """The spec of a graph that fill.py has filled: every input is fed by the column of its name."""
    columns = [column.removesuffix(".npy") for column in os.listdir(folder.file(name))]
    inputs = ", ".join(f"{column}: {column}" for column in columns if column != "labels")
    files = ", ".join(f"{column}: {column}.npy" for column in columns)
    rows = json.dumps(case.get("frozen_rows", {}))
    return folder.file(graph + ".yaml", f"""name: {graph.removesuffix('.onnx').replace('_', '-')}
model: {{onnx: {folder.file(graph)}, loss: {case['loss']}, inputs: {{{inputs}}}, frozen_rows: {rows}}}
data:
  root: {folder.file(name)}
  shuffle: false
  train: {{format: npy, columns: {{{files}}}}}
train:
{train_section(case)}""")


def compare(folder, spec, case, tolerance_of):
    """Trains as the spec says; the greatest relative error of the loss."""
    metrics = spec + ".jsonl"
    weir("train", spec, "--workers", 2 if case["microbatches"] > 1 else 1, "--threads", 1, "--out",
         spec + ".out", "--metrics", metrics)
    return compare_steps(metrics, case, tolerance_of)


def compare_steps(metrics, case, tolerance_of):
    steps = [event for event in read_metrics(metrics) if event["event"] == "step"]
    assert len(steps) == len(case["losses"]) == 50
    worst = 0.0
    for ours, loss, rate in zip(steps, case["losses"], case["rates"]):
        error = abs(ours["loss"] - loss) / loss
        worst = max(worst, error)
        assert error <= tolerance_of(ours["step"]), f"step {ours['step']}: {ours['loss']} is not {loss}"
        assert abs(ours["lr"] - rate) <= 1e-6 * rate + 1e-12, f"step {ours['step']}: lr {ours['lr']} is not {rate}"
    return worst


def curve_specs(folder, golden):
    """By name of the run: a spec whose section `train` is the file's; JSON is YAML, too. Their data is as much of
    Fashion-MNIST as a run sees."""
    model = folder.model(*golden["model"])
    folder.small_data(max(case["train"]["steps"] * case["train"]["batch"] for case in golden["cases"].values()), 1)
    return {name: folder.file(name + ".yaml", f"""name: {name}
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {folder.path}
  shuffle: false
  train: {{format: idx, images: train-images-idx3, labels: train-labels-idx1}}
  transforms: [{{scale: 0.00392156862745098}}, {{normalize: {{mean: [0.2860], std: [0.3530]}}}}]
train: {json.dumps(case["train"])}
""") for name, case in golden["cases"].items()}


def read_tensors(path):
    """The f32 tensors of a safetensors file, flat."""
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    head.pop("__metadata__", None)
    return {name: struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            for name, (begin, end) in ((name, entry["data_offsets"]) for name, entry in head.items())}


def compare_average(average, case):
    """Greatest error of what PyTorch's AveragedModel holds at the end, relative to its greatest value."""
    ours = read_tensors(average)
    for name, rows in case["average"].items():
        wanted = [value for row in rows for value in row]
        assert len(ours[name]) == len(wanted)
        error = max(abs(a - b) for a, b in zip(ours[name], wanted)) / max(map(abs, wanted))
        assert error <= 1e-5, f"the average of {name} is {error} away"
        print(f"# the average of {name}: {error:.2e}")


def tight(step):
    return 1e-5


def loose(step):
    """For convolutions, whose training magnifies rounding."""
    return 3e-4 if step < 10 else 5e-2


def chaotic(step):
    """For what parts from itself soon: PyTorch in float32 is 3.4e-4 from PyTorch in float64 at step 7, 5.3e-2 at 33."""
    return 1e-5 if step < 5 else 1e-1


def compare_images(name, tolerance_of):
    case = read_golden()[name]
    with Folder() as folder:
        worst = compare(folder, image_spec(folder, name, case), case, tolerance_of)
    print(f"# {name}: greatest relative error of the loss {worst:.2e}")


def compare_graphs(names, tolerance_of):
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv is not there")
    golden, failed = read_golden(), []
    with Folder() as folder:
        subprocess.run([PEER_PYTHON, os.path.join(PARITY, "fill.py"), folder.path, *names], check=True)
        for name in names:
            for graph in golden[name]["graphs"]:
                spec = graph_spec(folder, name, golden[name], graph)
                try:
                    worst = compare(folder, spec, golden[name], tolerance_of)
                    print(f"# {graph}: greatest relative error of the loss {worst:.2e}")
                except AssertionError as error:
                    failed.append(f"{graph}: {error}")
    assert not failed, "\n".join(failed)


def test_an_mlp_follows_pytorch_within_1e_5_for_50_steps():
    compare_images("mlp", tight)


def test_every_optimizer_follows_pytorch_within_1e_5_for_50_steps():
    """curves.py made the numbers."""
    with open(os.path.join(PARITY, "curves.json")) as file:
        golden = json.load(file)
    with Folder() as folder:
        specs = curve_specs(folder, golden)
        trained = {case["train"]["optimizer"]["name"] for case in golden["cases"].values()}
        assert trained == set(table_rows("common/optim/optimizer.def", "OPTIMIZER")), "a row has no run in curves.py"
        with Cluster(folder, servers=2, workers=2, is_patient=True) as cluster:
            for name, spec in specs.items():
                metrics = spec + ".jsonl"
                weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
                worst = compare_steps(metrics, golden["cases"][name], tight)
                print(f"# {name}: greatest relative error of the loss {worst:.2e}")
                if golden["cases"][name]["average"]:
                    weir("export", name, "--average", "-o", spec + ".safetensors", "--coordinator", cluster.address)
                    compare_average(spec + ".safetensors", golden["cases"][name])


def test_mixed_smoothed_and_weighted_labels_follow_pytorch_within_1e_5_for_50_steps():
    compare_images("mlp-mixup", tight)


def test_a_cnn_with_batch_norm_follows_pytorch_within_1e_5_then_1e_1():
    compare_images("lenet-batch-norm", chaotic)


def test_exported_convolutional_models_follow_pytorch_within_3e_4_then_5e_2():
    compare_graphs(["resnet", "mobilenet_v2", "mobilenet_v3", "efficientnet", "densenet", "unet", "autoencoder"], loose)


def test_exported_attention_models_follow_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["mixer", "vit", "gpt", "bert", "translator"], tight)


def test_exported_weight_standardisation_follows_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["standardised"], tight)


def test_exported_patches_that_are_unfolded_and_folded_follow_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["folded"], tight)


def test_exported_attention_with_constants_of_f64_follows_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["covariance"], tight)


def test_an_exported_embedding_with_padding_follows_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["padded"], tight)


def test_exported_embedding_bags_follow_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["bags"], tight)


def test_exported_recurrent_models_follow_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["lstm", "gru"], tight)


def test_an_exported_recommender_follows_pytorch_within_1e_5_for_50_steps():
    compare_graphs(["dlrm"], tight)


if __name__ == "__main__":
    main(globals())
