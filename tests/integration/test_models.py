"""What `weir model` writes, of every kind: valid by ONNX's checker, run by onnxruntime, and PyTorch's module of that name
in evaluation and in training (tests/parity/zoo.py made the numbers)."""
import json
import os
import re
import subprocess

from harness import PATIENCE, PEER_PYTHON, ROOT, Folder, Skip, main, read_metrics, weir

HERE = os.path.dirname(os.path.abspath(__file__))
# What Weir makes of them: a layer that is one node, or became one.
OPERATORS = {"vit": {"ScaledAttention": 2, "LayerNormalization": 5, "Gelu": 2},
             "gpt": {"ScaledAttention": 2, "LayerNormalization": 5, "Gelu": 2},
             "resnet18": {"BatchNormalization": 14, "Conv": 14}, "dlrm": {"Gather": 7}}


def kinds():
    listed = weir("model", "--help").stdout.split("The kinds:")[-1].split("options:")[0]
    return re.findall(r"^  (\S+)", listed, re.MULTILINE)


def peer_cases():
    """CASES of tests/parity/zoo_cases.py, which needs numpy."""
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    code = "import sys, json; sys.path.insert(0, sys.argv[1]); import zoo_cases; print(json.dumps([zoo_cases.CASES, " \
           "zoo_cases.STEPS, zoo_cases.BATCH]))"
    return json.loads(subprocess.run([PEER_PYTHON, "-c", code, os.path.join(ROOT, "tests", "parity")],
                                     capture_output=True, text=True, check=True).stdout)


def tolerance_of(microbatches, step):
    """Batch norm, which only models of one microbatch have here, magnifies rounding while a model trains."""
    return 1e-5 if microbatches > 1 or step == 0 else 3e-4 if step < 3 else 1e-2


def train(folder, kind, model, case, steps, batch):
    """The loss of each step, on the columns that peer_models.py made."""
    _, _, _, loss, lr, microbatches = case
    columns = sorted(name.removesuffix(".npy") for name in os.listdir(folder.file(kind)))
    inputs = ", ".join(f"{name}: {name}" for name in columns if name != "labels")
    files = ", ".join(f"{name}: {name}.npy" for name in columns)
    spec, metrics = folder.file(kind + ".yaml", f"""name: {kind.replace('_', '-')}
model: {{onnx: {model}, loss: {loss}, inputs: {{{inputs}}}}}
data: {{root: {folder.file(kind)}, shuffle: false, train: {{format: npy, columns: {{{files}}}}}}}
train: {{steps: {steps}, batch: {batch}, microbatches: {microbatches}, optimizer: {{lr: {lr}, momentum: 0.9}}}}
"""), folder.file(kind + ".jsonl")
    weir("train", spec, "--workers", 1, "--threads", 2, "--force", "--out", folder.file(kind + ".out"), "--metrics", metrics)
    return [event["loss"] for event in read_metrics(metrics) if event["event"] == "step"][-steps:]


def test_every_kind_is_valid_and_is_pytorchs_module_in_evaluation_and_in_training():
    cases, steps, batch = peer_cases()
    assert sorted(cases) == sorted(kinds()), "each kind has a case"
    with open(os.path.join(ROOT, "tests", "parity", "zoo.json")) as file:
        golden = json.load(file)["kinds"]
    with Folder() as folder:
        for kind, (options, *_) in cases.items():
            folder.model(kind, *options)
        done = subprocess.run([PEER_PYTHON, os.path.join(HERE, "peer_models.py"), folder.path], capture_output=True,
                              text=True, timeout=PATIENCE * 3)
        print(done.stdout, end="")
        assert done.returncode == 0, done.stdout + done.stderr
        for kind, case in cases.items():
            losses, worst = train(folder, kind, folder.file(kind + "-filled.onnx"), case, steps, batch), 0.0
            assert len(losses) == len(golden[kind]["losses"]) == steps
            for step, (ours, theirs) in enumerate(zip(losses, golden[kind]["losses"])):
                error = abs(ours - theirs) / theirs
                worst = max(worst, error)
                assert error <= tolerance_of(case[-1], step), f"{kind}, step {step}: {ours} is not {theirs}"
            print(f"# {kind}: greatest relative error of the loss {worst:.1e}")
        for kind in ("vit", "gpt"):  # whose attention is no longer one node then
            model = folder.model(kind, *cases[kind][0], "--dropout", "0.1")
            losses = train(folder, kind, model, cases[kind], steps, batch)
            assert sum(losses[-6:]) / 6 < losses[0], f"{kind} with dropout: {losses}"


def test_layers_that_are_one_node_stay_or_become_one():
    cases, *_ = peer_cases()
    with Folder() as folder:
        for kind, wanted in OPERATORS.items():
            seen = weir("inspect", folder.model(kind, *cases[kind][0])).stdout
            counts = re.search(r"^operators +(.*)$", seen, re.MULTILINE).group(1).split(", ")
            counts = {name: int(count) for name, count in (entry.split() for entry in counts)}
            for name, count in wanted.items():
                assert counts.get(name) == count, f"{kind}: {counts}"


def test_options_are_the_kinds_own():
    with Folder() as folder:
        out = ("-o", folder.file("x.onnx"))
        for kind in kinds():
            page = weir("help", "model", kind).stdout
            assert weir("model", kind, "--help").stdout == page and f"usage: weir model {kind} " in page, page
            assert "--output" in page and "--seed" in page
            assert "-o FILE.onnx" in weir("model", kind, status=2).stderr
            for option in ("--patch", "--hidden", "--context", "--tables", "--stem", "--channels"):
                if option not in page:
                    refusal = weir("model", kind, option, "3", *out, status=2).stderr
                    assert f"weir model {kind}: " in refusal.replace("weir: model", "weir model") and option in refusal, refusal
        assert "did you mean 'resnet18'" in weir("model", "resnet19", *out, status=2).stderr
        assert "did you mean 'resnet50'" in weir("help", "model", "resnet5", status=2).stderr
        assert "weir model KIND" in weir("model", *out, status=2).stderr
        assert not os.path.exists(out[1])


if __name__ == "__main__":
    main(globals())
