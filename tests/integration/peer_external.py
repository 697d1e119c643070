"""Run by the tests with onnxruntime: two ONNX files are the same model, one with everything in it, the other with its
tensors beside it. Arguments: WHOLE APART. Prints as JSON which tensors lie beside it."""
import json
import os
import sys

import numpy
import onnx
import onnxruntime

whole, apart = sys.argv[1:]
onnx.checker.check_model(apart, full_check=True)
file = onnx.load(apart, load_external_data=False)
beside = {tensor.name: {entry.key: entry.value for entry in tensor.external_data}
          for tensor in file.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL}
size = os.path.getsize(apart + ".data")
for name, place in beside.items():
    assert place["location"] == os.path.basename(apart) + ".data", place
    assert int(place["offset"]) % 4096 == 0 and int(place["offset"]) + int(place["length"]) <= size, (place, size)
os.chdir("/")  # the tensors lie beside the file, not in the folder of the process
inputs = numpy.random.default_rng(1).standard_normal((5, 1, 28, 28)).astype(numpy.float32)
outputs = []
for path in (whole, apart):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs.append(session.run(None, {session.get_inputs()[0].name: inputs})[0])
assert numpy.abs(outputs[0]).max() > 0 and outputs[0].tobytes() == outputs[1].tobytes(), outputs
print(json.dumps(sorted(beside)))
