"""Numbers that every machine makes alike, from numpy alone: weights by their names, and small tasks that a model can
learn. The programs here and test_parity.py make the same files from them, so that neither needs to be kept."""
import hashlib

import numpy

IGNORED = -100  # PyTorch's default ignore_index


def uniform(name, *shape):
    """float32 in [-1, 1), multiples of 2^-23: splitmix64 of a counter that begins with the name's hash."""
    count = int(numpy.prod(shape, dtype=numpy.int64))
    seed = numpy.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<u8")[0]
    with numpy.errstate(over="ignore"):
        z = seed + (numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15))
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
    return ((z >> numpy.uint64(40)).astype(numpy.float32) * numpy.float32(2**-23) - numpy.float32(1)).reshape(shape)


def whole(name, limit, *shape):
    """int64 in [0, limit)."""
    return ((uniform(name, *shape).astype(numpy.float64) + 1) / 2 * limit).astype(numpy.int64)


def weights(name, shape):
    """The initial value of a parameter: scaled by its fan-in where it has one, around 1 for the scale of a
    normalization."""
    if len(shape) < 2:
        return uniform(name, *shape) * numpy.float32(0.1) + numpy.float32(name.endswith("weight"))
    fan_in = int(numpy.prod(shape[1:], dtype=numpy.int64))
    return uniform(name, *shape) * numpy.float32(numpy.sqrt(3 / fan_in))


# Tasks: each gives the columns of a dataset by name, labels last.


def images(samples, channels, size, classes):
    """Which of some coarse patterns lies under the noise."""
    labels = whole("labels", classes, samples)
    patterns = uniform("patterns", classes, channels, 4, 4).repeat(size // 4, axis=2).repeat(size // 4, axis=3)
    return {"x": patterns[labels] + uniform("x", samples, channels, size, size), "labels": labels}


def segments(samples, size, classes):
    """The class of each pixel of a coarse map, seen through noise."""
    coarse = whole("labels", classes, samples, size // 4, size // 4)
    labels = coarse.repeat(4, axis=1).repeat(4, axis=2)
    x = uniform("x", samples, 3, size, size)
    for color in range(3):
        x[:, color] += (labels % 3 == color).astype(numpy.float32)
    return {"x": x, "labels": labels}


def shapes(samples, size):
    """Images that are to come out as they went in, from 0 to 1."""
    patterns = uniform("patterns", 8, 1, size, size)
    noise = uniform("x", samples, 1, size, size) * numpy.float32(0.2)
    x = (patterns[whole("kinds", 8, samples)] + noise) / 3 + numpy.float32(0.5)
    return {"x": x, "labels": x}


def texts(samples, length, vocabulary, classes):
    """The class of the last token."""
    tokens = whole("tokens", vocabulary, samples, length)
    return {"tokens": tokens, "labels": tokens[:, -1] % classes}


def next_tokens(samples, length, vocabulary):
    """Each token decides the next one."""
    tokens = whole("tokens", vocabulary, samples, length)
    return {"tokens": tokens, "labels": (tokens * 5 + 3) % (vocabulary // 4)}


def padded_texts(samples, length, vocabulary, classes):
    """The class of the first token, in texts of two segments and several lengths."""
    tokens = whole("tokens", vocabulary, samples, length)
    ends = whole("lengths", length // 2, samples, 1) + length // 2
    at = numpy.arange(length)[None]
    return {"tokens": numpy.where(at < ends, tokens, 0), "segments": (at >= ends // 2).astype(numpy.int64),
            "mask": (at < ends).astype(numpy.int64), "labels": tokens[:, 0] % classes}


def translations(samples, length, vocabulary):
    """Each token has a translation; padding at the end is ignored."""
    source = whole("source", vocabulary, samples, length)
    labels = source % (vocabulary // 4) + 1
    target = numpy.concatenate([numpy.zeros((samples, 1), numpy.int64), labels[:, :-1]], axis=1)
    ends = whole("lengths", length // 2, samples, 1) + length // 2
    return {"source": source, "target": target,
            "labels": numpy.where(numpy.arange(length)[None] < ends, labels, IGNORED)}


def clicks(samples, dense, tables):
    """Whether a mark is above what one category asks for."""
    marks = uniform("dense", samples, dense)
    sparse = numpy.stack([whole(f"sparse{i}", rows, samples) for i, rows in enumerate(tables)], axis=1)
    return {"dense": marks, "sparse": sparse, "labels": (marks[:, 0] * 4 > sparse[:, 0] % 3 - 1).astype(numpy.float32)}


# Graphs without weights: the doc_string of an initializer without data says which parameter it holds.
TRANSPOSED = " transposed"


def recipe(name, is_transposed):
    return name + TRANSPOSED * is_transposed


def fill(tensor):
    """Gives an initializer (TensorProto) of such a graph its data."""
    shape, name = tuple(tensor.dims), tensor.doc_string.removesuffix(TRANSPOSED)
    data = weights(name, shape) if name == tensor.doc_string else weights(name, shape[::-1]).T
    tensor.raw_data = data.astype("<f4").tobytes()
    tensor.doc_string = ""
