"""weir sweep with model files in its space: each trial's run has the model that its value names."""
import json
import os
import shutil

from harness import Cluster, Folder, main, weir
from test_sweep import Sweep, write_sweep


def write_models(folder):
    """The line of the space for a narrow and a wide model."""
    for name, hidden in (("narrow.onnx", 16), ("wide.onnx", 32)):
        weir("model", "mlp", "--hidden", hidden, "--seed", 5, "-o", folder.file(name))
    return "  model.onnx: {files: [narrow.onnx, wide.onnx]}\n"


def model_of(trial):
    return next(value["value"] for value in trial["values"] if value["path"] == "model.onnx")


def parameters(path):
    return json.loads(weir("inspect", path, "--json").stdout)["parameters"]


def test_each_trial_has_its_model_whatever_dies_and_the_log_is_the_same():
    with Folder() as folder, Cluster(folder) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, more=write_models(folder)))
        info = sweep.ends()
        expected = info["records"]
        size = {name: parameters(folder.file(name)) for name in ("narrow.onnx", "wide.onnx")}
        assert size["narrow.onnx"] < size["wide.onnx"], size
        assert {model_of(trial) for trial in info["trials"]} == set(size), info["trials"]
        for trial in info["trials"]:
            assert cluster.json("status", trial["run"])["parameters"] == size[model_of(trial)], trial
        sweep.ask("export", sweep.id, "-o", folder.file("best.onnx"))
        best = json.loads(sweep.ask("best", sweep.id, "--json").stdout)
        assert parameters(folder.file("best.onnx")) == size[model_of(best)]
        assert f"model.onnx={model_of(best)}" in sweep.ask("best", sweep.id).stdout
        assert "wide.onnx" in sweep.ask("status", sweep.id).stdout
    with Folder() as folder, Cluster(folder, servers=2, workers=2) as cluster:
        sweep = Sweep(cluster, write_sweep(folder, more=write_models(folder)))
        for name in ("narrow.onnx", "wide.onnx"):
            os.remove(folder.file(name))  # the store has them
        sweep.outlives((2, "coordinator"), (4, "worker"), (6, "server"), (9, "coordinator"))
        assert sweep.ends()["records"] == expected


def test_a_private_sweep_leaves_the_best_trials_model_and_a_spec_that_finds_its_file():
    with Folder() as folder:
        path = write_sweep(folder, schedule="{name: none}", trials=2, more=write_models(folder))
        out = folder.file("out")
        weir("sweep", path, "points=[{train.optimizer.lr: 0.1, train.optimizer.momentum: 0, train.batch: 24, "
             "model.onnx: wide.onnx}]", "budget.trials=1", "--out", out)
        assert parameters(os.path.join(out, "best.onnx")) == parameters(folder.file("wide.onnx"))
        with open(os.path.join(out, "best.yaml")) as file:
            assert os.path.realpath(folder.file("wide.onnx")) in file.read()


def test_files_that_are_no_models_are_refused_by_line():
    with Folder() as folder:
        path = write_sweep(folder, more=write_models(folder))
        with open(path) as file:
            text = file.read()
        line = next(number for number, of in enumerate(text.splitlines(), 1) if "model.onnx" in of)
        folder.file("junk.onnx", "junk")
        folder.file("empty.onnx", b"\x08\x07")
        shutil.copy(folder.file("wide.onnx"), folder.file("copy.onnx"))
        for files, why in (("[wide.onnx, missing.onnx]", "missing.onnx: No such file"),
                           ("[wide.onnx, junk.onnx]", "junk.onnx: not a onnx.ModelProto"),
                           ("[wide.onnx, empty.onnx]", "files: empty.onnx: the model holds no graph"),
                           ("[wide.onnx, copy.onnx]", "files: copy.onnx: is the same model as wide.onnx"),
                           ("[]", "wants one of choice, uniform, log and files, with values")):
            bad = folder.file("bad.yaml", text.replace("[narrow.onnx, wide.onnx]", files))
            error = weir("sweep", bad, "--out", folder.file("out"), status=2).stderr
            assert f"bad.yaml:{line}: space.model.onnx: " in error and why in error and error.count("\n") == 1, error
            assert not os.path.exists(folder.file("out"))


if __name__ == "__main__":
    main(globals())
