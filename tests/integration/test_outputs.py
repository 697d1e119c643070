"""What a run leaves is read by programs that are not ours, and says the same."""
import json
import os
import subprocess

from harness import DATA, PATIENCE, PEER_PYTHON, Cluster, Folder, Skip, done_event, main, read_metrics, wait_for, weir

HERE = os.path.dirname(os.path.abspath(__file__))
EVAL = "  eval: {format: idx, images: t10k-images-idx3-ubyte.gz, labels: t10k-labels-idx1-ubyte.gz}\n"
TRAIN = ("  steps: 60\n  batch: 64\n  microbatches: 4\n  seed: 2\n"
         "  optimizer: {lr: 0.05, momentum: 0.9}\n")


def peer(script, *arguments):
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    done = subprocess.run([PEER_PYTHON, os.path.join(HERE, script), *arguments], capture_output=True, text=True,
                          timeout=PATIENCE * 3)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_reads_the_same(out):
    """onnxruntime and safetensors agree with what the run said of its last evaluation. Returns the weights' hash."""
    evaluated, done = read_metrics(os.path.join(out, "metrics.jsonl"))[-2:]
    answer = json.loads(peer("peer_evaluate.py", os.path.join(out, "model.onnx"),
                             os.path.join(out, "model.safetensors"), DATA))
    assert abs(answer["accuracy"] - done["accuracy"]) < 0.001, (answer, done)
    assert abs(answer["loss"] - evaluated["loss"]) < 1e-4 * answer["loss"], (answer, evaluated)
    assert answer["weights_sha256"] == done["weights_sha256"], "the hash that anyone can recompute"
    return answer["weights_sha256"]


def test_onnxruntime_and_safetensors_read_what_train_leaves():
    with Folder() as folder:
        model = folder.model("lenet", "--channels", "8,16", "--hidden", "64", "--batch-norm", "--dropout", "0.25", "--seed",
                             "5")
        out = folder.file("out")
        # 15 samples a microbatch do not divide 10,000: an evaluation ends in a part of one
        spec = folder.spec(model, train=TRAIN.replace("batch: 64", "batch: 60"), data=EVAL)
        weir("train", spec, "--workers", 2, "--threads", 1, "--out", out)
        for name in ("model.onnx", "model.safetensors", "metrics.jsonl", "spec.yaml"):
            assert os.path.getsize(os.path.join(out, name)) > 0, name
        done = done_event(os.path.join(out, "metrics.jsonl"))
        assert 0.5 < done["accuracy"] < 1
        assert_reads_the_same(out)


def test_a_model_of_another_program_with_every_operator_trains_and_reads_back():
    with Folder() as folder:
        model = folder.file("peer.onnx")
        peer("peer_model.py", model)
        spec = folder.spec(model, train=TRAIN, data=EVAL)
        hashes = set()
        for workers, servers, threads in ((2, 2, 1), (1, 1, 2)):
            out = folder.file(f"out-{workers}")
            weir("train", spec, "--workers", workers, "--servers", servers, "--threads", threads, "--out", out)
            hashes.add(assert_reads_the_same(out))
        assert len(hashes) == 1
        steps = [event for event in read_metrics(os.path.join(out, "metrics.jsonl")) if event["event"] == "step"]
        assert steps[-1]["loss"] < 0.8 * steps[0]["loss"], "it learns"


def test_metrics_lines_have_the_promised_keys():
    with Folder() as folder:
        metrics = folder.file("m.jsonl")
        spec = folder.spec(folder.model("mlp", "--hidden", "16"), data=EVAL,
                           train=TRAIN.replace("60", "5"), tail="eval: {every_steps: 2}\n")
        weir("train", spec, "--out", folder.file("out"), "--metrics", metrics)
        events = read_metrics(metrics)
        steps = [event for event in events if event["event"] == "step"]
        evals = [event for event in events if event["event"] == "eval"]
        assert [event["step"] for event in steps] == [0, 1, 2, 3, 4]
        assert [event["step"] for event in evals] == [2, 4, 5]
        assert all({"step", "epoch", "loss", "lr", "samples", "workers", "seconds"} <= set(event) for event in steps)
        assert all({"step", "loss", "accuracy"} <= set(event) for event in evals)
        assert {"steps", "accuracy", "weights_sha256", "samples_per_second"} <= set(events[-1])
        assert steps[0]["samples"] == 64 and steps[0]["lr"] == 0.05


def test_a_stock_grpc_client_lists_services_checks_health_and_reads_runs():
    with Folder() as folder, Cluster(folder, servers=1, workers=1) as cluster:
        metrics = folder.file("m.jsonl")
        spec = folder.spec(folder.model("mlp", "--hidden", "16"), run="stock", train=TRAIN.replace("60", "3"))
        weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
        printed = peer("stock_client.py", cluster.address)
        for word in ("weir.Training", "weir.Cluster", "grpc.health.v1.Health", "SERVING", "stock-"):
            assert word in printed, f"'{word}' is not in:\n{printed}"
        printed = peer("stock_client.py", cluster.servers[0][1])
        for word in ("weir.Parameters: SERVING", "Push(weir.PushRequest) -> weir.PushReply", "grpc.reflection.v1.",
                     "grpc.health.v1.Health: SERVING"):
            assert word in printed, f"'{word}' is not in:\n{printed}"


def test_submitted_runs_are_listed_watched_exported_and_cancelled():
    with Folder() as folder, Cluster(folder, servers=2, workers=2) as cluster:
        at = ("--coordinator", cluster.address)
        spec = folder.spec(folder.model("mlp", "--hidden", "16"), run="first", train=TRAIN, data=EVAL)
        run = weir("submit", spec, *at).stdout
        assert run.count("\n") == 1 and run.startswith("first-") and len(run.strip()) == len("first-") + 6, run
        weir("watch", run.strip(), *at)
        info = cluster.json("status", "first")
        assert info["state"] == "done" and info["step"] == 60 and len(info["weights_sha256"]) == 64, info
        weir("export", "first", "-o", folder.file("x.safetensors"), *at)
        weir("export", "first", "-o", folder.file("x.onnx"), *at)
        weir("inspect", folder.file("x.onnx"))
        long = folder.spec(folder.file("mlp.onnx"), run="second", train=TRAIN.replace("60", "1000000"))
        weir("submit", long, *at)
        weir("cancel", "second", *at)
        wait_for(lambda: {entry["name"]: entry["state"] for entry in cluster.json("runs")} ==
                 {"first": "done", "second": "cancelled"}, "the second run's end")
        assert len(cluster.json("workers")) == 2 and len(cluster.json("servers")) == 2
        for listing in (["runs"], ["workers"], ["servers"], ["status", "first"]):
            assert weir(*listing, *at).stdout


if __name__ == "__main__":
    main(globals())
