"""Run by the tests with onnxruntime and safetensors: evaluates model.onnx on Fashion-MNIST's test set, and hashes
the weights that the two files hold. Arguments: model.onnx model.safetensors DATA. Prints JSON."""
import gzip
import hashlib
import json
import sys

import numpy
import onnx
import onnxruntime
import safetensors.numpy

model_path, weights_path, data = sys.argv[1:]
with gzip.open(data + "/t10k-images-idx3-ubyte.gz") as file:
    images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
with gzip.open(data + "/t10k-labels-idx1-ubyte.gz") as file:
    labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)

model = onnx.load(model_path)
onnx.checker.check_model(model, full_check=True)
weights = safetensors.numpy.load_file(weights_path)
digest = hashlib.sha256()
for initializer in model.graph.initializer:
    array = onnx.numpy_helper.to_array(initializer)
    if initializer.name in weights:
        assert numpy.array_equal(array, weights[initializer.name]), initializer.name
        digest.update(array.astype("<f4").tobytes())
assert set(weights) <= {initializer.name for initializer in model.graph.initializer}

session = onnxruntime.InferenceSession(model_path, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
right, loss = 0, 0.0
for begin in range(0, len(images), 500):
    x = (images[begin:begin + 500].astype(numpy.float32) * numpy.float32(1 / 255) - 0.2860) / 0.3530
    wanted = labels[begin:begin + 500]
    logits = session.run(None, {name: x.astype(numpy.float32)})[0].astype(numpy.float64)
    right += int((logits.argmax(1) == wanted).sum())
    largest = logits.max(1)
    loss += float((numpy.log(numpy.exp(logits - largest[:, None]).sum(1)) + largest
                   - logits[numpy.arange(len(wanted)), wanted]).sum())
print(json.dumps({"accuracy": right / len(images), "loss": loss / len(images),
                  "weights_sha256": digest.hexdigest()}))
