#!/usr/bin/env python3
"""Lets a trained language model write: the next character, over and over.

    python examples/sample_text.py weir-out/shakespeare/model.onnx examples/shakespeare/input.txt "ROMEO:" 500

Needs onnxruntime and numpy. The text that the model was trained on says which characters there are: token i is the i-th
of its distinct characters in the order of their code points."""
import sys

import numpy
import onnxruntime

TEMPERATURE = 0.8


def main(model, text, prompt, count):
    with open(text, encoding="utf-8", newline="") as file:
        characters = sorted(set(file.read()))
    number = {character: i for i, character in enumerate(characters)}
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    tokens_input = session.get_inputs()[0]
    context = tokens_input.shape[1]
    generator = numpy.random.default_rng(1)
    written = [number[character] for character in prompt]
    for _ in range(count):
        window = written[-context:]
        tokens = numpy.zeros((1, context), numpy.int64)
        tokens[0, :len(window)] = window  # attention is causal: what follows the window does not count
        scores = session.run(None, {tokens_input.name: tokens})[0][0, len(window) - 1] / TEMPERATURE
        chances = numpy.exp(scores - scores.max())
        written.append(generator.choice(len(characters), p=chances / chances.sum()))
    print("".join(characters[token] for token in written))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
