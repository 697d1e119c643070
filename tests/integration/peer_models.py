"""Run by test_models.py with the packages onnx and onnxruntime: what `weir model` wrote is judged by others. Argument: a
folder with KIND.onnx of every kind of tests/parity/zoo_cases.py. Each file must pass ONNX's checker, run in
onnxruntime as it is, and have the tensors of the PyTorch module; filled with given weights and evaluated, it must have
that module's outputs. Leaves KIND-filled.onnx and the columns of a dataset, KIND/NAME.npy. Prints a line each."""
import json
import os
import sys

import numpy
import onnx
import onnxruntime

PARITY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "parity")
sys.path.insert(0, PARITY)
import zoo_cases  # noqa: E402


def run(model, feeds):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def fill(model):
    for tensor in model.graph.initializer:
        tensor.raw_data = zoo_cases.value(tensor.name, tuple(tensor.dims)).astype("<f4").tobytes()


def to_evaluation(model):
    """Batch norm by its running statistics. There is no dropout in these."""
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            del node.output[1:]
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0


def judge(folder, kind, golden):
    path = os.path.join(folder, kind + ".onnx")
    onnx.checker.check_model(path, full_check=True)
    model, columns = onnx.load(path), zoo_cases.columns_of(kind)
    feeds = {name: data[:zoo_cases.EVAL_SAMPLES] for name, data in columns.items() if name != "labels"}
    names = [info.name for info in model.graph.input]
    assert names == list(feeds) and [info.name for info in model.graph.output] == ["logits"], names
    assert numpy.isfinite(run(model, feeds)[0]).all(), "as it is written"
    tensors = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    expected = golden["tensors"]
    assert tensors == expected, [name for name in {**tensors, **expected} if tensors.get(name) != expected.get(name)]
    fill(model)
    onnx.save(model, os.path.join(folder, kind + "-filled.onnx"))
    os.mkdir(os.path.join(folder, kind))
    for name, data in columns.items():
        numpy.save(os.path.join(folder, kind, name), data)
    to_evaluation(model)
    outputs, expected = run(model, feeds)[0].ravel(), numpy.array(golden["outputs"])
    error = abs(outputs - expected).max() / abs(expected).max()
    print(f"# {kind}: greatest error of an output beside PyTorch's greatest: {error:.1e}")
    assert error < 1e-5, (outputs, expected)


def main():
    with open(os.path.join(PARITY, "zoo.json")) as file:
        golden = json.load(file)["kinds"]
    for kind in zoo_cases.CASES:
        try:
            judge(sys.argv[1], kind, golden[kind])
        except Exception as error:
            raise AssertionError(kind) from error


if __name__ == "__main__":
    main()
