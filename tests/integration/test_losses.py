"""Losses on a cluster: labels that do not count, targets, and what is said of runs without classes."""
import random
import struct

from harness import Folder, done_event, main, read_metrics, weir

CLASSES, SAMPLES, EVAL_SAMPLES = 5, 96, 37


def idx(kind, shape, payload):
    return bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + payload


def floats(values):
    return b"".join(struct.pack(">f", value) for value in values)


def write_data(folder):
    """Images of 4 x 4; labels of which two in five, and all of every fourth run of six, are 255; targets f32[5]."""
    draw = random.Random(7)
    for name, samples in (("train", SAMPLES), ("eval", EVAL_SAMPLES)):
        folder.file(name + "-images", idx(8, (samples, 4, 4), bytes(draw.randrange(256) for _ in range(samples * 16))))
        ignored = [draw.random() < 0.4 or (sample // 6) % 4 == 0 for sample in range(samples)]
        folder.file(name + "-labels", idx(8, (samples,), bytes(
            255 if skip else draw.randrange(CLASSES) for skip in ignored)))
        folder.file(name + "-targets", idx(13, (samples, CLASSES), floats(
            draw.uniform(-1, 1) for _ in range(samples * CLASSES))))


def write_spec(folder, name, loss, labels="labels", microbatches=4, tail=""):
    return folder.file(name + ".yaml", f"""name: {name}
model: {{onnx: mlp.onnx, {loss}}}
data:
  root: {folder.path}
  train: {{format: idx, images: train-images, labels: train-{labels}}}
  eval: {{format: idx, images: eval-images, labels: eval-{labels}}}
  transforms: [{{scale: 0.00392156862745098}}]
train: {{steps: 12, batch: 24, microbatches: {microbatches}, seed: 5, optimizer: {{lr: 0.05, momentum: 0.9}}}}
eval: {{every_steps: 6}}
{tail}""")


def train(folder, spec, workers=1, servers=1):
    metrics = folder.file(f"{workers}-{servers}.jsonl")
    weir("train", spec, "--workers", workers, "--servers", servers, "--threads", 1, "--force", "--out",
         folder.file("out"), "--metrics", metrics)
    events = read_metrics(metrics)
    return done_event(metrics)["weights_sha256"], [event["loss"] for event in events if event["event"] == "step"], [
        event for event in events if event["event"] == "eval"]


def open_folder(folder):
    write_data(folder)
    folder.model("mlp", "--input", "1,4,4", "--hidden", "16", "--classes", CLASSES)


COUNTED = "loss_options: {ignore_index: 255, weight: [1, 0.5, 2, 0.25, 4], label_smoothing: 0.1}"


def test_labels_that_do_not_count_change_nothing_about_who_computes():
    with Folder() as folder:
        open_folder(folder)
        spec = write_spec(folder, "ignored", COUNTED)
        calm = train(folder, spec)
        assert train(folder, spec, workers=3, servers=2) == calm
        assert calm[1][-1] < calm[1][0]


def test_a_step_s_loss_is_the_same_whatever_its_microbatches():
    with Folder() as folder:
        open_folder(folder)
        _, whole, evals = train(folder, write_spec(folder, "whole", COUNTED, microbatches=1))
        for microbatches in (4, 24):  # of six samples, of which some have no label that counts, and of one
            _, parts, part_evals = train(folder, write_spec(folder, "parts", COUNTED, microbatches=microbatches))
            assert all(abs(a - b) < 1e-5 * a for a, b in zip(whole, parts)), (whole, parts)
            for a, b in zip(evals, part_evals):
                assert abs(a["loss"] - b["loss"]) < 1e-5 * a["loss"] and a["accuracy"] == b["accuracy"], (a, b)


def test_a_label_that_is_no_class_is_named():
    with Folder() as folder:
        open_folder(folder)
        said = weir("train", write_spec(folder, "bad", "loss: cross_entropy"), "--out", folder.file("out"),
                    status=2).stderr
        assert "has a label that is no class, the model has 5 classes" in said, said


def test_a_label_that_is_ignored_cannot_be_mixed():
    with Folder() as folder:
        open_folder(folder)
        spec = write_spec(folder, "mixed", COUNTED)
        with open(spec) as file:
            mixed = file.read().replace("transforms: [", "transforms: [{mixup: {alpha: 0.2}}, ")
        said = weir("train", folder.file("mixed.yaml", mixed), "--out", folder.file("out"), status=2).stderr
        assert "data.transforms[1]: comes behind 'mixup'" in said, said
        mixed = mixed.replace("{mixup: {alpha: 0.2}}, ", "").replace("}]\ntrain", "}, {mixup: {alpha: 0.2}}]\ntrain")
        said = weir("train", folder.file("mixed.yaml", mixed), "--out", folder.file("out"), status=2).stderr
        assert "data.train: labels: sample" in said and "has a label that is no class" in said, said


def test_targets_have_a_loss_and_no_accuracy():
    with Folder() as folder:
        open_folder(folder)
        best = "checkpoint: {keep_best: loss}\n"
        spec = write_spec(folder, "targets", "loss: huber, loss_options: {delta: 0.5}", "targets", tail=best)
        sha256, losses, evals = train(folder, spec)
        assert train(folder, spec, workers=3, servers=2) == (sha256, losses, evals)
        assert losses[-1] < losses[0] and len(evals) == 2
        assert all("accuracy" not in event for event in evals), evals
        wrong = write_spec(folder, "best", "loss: huber", "targets", tail="checkpoint: {keep_best: accuracy}\n")
        said = weir("train", wrong, "--out", folder.file("out"), "--force", status=2).stderr
        assert "checkpoint.keep_best" in said and "huber" in said, said


if __name__ == "__main__":
    main(globals())
