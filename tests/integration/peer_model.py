"""Run by the tests with the onnx package: writes a model in training form that uses every operator that Weir trains,
as another program than ours would write it. Argument: the file."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, HIDDEN, CLASSES = 16, 32, 10
random = numpy.random.default_rng(1)
initializers, nodes = [], []


def tensor(name, *shape, fan_in=None, value=None):
    bound = 1 / numpy.sqrt(fan_in or 1)
    data = random.uniform(-bound, bound, shape) if value is None else numpy.full(shape, value)
    initializers.append(numpy_helper.from_array(data.astype(numpy.float32), name))
    return name


def node(op, inputs, output, **attributes):
    outputs = [output] if isinstance(output, str) else output
    nodes.append(helper.make_node(op, inputs, outputs, name=f"/{outputs[0]}", **attributes))
    return outputs[0]


def constant(name, array):
    return node("Constant", [], name, value=numpy_helper.from_array(array, name + "_value"))


def conv(name, x, into, out, kernel, **attributes):
    weight = tensor(name + ".weight", out, into, kernel, kernel, fan_in=into * kernel * kernel)
    return node("Conv", [x, weight, tensor(name + ".bias", out, value=0)], name, **attributes)


def batch_norm(name, x, channels):
    statistics = [tensor(name + ".mean", channels, value=0), tensor(name + ".var", channels, value=1)]
    affine = [tensor(name + ".weight", channels, value=1), tensor(name + ".bias", channels, value=0)]
    return node("BatchNormalization", [x, *affine, *statistics], [name, name + "_mean", name + "_var"],
                training_mode=1, momentum=0.9)


x = node("Relu", [batch_norm("bn1", conv("conv1", "image", 1, CHANNELS, 3, auto_pad="SAME_UPPER"), CHANNELS)], "relu1")
x = node("AveragePool", [x], "average", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
skip = x
x = node("Relu", [conv("conv2", x, CHANNELS, CHANNELS, 3, pads=[1, 1, 1, 1])], "relu2")
x = node("Add", [conv("conv3", x, CHANNELS, CHANNELS, 1), skip], "residual")
x = node("MaxPool", [x], "pooled", kernel_shape=[2, 2], strides=[2, 2])
gate = node("Flatten", [node("GlobalAveragePool", [x], "global")], "squeezed")
gate = node("Softmax", [node("MatMul", [gate, tensor("gate.weight", CHANNELS, CHANNELS, fan_in=CHANNELS)], "gate")],
            "softmax", axis=1)
gate = node("Reshape", [gate, constant("gate_shape", numpy.array([-1, CHANNELS, 1, 1], numpy.int64))], "gates")
x = node("Mul", [x, gate], "gated")
x = node("Mul", [x, constant("sixteen", numpy.float32(CHANNELS))], "scaled")
x = node("Flatten", [x], "flat")
x = node("Gemm", [x, tensor("fc.weight", HIDDEN, CHANNELS * 49, fan_in=CHANNELS * 49), tensor("fc.bias", HIDDEN, value=0)],
         "fc", transB=1)
x = node("Dropout", [node("Relu", [x], "relu3"), constant("ratio", numpy.float32(0.2)),
                     constant("training", numpy.bool_(True))], "dropped")
x = node("MatMul", [x, tensor("head.weight", HIDDEN, CLASSES, fan_in=HIDDEN)], "head")
x = node("Add", [x, tensor("head.bias", CLASSES, value=0)], "biased")
node("Identity", [node("LogSoftmax", [x], "log_softmax", axis=1)], "logits")

graph = helper.make_graph(nodes, "peer", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 28, 28])],
                          [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", CLASSES])], initializers)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, sys.argv[1])
