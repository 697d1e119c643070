#!/usr/bin/env python3
"""`weir init`: for every kind of model a spec that runs, with the data beside it."""
import os
import random
import re
import struct

from formats import CHANNELS, PIXELS, SIDE, idx, npy, png
from harness import Folder, main, weir
from test_models import kinds

SAMPLES, CLASSES = 40, 3
IMAGE, OUTPUT = f"{CHANNELS},{SIDE},{SIDE}", ["--classes", CLASSES]


def images(folder):
    """Folders train and test, of a folder a class."""
    draw = random.Random(1)
    for part in ("train", "test"):
        for label in range(CLASSES):
            os.makedirs(folder.file(f"{part}/class-{label}"))
            for i in range(SAMPLES // 2):
                folder.file(f"{part}/class-{label}/{i}.png", png(draw.randbytes(PIXELS)))
    return "{format: images, folder: train}"


def mnist(folder):
    draw = random.Random(2)
    for part in ("train", "t10k"):
        folder.file(f"{part}-images-idx3-ubyte", idx(8, (SAMPLES, 28, 28), draw.randbytes(SAMPLES * 28 * 28)))
        folder.file(f"{part}-labels-idx1-ubyte", idx(8, (SAMPLES,), bytes(i % CLASSES for i in range(SAMPLES))))
    return "{format: idx, images: train-images-idx3-ubyte, labels: train-labels-idx1-ubyte}"


def table(folder):
    """The label is amidst the features."""
    folder.file("train.csv", "a,b,label,c\n" + "".join(f"{i}.5,{-i},{i % CLASSES},{i % 7}\n" for i in range(SAMPLES)))
    return '{format: csv, file: train.csv, columns: {image: "a:b,c", labels: "label"}}'


def text(folder):
    folder.file("train.txt", "abc def. " * SAMPLES)
    return "{format: text, file: train.txt, context: 8, unit: bytes}"


def arrays(folder):
    draw = random.Random(3)
    folder.file("dense.npy", npy("<f4", (SAMPLES, 2), struct.pack(f"<{SAMPLES * 2}f", *(draw.random() for _ in range(SAMPLES * 2)))))
    folder.file("sparse.npy", npy("<i8", (SAMPLES, 2), struct.pack(f"<{SAMPLES * 2}q", *(i % 5 for i in range(SAMPLES * 2)))))
    folder.file("labels.npy", npy("<f4", (SAMPLES,), struct.pack(f"<{SAMPLES}f", *(i % 2 for i in range(SAMPLES)))))
    return "{format: npy, columns: {dense: dense.npy, sparse: sparse.npy, labels: labels.npy}}"


# kind: its options, the data beside it, the loss
CASES = {
    "mlp": (["--input", "3", "--hidden", "4", *OUTPUT], table, "cross_entropy"),
    "lenet": (OUTPUT, mnist, "cross_entropy"),
    "resnet18": (["--input", IMAGE, "--width", 8, *OUTPUT], images, "cross_entropy"),
    "resnet50": (["--input", IMAGE, "--width", 8, *OUTPUT], images, "cross_entropy"),
    "mobilenet_v2": (["--input", IMAGE, "--width", 0.25, *OUTPUT], images, "cross_entropy"),
    "vit": (["--input", IMAGE, *OUTPUT, "--patch", SIDE // 2, "--width", 8, "--depth", 1, "--heads", 2], images, "cross_entropy"),
    "gpt": (["--vocabulary", 256, "--context", 8, "--width", 8, "--depth", 1, "--heads", 2], text, "cross_entropy"),
    "dlrm": (["--dense", 2, "--tables", "5x2", "--width", 4, "--bottom", "8,4", "--top", "4"], arrays, "bce_with_logits"),
}


def test_the_spec_of_every_kind_finds_its_data_and_trains():
    assert sorted(CASES) == sorted(kinds()), "each kind has a case"
    for kind, (options, write, loss) in CASES.items():
        with Folder() as folder:
            model, source = folder.model(kind, *options), write(folder)
            said = weir("init", model).stdout
            assert f"with the loss {loss}\n" in said and f"\ndata      {source}\n" in said and "fill in" not in said, said
            spec = folder.file(f"{kind}.yaml")
            with open(spec) as file:
                assert "FILL IN" not in file.read()
            weir("inspect", spec)
            done = weir("train", spec, "--threads", 1, "--out", folder.file("out"), "train.epochs=null", "train.steps=2",
                        "train.batch=8", "train.microbatches=2")
            assert "sha256" in done.stdout, kind


def test_what_is_to_be_filled_in_is_named_and_found_once_it_is_there():
    with Folder() as folder:
        model, spec = folder.model("mlp", "--input", "3", "--classes", CLASSES), folder.file("mlp.yaml")
        said = weir("init", model).stdout
        assert re.search(r"^fill in   data: .*train\.csv", said, re.M), said
        with open(spec) as file:
            assert file.read().count("FILL IN") == 1
        os.mkdir(folder.file("data"))
        folder.file("data/train.csv", "1,2,0\n3,4,1\n")
        said = weir("init", model, "--force", "--data", folder.file("data")).stdout
        assert "train.csv: it has 3 fields" in said, said
        folder.file("data/train.csv", "".join(f"{i},2,3,{i % 2}\n" for i in range(SAMPLES)))
        said = weir("init", model, "-o", folder.file("other.yaml"), "--data", folder.file("data")).stdout
        assert 'header: false, columns: {image: "1:3", labels: "4"}' in said and "fill in" not in said, said
        for delimiter, words in ((";", '";"'), ("\t", r'"\t"'), ("|", '"|"')):
            rows = ["a,b,c,y", *(f"{i},2,3,{i % 2}" for i in range(SAMPLES))]
            folder.file("data/train.csv", "\n".join(rows).replace(",", delimiter))
            said = weir("init", model, "--force", "-o", folder.file("other.yaml"), "--data", folder.file("data")).stdout
            assert f"delimiter: {words}, columns: {{image: \"a:c\", labels: \"y\"}}" in said and "fill in" not in said, said
            weir("train", folder.file("other.yaml"), "--threads", 1, "--out", folder.file("out"), "--force")


def rows(order, delimiter=","):
    """Records whose fields have these names: one class where a is large, the other where c is."""
    def record(i):
        values = {"a": i % 2 * 9, "b": 1, "c": 9 - i % 2 * 9, "label": i % 2}
        return delimiter.join(str(values.get(name, i)) for name in order)

    return "\n".join([delimiter.join(order), *(record(i) for i in range(SAMPLES))]) + "\n"


def test_what_is_evaluated_has_the_training_datas_fields_in_their_order():
    with Folder() as folder:
        model, spec = folder.model("mlp", "--input", "3", "--hidden", "8", "--classes", 2), folder.file("mlp.yaml")
        folder.file("train.csv", rows(["a", "b", "c", "label"]))
        folder.file("val.csv", rows(["label", "c", "b", "a"], ";"))
        said = weir("init", model).stdout
        assert ('eval      {format: csv, file: val.csv, delimiter: ";", columns: {image: "a,b,c", labels: "label"}}\n' in said
                and "note" not in said), said
        done = weir("train", spec, "--threads", 1, "--out", folder.file("out"), "train.epochs=20", "train.batch=8",
                    "train.microbatches=1", "train.optimizer.lr=0.05")
        assert re.search(r"^accuracy +100(\.0+)? %", done.stdout, re.M), done.stdout


def test_data_that_cannot_be_evaluated_is_left_out_with_the_reason():
    with Folder() as folder:
        model, spec = folder.model("mlp", "--input", "3", "--classes", 2), folder.file("mlp.yaml")
        folder.file("train.csv", rows(["a", "b", "c", "label"]))
        folder.file("test.csv", rows(["id", "a", "b", "c"]))
        said, left_out = weir("init", model).stdout, "test.csv is left out: it has no field 'label'\n"
        assert f"\nnote      {left_out}" in said and "eval  " not in said and "fill in" not in said, said
        with open(spec) as file:
            written = file.read()
        assert f"  # {left_out}" in written and "  split: [0.9, 0.1]" in written, written
        weir("train", spec, "--threads", 1, "--out", folder.file("out"), "train.batch=8", "train.microbatches=1")
        folder.file("val.csv", rows(["a", "c", "label"]))
        folder.file("test.csv", rows(["c", "id", "label", "a", "b"]))
        said = weir("init", model, "--force").stdout
        assert ("note      val.csv is left out: it has no field 'b'\n" in said
                and 'eval      {format: csv, file: test.csv, columns: {image: "a:b,c", labels: "label"}}\n' in said), said


def test_headers_as_pandas_and_spreadsheets_write_them_train():
    with Folder() as folder:
        model, spec = folder.model("mlp", "--input", "3", "--classes", 2), folder.file("mlp.yaml")
        for header, columns in ((",a,b,c,label", '{image: "a:c", labels: "label"}'), ("0,1,2,label", '{image: "0:2", labels: "label"}'),
                                ('\n\nx,"b,c",d:1,label', '{image: "x:d:1", labels: "label"}'),
                                ("nan,\\,inf,y", '{image: "nan:inf", labels: "y"}')):
            width = 5 if header.startswith(",") else 4
            folder.file("train.csv", header + "\n" + "".join(",".join([str(i % 2)] * width) + "\n" for i in range(SAMPLES)))
            said = weir("init", model, "--force").stdout
            assert f"columns: {columns}" in said and "fill in" not in said and ("note" in said) == header.startswith(","), said
            weir("train", spec, "--threads", 1, "--out", folder.file("out"), "--force", "train.batch=8", "train.microbatches=1")


def test_names_that_are_not_utf_8_are_blamed_on_their_file_or_folder():
    with Folder() as folder:
        model, spec = folder.model("mlp", "--input", "3", "--classes", 2), folder.file("mlp.yaml")
        folder.file("train.csv", "gr\u00f6\u00dfe,b,c,label\n1,2,3,0\n".encode("latin-1"))
        said = weir("init", model).stdout
        assert ("\nfill in   data: train.csv: the name of field 1, 'gr??e', is not UTF-8: save the file as UTF-8\n" in said
                and 'columns: {image: "FILL IN", labels: "label"}' in said), said
        os.mkdir(folder.file("caf\udce9"))
        with open(model, "rb") as file:
            other = folder.file("caf\udce9/mlp.onnx", file.read())
        for arguments, wanted in (([model, "--data", folder.file("caf\udce9")], f"the folder '{folder.file('caf?')}'"),
                                  ([other, "-o", spec, "--data", folder.file(".")], "the model 'caf?/mlp.onnx'")):
            said = weir("init", *arguments, "--force", status=2).stderr
            assert wanted in said and "rename it" in said and said.count("\n") == 1, said


def test_an_input_that_is_called_labels_is_fed_beside_the_labels():
    with Folder() as folder:
        model, spec = folder.model("dlrm", *CASES["dlrm"][0]), folder.file("dlrm.yaml")
        with open(model, "rb") as file:
            renamed = file.read().replace(b"sparse", b"labels")
        folder.file("dlrm.onnx", renamed)
        arrays(folder)
        os.rename(folder.file("sparse.npy"), folder.file("labels_input.npy"))
        said = weir("init", model).stdout
        assert "{dense: dense.npy, labels_input: labels_input.npy, labels: labels.npy}" in said and "fill in" not in said, said
        weir("train", spec, "--threads", 1, "--out", folder.file("out"), "train.batch=8", "train.microbatches=1")


def test_a_file_that_is_there_is_not_replaced_and_bad_input_is_named():
    with Folder() as folder:
        model, spec = folder.model("mlp", "--input", "3", "--classes", 2), folder.file("mlp.yaml", "mine\n")
        for arguments, wanted in (([model], f"'{spec}' exists"), ([model, "-o", model], "is the model itself"),
                                  ([folder.file("none.onnx")], "none.onnx"), ([spec, "-o", folder.file("x.yaml")], "not an ONNX"),
                                  ([model, "-o", folder.file("x.yaml"), "--data", folder.file("none")], "none'"),
                                  ([model, "-o", folder.file("x.yaml"), "--data", model], f"'{model}' is no folder")):
            said = weir("init", *arguments, status=2).stderr
            assert wanted in said and said.count("\n") == 1, said
        assert open(spec).read() == "mine\n" and not os.path.exists(folder.file("x.yaml"))
        weir("init", model, "--force")
        assert "name: mlp" in open(spec).read()
        os.symlink(model, folder.file("soft.yaml"))
        os.link(model, folder.file("hard.yaml"))
        with open(model, "rb") as file:
            before = file.read()
        for name in (model, folder.file("soft.yaml"), folder.file("hard.yaml")):
            said = weir("init", model, "-o", name, "--force", status=2).stderr
            assert f"'{name}' is the model itself: name another file with -o" in said and said.count("\n") == 1, said
        for name, what in ((spec, "the spec"), (model, "the model"), (folder.file("hard.yaml"), "the model")):
            said = weir("train", spec, "--metrics", name, "--out", folder.file("out"), status=2).stderr
            assert f"--metrics '{name}' is {what} itself: name another file" in said and said.count("\n") == 1, said
        assert open(model, "rb").read() == before and "loss\"" not in open(spec).read() and not os.path.exists(folder.file("out"))


if __name__ == "__main__":
    main(globals())
