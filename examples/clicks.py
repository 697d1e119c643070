#!/usr/bin/env python3
"""Click data as an advertiser's log has it, made up: 6 numbers and 6 categories a line, and whether there was a click.

    python examples/clicks.py examples/clicks     # writes train.csv and test.csv into that folder

Needs numpy. The probability of a click follows from hidden vectors of the categories, multiplied pairwise, and from the
numbers. It prints the ROC AUC that whoever knew these probabilities would reach: no model can do better."""
import os
import sys

import numpy

NUMBERS, TABLES, VECTOR = 6, (1000, 500, 200, 100, 50, 20), 4
LINES = {"train": 400_000, "test": 20_000}


def make_hidden(generator):
    return {"weights": generator.normal(0, 0.35, NUMBERS),
            "vectors": [generator.normal(0, 0.55, (rows, VECTOR)) for rows in TABLES]}


def make_lines(count, hidden, generator):
    numbers = generator.normal(0, 1, (count, NUMBERS)).round(3)
    # as words in a text: the first ones of a table are seen far more often than its last
    categories = numpy.stack([(rows * generator.random(count)**2).astype(int) for rows in TABLES], 1)
    vectors = numpy.stack([table[categories[:, i]] for i, table in enumerate(hidden["vectors"])], 1)
    total = vectors.sum(1)
    pairs = ((total**2).sum(1) - (vectors**2).sum((1, 2))) / 2
    chance = 1 / (1 + numpy.exp(-(numbers @ hidden["weights"] + pairs - 1)))
    return numbers, categories, chance, (generator.random(count) < chance).astype(int)


def auc(scores, labels):
    """The share of pairs of a click and no click in which the click has the higher score."""
    order = scores.argsort()
    ranks = numpy.empty(len(scores))
    ranks[order] = numpy.arange(1, len(scores) + 1)
    clicks = labels.sum()
    return (ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks))


def main(folder):
    os.makedirs(folder, exist_ok=True)
    generator = numpy.random.default_rng(1)
    hidden = make_hidden(generator)
    for part, count in LINES.items():
        numbers, categories, chance, labels = make_lines(count, hidden, generator)
        names = [f"n{i + 1}" for i in range(NUMBERS)] + [f"c{i + 1}" for i in range(len(TABLES))] + ["click"]
        with open(os.path.join(folder, part + ".csv"), "w") as file:
            print(",".join(names), file=file)
            for n, c, label in zip(numbers.tolist(), categories.tolist(), labels.tolist()):
                print(",".join(map(str, [*n, *c, label])), file=file)
        print(f"{part}: {count} lines, {labels.mean():.1%} clicks, best possible AUC {auc(chance, labels):.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
