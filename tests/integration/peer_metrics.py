"""Run by the tests with onnxruntime: what metrics are by their definitions, of model.onnx on samples in idx files.
Arguments: model.onnx IMAGES LABELS IGNORED. Prints JSON; which of it fits, the caller knows."""
import json
import struct
import sys

import numpy
import onnxruntime


def read_idx(path):
    with open(path, "rb") as file:
        kind, rank = file.read(4)[2:]
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return numpy.frombuffer(file.read(), {8: "u1", 13: ">f4"}[kind]).reshape(shape)


def auc(scores, positive):
    """Every pair of a positive and a negative."""
    above, below = scores[positive][:, None], scores[~positive][None, :]
    return float(((above > below) + 0.5 * (above == below)).mean())


model_path, images_path, labels_path, ignored = sys.argv[1:]
images, labels = read_idx(images_path), read_idx(labels_path)
session = onnxruntime.InferenceSession(model_path, providers=["CPUExecutionProvider"])
x = (images.astype(numpy.float32) * numpy.float32(1 / 255)).reshape(len(images), 1, *images.shape[1:])
output = session.run(None, {session.get_inputs()[0].name: x})[0]
found = {}
if labels.dtype == numpy.uint8:
    counted = labels != int(ignored)
    scores, labels = output[counted].astype(numpy.float64), labels[counted]
    own = scores[numpy.arange(len(labels)), labels]
    largest = scores.max(1)
    loss = (numpy.log(numpy.exp(scores - largest[:, None]).sum(1)) + largest - own).mean()
    found = {"accuracy": (scores.argmax(1) == labels).mean(), "perplexity": numpy.exp(loss),
             "top5": ((scores > own[:, None]).sum(1) < 5).mean()}
    if scores.shape[1] == 2:
        found["auc"] = auc(output[counted][:, 1] - output[counted][:, 0], labels == 1)
else:
    target = labels.reshape(output.shape).astype(numpy.float64)
    found = {"mae": numpy.abs(output - target).mean(), "accuracy": ((output > 0) == (target > 0.5)).mean()}
    if output.shape[1] == 1:
        found["auc"] = auc(output[:, 0], target[:, 0] == 1)
print(json.dumps({name: float(value) for name, value in found.items()}))
