"""A run that counts how often each sample was used: a model with a row of each table a sample, whose gradient is the same at
any weights. With plain SGD, and a rate that is the batch, each sample adds 1 to its row, so after so many epochs each row says
how many, in any mode and whatever died meanwhile."""
import random
import struct

from external_model import BYTES, VARINT, message

FLOAT, INT64 = 1, 7
TABLES = ("a", "b", "c")  # each a block of its own, by parameter groups


def text(number, value):
    return [number, BYTES, value.encode()]


def node(kind, inputs, output, *attributes):
    return [1, BYTES, message([*(text(1, name) for name in inputs), text(2, output), text(4, kind), *attributes])]


def value(number, name, kind, dims):
    """An input (11) or output (12) of the graph; a dimension is a number, or open by a name."""
    sizes = [[1, BYTES, message([[1, VARINT, dim] if isinstance(dim, int) else text(2, dim)])] for dim in dims]
    tensor = message([[1, VARINT, kind], [2, BYTES, message(sizes)]])
    return [number, BYTES, message([text(1, name), [2, BYTES, message([[1, BYTES, tensor]])]])]


def table(name, rows):
    return [5, BYTES, message([[1, VARINT, rows], [1, VARINT, 1], [2, VARINT, FLOAT], text(8, name), [9, BYTES, bytes(4 * rows)]])]


def model(rows):
    """The loss is minus the mean of what the tables have of a sample."""
    keep = [5, BYTES, message([text(1, "keepdims"), [3, VARINT, 0], [20, VARINT, 2]])]
    nodes = [node("Gather", (name, "ids"), name + ".row") for name in TABLES]
    nodes += [node("Sum", [name + ".row" for name in TABLES], "sum"), node("Neg", ("sum",), "minus"),
              node("ReduceMean", ("minus",), "loss", keep)]
    graph = [*nodes, text(2, "ledger"), *(table(name, rows) for name in TABLES), value(11, "ids", INT64, ("batch",)),
             value(12, "loss", FLOAT, ())]
    return message([[1, VARINT, 8], [8, BYTES, message([text(1, ""), [2, VARINT, 13]])], [7, BYTES, message(graph)]])


def npy(shape, kind, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def spec(folder, rows, epochs, batch, microbatches, train="", more="", rate=None):
    """The spec's path; train: further lines of that section, more: of the spec; rate: the batch, where that is the mean's."""
    folder.file("ledger.onnx", model(rows))
    order = random.Random(1).sample(range(rows), rows)
    folder.file("ids.npy", npy((rows,), "<i8", struct.pack(f"<{rows}q", *order)))
    return folder.file("ledger.yaml", f"""name: ledger
model: {{onnx: ledger.onnx, loss: loss}}
data: {{root: {folder.path}, train: {{format: npy, columns: {{ids: ids.npy}}}}}}
train:
  epochs: {epochs}
  batch: {batch}
  microbatches: {microbatches}
  seed: 5
  optimizer: {{name: sgd, lr: {rate or batch}, groups: [{{params: [b], momentum: 0}}, {{params: [c], momentum: 0.0}}]}}
{train}{more}""")
