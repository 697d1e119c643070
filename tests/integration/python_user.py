"""What somebody does with the package of examples/python, each step checked as far as he could.

usage: python_user.py ADDRESS CERTIFICATES SPEC HIDDEN OUT

CERTIFICATES: a folder of folders submitter, viewer, other (of another tenant). SPEC: a run with an evaluation. HIDDEN: a run of
another tenant. OUT: a folder. Prints a JSON object of what is to be compared with what our own programs say."""
import json
import os
import sys

import numpy as np
import weir
import yaml


def error_of(function, *arguments):
    """(class, code, text) of what it raises."""
    try:
        list(function(*arguments) or ())
    except weir.WeirError as error:
        return type(error).__name__, error.code, error.text
    return None


def main():
    address, certificates, spec, hidden, out = sys.argv[1:]
    says = {"errors": {}}
    with weir.connect(address, tls=os.path.join(certificates, "submitter")) as cluster:
        with open(spec) as file:
            document = yaml.safe_load(file)
        document["model"]["onnx"] = os.path.join(os.path.dirname(spec), document["model"]["onnx"])
        before = json.dumps(document)
        run = cluster.submit(spec, ["train.optimizer.lr=1e-2", "checkpoint.keep=2"])
        says["rows"] = list(cluster.follow(run))
        says["again"] = list(cluster.follow(run, live=False)) == says["rows"]
        says["run"], says["sha256"] = run, cluster.wait(run).weights_sha256
        twin = cluster.submit(document, {"train.optimizer.lr": 0.01, "checkpoint": {"keep": 2}})
        says["twin"], says["untouched"] = cluster.wait(twin).weights_sha256, json.dumps(document) == before
        says["listed"] = [(each.id, each.state) for each in cluster.runs()]
        cluster.export(run, os.path.join(out, "package.onnx"))
        np.savez(os.path.join(out, "weights.npz"), **cluster.weights(run))
        endless = cluster.submit(document, {"train.steps": 1000000})
        cancelled = cluster.cancel(endless[:-1])
        says["cancelled"] = (cancelled.id == endless, error_of(cluster.follow, endless))
        steps, microbatches = document["train"]["steps"], document["train"]["microbatches"]
        says["batches"] = [[cluster.batch(run, step, at).tolist() for at in range(microbatches)] for step in range(steps)]
        sequential = cluster.submit(document, {"data.shuffle": False, "train.steps": 1, "eval.every_steps": 1})
        cluster.wait(sequential)
        says["sequential"] = cluster.batch(sequential, 0, 1).tolist()
        split = cluster.submit(document, {"data.eval": None, "data.split": [0.8, 0.2], "train.steps": 4, "eval.every_steps": 4})
        cluster.wait(split)
        says["split"] = [[index for at in range(microbatches) for index in cluster.batch(split, step, at).tolist()] for step in range(4)]
        says["split_eval"] = cluster.batch(split, 4, 0, evaluation=True).tolist()
        for name, call in {
                "unknown run": lambda: cluster.status("nobody"), "layout of an unknown run": lambda: cluster.layout("nobody"),
                "hidden run": lambda: cluster.batch(hidden, 0, 0), "hidden layout": lambda: cluster.layout(hidden),
                "no run": lambda: cluster.layout(""), "step": lambda: cluster.batch(run, steps, 0),
                "huge step": lambda: cluster.batch(run, 2**64 - 1, 0), "microbatch": lambda: cluster.batch(run, 0, microbatches),
                "huge microbatch": lambda: cluster.batch(run, 0, 2**32 - 1), "key": lambda: cluster.submit(spec, {"train.step": 3}),
                "value": lambda: cluster.submit(spec, {"train.steps": "many"}),
                "optimizer": lambda: cluster.submit(spec, {"train.optimizer.name": "sdg"}),
                "place": lambda: cluster.submit(spec, {"name.first": 3}), "model": lambda: cluster.submit(spec, {"model.onnx": "no.onnx"}),
                "no model": lambda: cluster.submit(spec, {"model.onnx": spec})}.items():
            says["errors"][name] = error_of(call)
    with weir.connect(address, tls=os.path.join(certificates, "viewer")) as cluster:
        says["errors"]["viewer"] = error_of(cluster.cancel, run)
    with weir.connect(address, tls=os.path.join(certificates, "other")) as cluster:
        says["others"] = [each.id for each in cluster.runs()]
        says["errors"]["other"] = error_of(cluster.batch, run, 0, 0)
    with weir.connect(address) as cluster:
        says["errors"]["plaintext"] = error_of(cluster.runs)
    says["errors"]["elsewhere"] = error_of(weir.connect, "10.0.0.7:7070")
    says["errors"]["folder"] = error_of(lambda: weir.connect(address, tls=out))
    print(json.dumps(says))


main()
