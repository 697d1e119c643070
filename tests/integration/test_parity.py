"""Loss and learning rate per step equal PyTorch's in float64 (tests/parity/golden.py made the numbers)."""
import json
import os

from harness import ROOT, Folder, main, read_metrics, weir


def golden(name):
    with open(os.path.join(ROOT, "tests", "parity", "golden.json")) as file:
        return json.load(file)["cases"][name]


def train_like(case, name):
    """Step lines of our run of the same recipe."""
    with Folder() as folder:
        model = folder.model(*case["model"])
        options = ", ".join(f"{key}: {str(value).lower()}" for key, value in case["optimizer"].items())
        spec = folder.spec(model, run=name, data="  shuffle: false\n", train=(
            f"  steps: {case['steps']}\n  batch: {case['batch']}\n  microbatches: {case['microbatches']}\n"
            f"  optimizer: {{name: sgd, {options}}}\n"
            f"  schedule: {{name: cosine, warmup_steps: {case['warmup_steps']}}}\n"))
        metrics = folder.file("metrics.jsonl")
        weir("train", spec, "--workers", 2 if case["microbatches"] > 1 else 1, "--threads", 1, "--out",
             folder.file("out"), "--metrics", metrics)
        return [event for event in read_metrics(metrics) if event["event"] == "step"]


def compare(name, tolerance_of):
    case = golden(name)
    steps = train_like(case, name)
    assert len(steps) == len(case["losses"]) == 50
    worst = 0.0
    for ours, loss, rate in zip(steps, case["losses"], case["rates"]):
        error = abs(ours["loss"] - loss) / loss
        worst = max(worst, error)
        assert error <= tolerance_of(ours["step"]), f"step {ours['step']}: {ours['loss']} is not {loss}"
        assert abs(ours["lr"] - rate) <= 1e-6 * rate, f"step {ours['step']}: lr {ours['lr']} is not {rate}"
    print(f"# {name}: greatest relative error of the loss {worst:.2e}")


def test_an_mlp_follows_pytorch_within_1e_5_for_50_steps():
    compare("mlp", lambda step: 1e-5)


def test_a_cnn_with_batch_norm_follows_pytorch_within_3e_4_then_5e_2():
    compare("lenet-batch-norm", lambda step: 3e-4 if step < 10 else 5e-2)


if __name__ == "__main__":
    main(globals())
