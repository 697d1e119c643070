"""ONNX files with external data, made of files without any. Only the standard library: an ONNX file is taken apart and
put together on the wire's form."""
import os
import random
import struct

GRAPH, INITIALIZER = 7, 5  # of ModelProto, of GraphProto
DIMS, TYPE, NAME, RAW, EXTERNAL, LOCATION = 1, 2, 8, 9, 13, 14  # of TensorProto
VARINT, BYTES = 0, 2
FLOAT = 1


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def varint(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data):
    """[number, wire type, value] in order; value: an int, or bytes."""
    at, found = 0, []
    while at < len(data):
        key, at = read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
        else:
            size, at = read_varint(data, at) if kind == BYTES else ({1: 8, 5: 4}[kind], at)
            value, at = data[at:at + size], at + size
        found.append([number, kind, value])
    return found


def message(parts):
    out = bytearray()
    for number, kind, value in parts:
        out += varint(number << 3 | kind)
        if kind == VARINT:
            out += varint(value)
        else:
            out += (varint(len(value)) if kind == BYTES else b"") + value
    return bytes(out)


def entry(key, value):
    return [EXTERNAL, BYTES, message([[1, BYTES, key.encode()], [2, BYTES, str(value).encode()]])]


def first(tensor, number, otherwise=None):
    return next((value for found, _, value in tensor if found == number), otherwise)


def name_of(tensor):
    return first(tensor, NAME).decode()


def place_outside(tensor, location, offset, length):
    """Names the data's place in place of the data."""
    kept = [part for part in tensor if part[0] not in (RAW, EXTERNAL, LOCATION)]
    return kept + [entry("location", location), entry("offset", offset), entry("length", length), [LOCATION, VARINT, 1]]


def rewrite(source, target, change):
    """change(tensor) returns each initializer's fields, changed or not."""
    with open(source, "rb") as file:
        model = fields(file.read())
    for part in model:
        if part[0] == GRAPH:
            graph = fields(part[2])
            for inner in graph:
                if inner[0] == INITIALIZER:
                    inner[2] = message(change(fields(inner[2])))
            part[2] = message(graph)
    with open(target, "wb") as file:
        file.write(message(model))


def make_external(source, target, least=0, location="weights.bin"):
    """Puts the data of all initializers of at least so many bytes into a file beside target. Returns {name: (offset,
    length)}."""
    places = {}
    with open(os.path.join(os.path.dirname(target), location), "wb") as data:
        def change(tensor):
            raw = first(tensor, RAW, b"")
            if len(raw) < max(least, 1):
                return tensor
            data.write(b"\0" * (-data.tell() % 64))
            places[name_of(tensor)] = data.tell(), len(raw)
            data.write(raw)
            return place_outside(tensor, location, *places[name_of(tensor)])

        rewrite(source, target, change)
    return places


def enlarge(source, target, dims, location="weights.bin", seed=1):
    """As make_external, for the tensors of dims alone: {name: dimensions}. They get these, and random numbers."""
    numbers = random.Random(seed)
    block = struct.pack("<65536f", *(numbers.uniform(-0.01, 0.01) for _ in range(65536)))
    with open(os.path.join(os.path.dirname(target), location), "wb") as data:
        def change(tensor):
            wanted = dims.get(name_of(tensor))
            if not wanted:
                return tensor
            length, offset = 4, data.tell()
            for dim in wanted:
                length *= dim
            for begin in range(0, length, len(block)):  # no two pieces are the same
                data.write(struct.pack("<I", 0x3c000000 + begin // len(block)) + block[4:length - begin])
            data.write(b"\0" * (-data.tell() % 64))
            kept = [part for part in tensor if part[0] != DIMS]
            return place_outside([[DIMS, VARINT, dim] for dim in wanted] + kept, location, offset, length)

        rewrite(source, target, change)
