"""Metrics by name: as their definitions say of the exported model, and the same whoever evaluates."""
import json
import os
import random
import signal
import subprocess

from gate import Gate
from harness import PATIENCE, PEER_PYTHON, Cluster, Folder, Process, Skip, done_event, main, newest_step, program, \
    read_metrics, wait_for, weir
from test_losses import floats, idx

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES, EVAL_SAMPLES, IGNORED = 96, 157, 255  # two eval chunks, the second ends in a part of a microbatch


def write_data(folder):
    """Images of 4 x 4, brighter where the label is larger: labels of 8 and of 2 classes, of which some are ignored,
    0 or 1 as a number, and three numbers."""
    draw = random.Random(11)
    for name, samples in (("train", SAMPLES), ("eval", EVAL_SAMPLES)):
        labels = [draw.randrange(8) for _ in range(samples)]
        pixels = bytes(min(255, draw.randrange(160) + 12 * label) for label in labels for _ in range(16))
        folder.file(f"{name}-images", idx(8, (samples, 4, 4), pixels))
        folder.file(f"{name}-classes", idx(8, (samples,), bytes(
            IGNORED if draw.random() < 0.2 else label for label in labels)))
        folder.file(f"{name}-halves", idx(8, (samples,), bytes(
            IGNORED if draw.random() < 0.2 else label // 4 for label in labels)))
        folder.file(f"{name}-flags", idx(13, (samples, 1), floats(label // 4 for label in labels)))
        folder.file(f"{name}-targets", idx(13, (samples, 3), floats(
            draw.random() + label / 8 for label in labels for _ in range(3))))


def write_spec(folder, name, outputs, loss, metrics, labels, steps=6, every=3, tail=""):
    folder.model("mlp", "--input", "1,4,4", "--hidden", "16", "--classes", outputs)
    os.rename(folder.file("mlp.onnx"), folder.file(f"{name}.onnx"))
    ignored = f"\n  loss_options: {{ignore_index: {IGNORED}}}" if loss == "cross_entropy" else ""
    return folder.file(f"{name}.yaml", f"""name: {name}
model:
  onnx: {name}.onnx
  loss: {loss}{ignored}
data:
  root: {folder.path}
  train: {{format: idx, images: train-images, labels: train-{labels}}}
  eval: {{format: idx, images: eval-images, labels: eval-{labels}}}
  transforms: [{{scale: 0.00392156862745098}}]
train: {{steps: {steps}, batch: 24, microbatches: 2, seed: 5, optimizer: {{lr: 0.1, momentum: 0.9}}}}
eval: {{every_steps: {every}, metrics: {metrics}}}
{tail}""")


def train(folder, spec, workers=1, servers=1):
    """The eval events and the done event."""
    metrics = folder.file(f"{workers}-{servers}.jsonl")
    weir("train", spec, "--workers", workers, "--servers", servers, "--threads", 1, "--force", "--out",
         folder.file("out"), "--metrics", metrics)
    events = read_metrics(metrics)
    os.remove(metrics)
    return [event for event in events if event["event"] == "eval"], events[-1]


def by_definition(folder, labels, samples="eval"):
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    done = subprocess.run([PEER_PYTHON, os.path.join(HERE, "peer_metrics.py"), folder.file("out/model.onnx"),
                           folder.file(f"{samples}-images"), folder.file(f"{samples}-{labels}"), str(IGNORED)],
                          capture_output=True, text=True, timeout=PATIENCE * 3)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(name, outputs, loss, metrics, labels):
    """One cluster says what another does, and both what the exported model gives."""
    with Folder() as folder:
        write_data(folder)
        spec = write_spec(folder, name, outputs, loss, f"[{', '.join(metrics)}]", labels)
        evals, done = train(folder, spec)
        others, other_done = train(folder, spec, workers=3, servers=2)
        assert others == evals and len(evals) == 2
        assert set(evals[-1]) == {"event", "step", "loss", *metrics} | ({"accuracy"} if outputs == 8 else set())
        definition = by_definition(folder, labels)
        for metric in metrics:
            assert done[metric] == other_done[metric] == evals[-1][metric]
            assert abs(done[metric] - definition[metric]) <= 1e-5 * definition[metric], (metric, done, definition)
            assert metric in ("mae", "perplexity") or 0 < definition[metric] < 1, "neither trivial"


def test_metrics_of_classes_are_those_of_the_exported_model():
    check("classes", 8, "cross_entropy", ("top5", "perplexity"), "classes")


def test_the_area_under_the_curve_of_two_classes_is_exact():
    check("halves", 2, "cross_entropy", ("auc", "perplexity", "accuracy"), "halves")


def test_the_area_under_the_curve_of_one_logit_is_exact():
    check("flags", 1, "bce_with_logits", ("auc", "accuracy"), "flags")


def test_the_mean_absolute_error_is_that_of_the_exported_model():
    check("targets", 3, "smooth_l1", ("mae",), "targets")


def test_a_worker_killed_in_an_evaluation_changes_no_metric():
    with Folder() as folder:
        write_data(folder)
        spec = write_spec(folder, "killed", 2, "cross_entropy", "[auc, perplexity]", "halves", steps=40, every=1)
        calm, _ = train(folder, spec)
        metrics = folder.file("stormy.jsonl")
        with Cluster(folder, servers=2, workers=3, is_patient=True, gate=Gate(folder)) as cluster:
            cluster.gate.stop_at(12)
            with Process(program("weir"), "submit", spec, "--follow", "--coordinator", cluster.address, "--metrics",
                         metrics) as client:
                for step, worker in ((5, 0), (15, 1)):
                    wait_for(lambda: newest_step(metrics) >= step, f"step {step}")
                    cluster.workers[worker].send(signal.SIGKILL)
                    cluster.gate.stop_at(30)
                cluster.gate.open()
                assert client.wait() == 0, client.output()[-3000:]
        assert [event for event in read_metrics(metrics) if event["event"] == "eval"] == calm
        assert done_event(metrics)["auc"] == calm[-1]["auc"]


def test_a_checkpoint_tells_the_metrics_of_its_version():
    with Folder() as folder:
        write_data(folder)
        spec = write_spec(folder, "best", 8, "cross_entropy", "[perplexity]", "classes",
                          tail="checkpoint: {keep: 1, keep_best: perplexity}\n")
        _, done = train(folder, spec)
        kept = json.loads(weir("checkpoints", "best", "--json", "--store",
                               "file://" + folder.file("out/store")).stdout)
        found = kept[-1]["metrics"]
        assert kept[-1]["step"] == 6 and set(found) == {"perplexity"}, kept
        assert abs(found["perplexity"] - done["perplexity"]) < 1e-12, (kept, done)


def test_metrics_that_cannot_be_are_refused_by_name():
    with Folder() as folder:
        write_data(folder)
        for metrics, said in (("[mae]", "eval.metrics: 'mae' is for"), ("[auc]", "what fits: accuracy, perplexity"),
                              ("[top_5]", "did you mean 'top5'?"), ("[top5, top5]", "is there twice")):
            spec = write_spec(folder, "wrong", 8, "cross_entropy", metrics, "classes")
            text = weir("train", spec, "--out", folder.file("no"), status=2).stderr
            assert said in text and text.count("\n") == 1, text
        spec = write_spec(folder, "wrong", 8, "cross_entropy", "[top5]", "classes",
                          tail="checkpoint: {keep_best: perplexity}\n")
        text = weir("train", spec, "--out", folder.file("no"), status=2).stderr
        assert "checkpoint.keep_best: 'perplexity' is not known" in text, text


if __name__ == "__main__":
    main(globals())
