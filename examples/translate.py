#!/usr/bin/env python3
"""An encoder-decoder Transformer of PyTorch's nn.Transformer, and sentences of an invented language to translate: the
words of a sentence come in the opposite order, each replaced by its partner in a dictionary of 4,096 words.

    python examples/translate.py examples/translate     # writes the model and the sentences into that folder
    weir train examples/translate.yaml --data-root examples --workers 2

Needs torch, onnx and numpy. Sentences have 3 to 8 words; shorter ones are padded with 0, which the loss ignores."""
import math
import os
import sys

import numpy
import torch
from torch import nn

WORDS, LENGTH, WIDTH, HEADS, LAYERS = 4096, 8, 128, 4, 2
PADDING, BEGIN, FIRST = 0, 1, 2  # tokens; words begin at FIRST
TOKENS = FIRST + WORDS


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(TOKENS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.source_places = nn.Parameter(torch.randn(1, LENGTH, WIDTH) * 0.1)
        self.target_places = nn.Parameter(torch.randn(1, LENGTH, WIDTH) * 0.1)
        self.body = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, 2 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, TOKENS)
        for embedding in (self.source, self.target):
            nn.init.normal_(embedding.weight, std=1 / math.sqrt(WIDTH))

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        x = self.body(self.source(source) + self.source_places, self.target(target) + self.target_places,
                      tgt_mask=mask, tgt_is_causal=True)
        return self.head(x)


def make_sentences(count, dictionary, generator):
    words = generator.integers(0, WORDS, (count, LENGTH))
    lengths = generator.integers(3, LENGTH + 1, count)
    source = numpy.full((count, LENGTH), PADDING, numpy.int64)
    labels, target = source.copy(), source.copy()
    for row, (sentence, length) in enumerate(zip(words, lengths)):
        source[row, :length] = FIRST + sentence[:length]
        labels[row, :length] = FIRST + dictionary[sentence[:length][::-1]]
    target[:, 0] = BEGIN
    target[:, 1:] = labels[:, :-1]
    return {"source": source, "target": target, "labels": labels}


def main(folder):
    os.makedirs(folder, exist_ok=True)
    generator = numpy.random.default_rng(1)
    dictionary = generator.permutation(WORDS)
    for part, count in (("train", 40000), ("test", 1000)):
        for column, array in make_sentences(count, dictionary, generator).items():
            numpy.save(os.path.join(folder, f"{part}-{column}.npy"), array.astype(numpy.int32))
    torch.manual_seed(1)
    tokens = torch.zeros(2, LENGTH, dtype=torch.int64)
    torch.onnx.export(Translator(), (tokens, tokens), os.path.join(folder, "translator.onnx"),
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["source", "target"], output_names=["scores"],
                      dynamic_axes={"source": {0: "batch"}, "target": {0: "batch"}}, opset_version=17, dynamo=False)
    print("wrote", folder)


if __name__ == "__main__":
    main(sys.argv[1])
