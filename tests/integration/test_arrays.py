#!/usr/bin/env python3
"""Arrays that are not what the model takes: refused by what they hold, before they train anything or as they do."""
import struct

from formats import npy
from harness import Folder, main, weir

SAMPLES, SIDE, CHANNELS = 16, 16, 3
ELEMS = SIDE * SIDE * CHANNELS
NAN = float("nan")
SPEC = """name: arrays
model: {{onnx: lenet.onnx, loss: cross_entropy}}
data:
  root: {root}
  train: {{format: npy, columns: {{images: images.npy, labels: labels.npy}}}}
train: {{epochs: 1, batch: 8, microbatches: 2, optimizer: {{name: sgd, lr: 0.01}}}}
"""


def write_data(folder, shape, values=None):
    """A model of [3,16,16], and samples of a shape."""
    values = values if values is not None else [i % 7 / 7 for i in range(SAMPLES * ELEMS)]
    folder.model("lenet", "--input", f"{CHANNELS},{SIDE},{SIDE}", "--channels", "2,2", "--hidden", "4", "--classes", "2")
    folder.file("images.npy", npy("<f4", (SAMPLES, *shape), struct.pack(f"<{len(values)}f", *values)))
    folder.file("labels.npy", npy("|u1", (SAMPLES,), bytes(i % 2 for i in range(SAMPLES))))
    return folder.file("arrays.yaml", SPEC.format(root=folder.path))


def train(folder, spec, status):
    return weir("train", spec, "--threads", 1, "--out", folder.file("out"), "--force", status=status)


def test_samples_of_another_order_are_refused():
    with Folder() as folder:
        for shape in ((CHANNELS, SIDE, SIDE), (ELEMS,), (CHANNELS, SIDE * SIDE)):
            train(folder, write_data(folder, shape), 0)
        for shape, hint in (((SIDE, SIDE, CHANNELS), ": channels come first, as numpy's transpose(0, 3, 1, 2) puts them"),
                            ((SIDE, CHANNELS, SIDE), ""), ((2, ELEMS // 2), "")):
            said = train(folder, write_data(folder, shape), 2).stderr
            wanted = f"are [{','.join(map(str, shape))}], the model's input 'image' wants [3,16,16]{hint}\n"
            assert wanted in said, said


def test_a_sample_that_is_no_number_is_named():
    with Folder() as folder:
        values = [0.5] * (SAMPLES * ELEMS)
        values[5 * ELEMS + 2 * SIDE * SIDE + 3 * SIDE + 1] = NAN
        said = train(folder, write_data(folder, (CHANNELS, SIDE, SIDE), values), 1).stderr
        assert "of step" in said and "column 'images': sample 5 at [2,3,1] is not a finite number" in said, said


if __name__ == "__main__":
    main(globals())
