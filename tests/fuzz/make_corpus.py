#!/usr/bin/env python3
"""Makes the seeds of tests/fuzz/corpus/onnx: small models that together hold every kind of thing that the reader
reads; those of corpus/outline, models with a tensor that is left out of outlines, or was; and those of corpus/pieces, messages
behind a byte that says which. Needs the Python package onnx. Files named finding-* are what the fuzzer found; those that are not
made here are as it left them."""
import hashlib
import os

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
SIDE = 256  # of a matrix that is one piece; with a row more it is two
RANDOM = np.random.default_rng(1)


def tensor(name, *shape):
    return numpy_helper.from_array(RANDOM.standard_normal(shape).astype(np.float32) / 2, name)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def scalar(name, value, dtype):
    return numpy_helper.from_array(np.array(value, dtype), name)


def save(name, nodes, initializers, x, opset=17, functions=(), dtype=TensorProto.FLOAT, domains=()):
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", dtype, ["N", *x])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *domains],
                              functions=list(functions), ir_version=8, producer_name="pytorch")
    write("onnx", name + ".onnx", model.SerializeToString())


def write(folder, name, data):
    os.makedirs(os.path.join(CORPUS, folder), exist_ok=True)
    with open(os.path.join(CORPUS, folder, name), "wb") as file:
        file.write(data)


def in_pieces(name, dims, *keys):
    """An f16 matrix whose data the file names by pieces."""
    named = TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT16, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "weir.pieces"), ("sha256", "".join(keys))):
        named.external_data.add(key=key, value=value)
    return named


def save_outlines():
    zeros = np.zeros((SIDE, SIDE + 1), np.float16)
    zeros[-1, -1] = 1  # so that the pieces' first bytes are not the same
    data = zeros.tobytes()
    whole = numpy_helper.from_array(zeros, "w")
    named = in_pieces("w", zeros.shape, *(hashlib.sha256(data[at:at + 2 * SIDE * SIDE]).hexdigest()
                                          for at in (0, 2 * SIDE * SIDE)))
    other = in_pieces("v", zeros.T.shape, "a" * 64, "b" * 64)
    for name, initializers in (("whole", [whole]), ("named", [named]), ("both", [whole, other])):
        nodes = [node("Cast", "x", "c", to=10), node("MatMul", "c w", "m")]
        nodes += [node("MatMul", "m v", "n"), node("Cast", "n", "y", to=1)] if name == "both" else [node("Cast", "m", "y", to=1)]
        graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", SIDE])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        write("outline", name + ".onnx", model.SerializeToString())
    # finding: a graph with an initializer of no bytes made a pointer of no object move
    write("outline", "finding-empty-initializer.onnx", bytes([7 << 3 | 2, 2, 5 << 3 | 2, 0]))


def save_messages():
    """As the first byte says: PiecesRequest, SubmitRequest, SubmitReply, Chunk."""
    key = hashlib.sha256(bytes(2 * SIDE * SIDE)).hexdigest().encode()
    with open(os.path.join(CORPUS, "outline", "named.onnx"), "rb") as file:
        named = file.read()

    def field(number, data):
        assert len(data) < 1 << 14
        return bytes([number << 3 | 2, len(data) & 0x7f | 0x80, len(data) >> 7]) + data

    write("pieces", "request.bin", b"\0" + field(1, b"run-1") + field(2, key) + field(2, b"a" * 64) + field(2, b""))
    write("pieces", "upload.bin", b"\1" + field(3, named) + b"\x20\1")
    write("pieces", "piece.bin", b"\1" + field(5, bytes(range(256))))
    write("pieces", "wanted.bin", b"\2" + field(2, key) + field(2, key[:-1]) + b"\x18\2")
    write("pieces", "chunk.bin", b"\3" + field(1, bytes(range(250))))


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def main():
    save_outlines()
    save_messages()
    save("mlp", [node("Gemm", "x w b", "h", transB=1), node("Relu", "h", "r"), node("Dropout", "r", "d"),
                 node("MatMul", "d v", "y")], [tensor("w", 4, 3), tensor("b", 4), tensor("v", 4, 2)], [3])
    save("cnn", [node("Conv", "x w b", "c", pads=[1, 1, 1, 1], strides=[2, 1], group=1),
                 node("BatchNormalization", "c s t m v", "n bm bv", training_mode=1),
                 node("MaxPool", "n", "p", kernel_shape=[2, 2], ceil_mode=1),
                 node("ConvTranspose", "p u", "q", strides=[2, 2], output_padding=[1, 1]),
                 node("AveragePool", "q", "a", kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
                 node("GlobalAveragePool", "a", "g"), node("Flatten", "g", "y")],
         [tensor("w", 2, 1, 3, 3), tensor("b", 2), tensor("s", 2), tensor("t", 2), tensor("m", 2),
          numpy_helper.from_array(np.ones(2, np.float32), "v"), tensor("u", 2, 2, 2, 2)], [1, 6, 5])
    save("attention", [node("LayerNormalization", "x s t", "l"), node("MatMul", "l q", "a"),
                       node("Transpose", "l", "k", perm=[0, 2, 1]), node("MatMul", "a k", "z"),
                       node("Trilu", "z", "m", upper=0), node("Softmax", "m", "f"), node("MatMul", "f l", "o"),
                       node("Einsum", "o q", "e", equation="bij,jk->bik"),
                       node("ReduceMean", "e", "y", axes=[1], keepdims=0)],
         [tensor("s", 4), tensor("t", 4), tensor("q", 4, 4)], [3, 4])
    save("shapes", [node("Shape", "x", "s"), node("Gather", "s zero", "b"), node("Concat", "b rest", "t", axis=0),
                    node("MatMul", "x w", "h"), node("Reshape", "h t", "r"), node("Slice", "r one two ax", "c"),
                    node("Pad", "c pads", "p", mode="reflect"), node("Expand", "p big", "e"),
                    node("Tile", "e reps", "i"), node("Split", "i", "u v", axis=1), node("Where", "yes u v", "o"),
                    node("Cast", "o", "k", to=1), node("Squeeze", "k", "q"), node("Unsqueeze", "q ax", "d"),
                    node("Flatten", "d", "y")],
         [ints("zero", 0), ints("rest", 4, 2), ints("one", 0), ints("two", 3), ints("ax", 1), ints("pads", 0, 0, 1, 0, 1, 0),
          ints("big", 1, 1, 3), ints("reps", 1, 2, 1), tensor("w", 8, 8), scalar("yes", True, np.bool_)], [8])
    save("recurrent", [node("Gather", "table x", "e"), node("Transpose", "e", "t", perm=[1, 0, 2]),
                       node("LSTM", "t w r b", "o h c", hidden_size=2), node("Squeeze", "h ax", "z"),
                       node("GRU", "t gw gr", "go gh", hidden_size=2, linear_before_reset=1),
                       node("Squeeze", "gh ax", "gz"), node("Add", "z gz", "y")],
         [tensor("table", 5, 3), tensor("w", 1, 8, 3), tensor("r", 1, 8, 2), tensor("b", 1, 16), tensor("gw", 1, 6, 3),
          tensor("gr", 1, 6, 2), ints("ax", 0)], [4], dtype=TensorProto.INT64)
    save("depth", [node("MatMul", "x w", "h"), node("RandomUniformLike", "h", "u"), node("Less", "u p", "l"),
                   node("Cast", "l", "d", to=1), node("Div", "d p", "s"), node("Mul", "h s", "m"),
                   node("Resize", "m none none sizes", "y", mode="linear")],
         [tensor("w", 3, 3), scalar("p", 0.5, np.float32), numpy_helper.from_array(np.zeros(0, np.float32), "none"),
          ints("sizes", 2, 6)], [3])
    taken = helper.make_graph([node("Relu", "h", "t")], "t", [], [helper.make_tensor_value_info("t", 1, None)])
    other = helper.make_graph([node("Neg", "h", "e")], "e", [], [helper.make_tensor_value_info("e", 1, None)])
    body = node("Softmax", "a", "b")
    body.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="dim"))
    function = helper.make_function("local", "soft", ["a"], ["b"], [body], [helper.make_opsetid("", 17)], ["dim"])
    save("branch", [node("MatMul", "x w", "h"), node("Shape", "h", "s"), node("Size", "s", "n"),
                    node("Equal", "n two", "c"), node("If", "c", "i", then_branch=taken, else_branch=other),
                    helper.make_node("soft", ["i"], ["y"], domain="local", dim=1)],
         [tensor("w", 3, 3), scalar("two", 2, np.int64)], [3], functions=[function],
         domains=[helper.make_opsetid("local", 1)])
    half = numpy_helper.from_array(RANDOM.standard_normal((3, 2)).astype(np.float16), "w")
    save("half", [node("Cast", "x", "c", to=10), node("MatMul", "c w", "m"),
                  node("SplitToSequence", "m k", "q", axis=1), node("SequenceAt", "q zero", "a"),
                  node("SequenceAt", "q one", "b"), node("Concat", "a b", "y", axis=1)],
         [half, scalar("k", 1, np.int64), scalar("zero", 0, np.int64), scalar("one", 1, np.int64)], [3],
         dtype=TensorProto.FLOAT16, opset=20)
    save("scatter", [node("MatMul", "x w", "h"), node("TopK", "h k", "v i", axis=1),
                     node("GatherElements", "h i", "g", axis=1), node("ScatterElements", "h i v", "s", axis=1),
                     node("ScatterND", "s nd up", "d"), node("GatherND", "d nd", "n"), node("CumSum", "d one", "u"),
                     node("GroupNormalization", "r gs gs", "gn", num_groups=1), node("Reshape", "u full", "r"),
                     node("Reshape", "gn flat", "f"), node("PRelu", "f slope", "p"), node("Clip", "p lo hi", "y")],
         [tensor("w", 3, 4), ints("k", 2), ints("nd", 0, 1), numpy_helper.from_array(np.float32(1), "up"),
          scalar("one", 1, np.int64), tensor("gs", 1), ints("full", 0, 2, 2), ints("flat", 0, -1), tensor("slope", 1),
          scalar("lo", -1, np.float32), scalar("hi", 1, np.float32)], [3], opset=18)
    # finding: without a bias the reference kernel read behind the zero that stood for it
    save("finding-layer-norm-without-bias",
         [node("MatMul", "x w", "h"), node("LayerNormalization", "h s", "l"), node("Flatten", "l", "y")],
         [tensor("w", 4, 4), tensor("s", 4)], [3, 4])


if __name__ == "__main__":
    main()
