"""A worker that is no part of Weir: it computes the model of `weir model mlp --hidden N` with numpy, by the package of examples/python.

usage: foreign_mlp.py ADDRESS [CERTIFICATES]

Says "trained" in a line for each microbatch, "evaluated" for each eval chunk."""
import sys

import numpy as np
from weir.data import Images
from weir.worker import Program, Refused, Result, Worker


class Mlp(Program):
    def open(self, spec, layout):
        if {tensor.name for tensor in layout.tensors} != {"fc1.weight", "fc1.bias", "head.weight", "head.bias"}:
            raise Refused("this is no mlp with one hidden layer")
        self.train_data, self.eval_data = Images(spec, spec.data.train), Images(spec, spec.data.eval)
        return len(self.train_data), len(self.eval_data)

    def forward(self, weights, data, indices):
        x, labels = data.take(indices)
        x, at = x.reshape(len(x), -1), np.arange(len(labels))
        hidden = np.maximum(x @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
        scores = hidden @ weights["head.weight"].T + weights["head.bias"]
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        n = len(labels)
        return x, hidden, shares, labels, Result(float(-np.log(shares[at, labels]).sum()), n, float((scores.argmax(1) == labels).sum()), n, n)

    def train(self, weights, indices, batch):
        x, hidden, shares, labels, result = self.forward(weights, self.train_data, indices)
        shares[np.arange(len(labels)), labels] -= 1
        shares /= batch
        below = shares @ weights["head.weight"] * (hidden > 0)
        result.gradients = {"head.weight": shares.T @ hidden, "head.bias": shares.sum(0), "fc1.weight": below.T @ x, "fc1.bias": below.sum(0)}
        print("trained", flush=True)
        return result

    def evaluate(self, weights, indices):
        print("evaluated", flush=True)
        return self.forward(weights, self.eval_data, indices)[-1]


Worker(sys.argv[1], Mlp(), tls=sys.argv[2] if len(sys.argv) > 2 else None).run()
