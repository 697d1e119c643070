"""Rows that model.frozen_rows names stay as they are to the last bit, whatever the optimizer; what cannot be meant is
refused in one line."""
import json
import os
import struct

from harness import Cluster, Folder, main, table_rows, weir
from test_bad_input import refused
from test_parity import read_tensors

TOKENS = "transformer.wte.weight"
DECAYING = {"adamw": 0.1, "sgd": 0.1, "lamb": 0.1, "lars": 0.1}


class Rows:
    """A language model whose token embedding, the output layer too, has so many rows of so many elements."""

    def __init__(self, folder, rows, width):
        self.folder, self.width = folder, width
        self.model = folder.model("gpt", "--vocabulary", rows, "--context", 8, "--width", width, "--depth", 1, "--heads", 2)
        with open(self.model, "rb") as file:
            self.file = file.read()
        folder.file("text", bytes(range(250)) * 8)

    def spec(self, name, frozen_rows, optimizer="{name: sgd, lr: 0.1}"):
        return self.folder.file(name + ".yaml", f"""name: {name}
model: {{onnx: {self.model}, loss: cross_entropy, frozen_rows: {frozen_rows}}}
data: {{root: {self.folder.path}, train: {{format: text, file: text, unit: bytes, context: 8}}}}
train:
  steps: 4
  batch: 8
  microbatches: 2
  clip_norm: 1
  average: {{decay: 0.9}}
  optimizer: {optimizer}
""")

    def clear_row(self, path, row):
        """Writes zeros over a row in the model's file, where it is known from a file that has it unchanged."""
        values = read_tensors(path)[TOKENS][row * self.width:(row + 1) * self.width]
        data = struct.pack(f"<{self.width}f", *values)
        assert self.file.count(data) == 1
        self.folder.file("gpt.onnx", self.file.replace(data, bytes(len(data))))

    def unchanged(self, path):
        """Rows whose bytes are those of the model's file."""
        tensor = read_tensors(path)[TOKENS]
        data, size = struct.pack(f"<{len(tensor)}f", *tensor), self.width * 4
        return [row for row in range(len(data) // size) if data[row * size:(row + 1) * size] in self.file]


def test_named_rows_stay_as_they_are_with_every_optimizer():
    with Folder() as folder:
        model = Rows(folder, 256, 8)
        with Cluster(folder, servers=2, workers=2) as cluster:
            for name in table_rows("common/optim/optimizer.def", "OPTIMIZER"):
                decay = f", weight_decay: {DECAYING[name]}" if name in DECAYING else ""
                spec = model.spec(name, f"{{{TOKENS}: [255, 0, 7]}}", f"{{name: {name}, lr: 0.05{decay}}}")
                weir("submit", spec, "--follow", "--coordinator", cluster.address)
                for average in ((), ("--average",)):
                    out = folder.file(name + ".safetensors")
                    weir("export", name, *average, "-o", out, "--coordinator", cluster.address)
                    assert model.unchanged(out) == [0, 7, 255], f"{name} {average}: {model.unchanged(out)}"


def test_a_row_that_two_blocks_share_stays_as_it_is():
    """Of 256 KiB a block; row 273 of 240 elements lies in the first two."""
    with Folder() as folder:
        model = Rows(folder, 300, 240)
        for name in ("adamw", "lamb"):
            out = folder.file(name)
            weir("train", model.spec(name, f"{{{TOKENS}: [273, 280]}}", f"{{name: {name}, lr: 0.05, weight_decay: 0.1}}"),
                 "--servers", 2, "--threads", 1, "--out", out)
            assert model.unchanged(os.path.join(out, "model.safetensors")) == [273, 280]


def test_inspect_names_a_row_of_zeros_until_it_is_frozen():
    with Folder() as folder:
        model = Rows(folder, 256, 8)
        out, spec = folder.file("out"), model.spec("rows", f"{{{TOKENS}: [3]}}")
        assert "all zeros" not in weir("inspect", model.model).stdout
        weir("train", spec, "--threads", 1, "--out", out)
        model.clear_row(os.path.join(out, "model.safetensors"), 3)
        lines = [line for line in weir("inspect", model.model).stdout.splitlines() if "all zeros" in line]
        assert len(lines) == 1 and f'model.frozen_rows: {{"{TOKENS}": [3]}}' in lines[0], lines
        assert json.loads(weir("inspect", model.model, "--json").stdout)["zero_rows"] == {TOKENS: 3}
        frozen = weir("inspect", spec).stdout
        assert "all zeros" not in frozen and f"1 of '{TOKENS}'" in frozen, frozen


def test_rows_that_cannot_be_meant_are_refused_in_one_line():
    with Folder() as folder:
        model = Rows(folder, 256, 8)
        for rows, words in (("{transformer.wte.wieght: [0]}", ["did you mean 'transformer.wte.weight'"]),
                            (f"{{{TOKENS}: [256]}}", ["has no row 256, only 0 to 255"]),
                            (f"{{{TOKENS}: [-1]}}", ["has no row -1"]),
                            (f"{{{TOKENS}: [3, 0, 3]}}", ["row 3", "named twice"]),
                            (f"{{{TOKENS}: []}}", ["no row of"]),
                            (f"{{{TOKENS}: first}}", ["'first' is not a whole number"]),
                            (f"[{TOKENS}]", ["a mapping is wanted here"]),
                            ("{transformer.ln_f.weight: [0]}", ["1 dimension and so no rows"]),
                            (f"{{{TOKENS}: [0]}}, frozen: ['*.wte.*']", ["is not trained"])):
            refused("train", model.spec("refused", rows), words=["model.frozen_rows", *words])


if __name__ == "__main__":
    main(globals())
