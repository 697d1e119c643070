"""The table of docs/FAMILIES.md: what became of each family."""
import collections

import families_cases

STATES = {
    "trains": "train as PyTorch does",
    "random": "train, but draw random numbers, so that steps cannot be compared",
    "gradient": "train, but not as PyTorch does, because their gradient is not that of what they compute",
    "far": "train, but lie more than ten times as far from float64 as PyTorch's float32",
    "differs": "train other tensors than PyTorch",
    "weir": "are refused by Weir",
    "exporter": "are refused by the exporter",
    "pytorch": "do not run in PyTorch itself",
    "broken": "ended the program that tries them",
}
GOOD = ("trains", "random", "gradient")
HEAD = """# Models of Hugging Face transformers and timm

`make parity` builds a small model of each architecture family (`tests/parity/families_cases.py`) with random weights,
exports it with either exporter of PyTorch, and trains it 4 steps with `weir train` and with PyTorch in float32 and
float64, from the same weights on the same samples, without dropout. `make parity FAMILIES="bert xcit"` tries some. A
family *trains* if exactly the tensors are trained that PyTorch trains, and our weights and losses lie at most ten times
as far from float64 as PyTorch's float32. The distance of weights is the norm of their difference over the norm of what
training changed, at least one rounding of the weights; that of losses the greatest relative difference of a step, at
least four roundings. The number behind *trains* is our distance in PyTorch's, of the two the greater. Running
statistics of batch norm are not compared. Rows that `padding_idx` names are in `model.frozen_rows`, parameters without
`requires_grad` in `model.frozen`, and buffers, which the older exporter writes like parameters. The learning rate is
0.05, with momentum; for densenet, ghostnet, res2net and resnest it is 0.005. At 0.05 the input of one of their ReLUs
(at step 2, of densenet at step 4) is so near 0 that our weights, as near to float64's as those of PyTorch's float32,
put it on the other side of 0, and the steps after that drift apart. The gradient is right: at the weights that we had
at that step, it is as near to float64's as that of PyTorch's float32, or within a relative 1e-5. A family that lies
farther on the first 16 samples is tried on the next 16, and the table says so: where two elements of a pool's window are
within a rounding of each other, the gradient of a few samples goes to the other one. Some say little, because
PyTorch's float32 is itself far from float64: resnetv2 (BiT) and sknet 0.6, xception_aligned and cspnet 0.5, nasnet,
pnasnet and shvit 0.3, inception_resnet_v2 0.7.
"""


def known():
    return sum(map(len, families_cases.TRANSFORMERS.values())) + len(families_cases.TIMM)


def summary(results):
    counts = collections.Counter(result["state"] for result in results)
    parts = [f"{counts[state]} {text}" for state, text in STATES.items() if counts[state]]
    return f"{len(results)} exports: " + "; ".join(parts)


def cell(result):
    if result is None:
        return "not tried"
    if result["state"] == "trains":
        fixed = ", fixed batch" if result.get("batch") == "fixed" else ""
        second = ", on other samples" if result.get("samples") == "second" else ""
        return f"trains, {result['times']:.1f}{fixed}{second}"
    reason = result.get("reason", "").replace("weir: model.onnx: ", "").replace("|", "\\|").strip().rstrip(".:")
    word = {"exporter": "exporter", "pytorch": "PyTorch", "weir": "refused", "random": "trains", "gradient": "trains",
            "far": f"far, {result.get('times', 0):.0f}", "differs": "differs"}.get(result["state"], result["state"])
    return f"{word}: {reason}" if reason else word


def best(entries):
    """The state of a family by the exporter with which it comes furthest."""
    return min((entry["state"] for entry in entries), key=list(STATES).index)


def write(path, results):
    families = collections.defaultdict(dict)
    for result in results:
        families[result["library"], result["family"], result["kind"]][result["exporter"]] = result
    states = collections.Counter(best(entries.values()) for entries in families.values())
    lines = [HEAD, f"{len(families)} of {known()} families were tried. With the exporter that gets furthest, "
             + "; ".join(f"{states[state]} {text}" for state, text in STATES.items() if states[state]) + ".", ""]
    for exporter, name in (("new", "newer (`dynamo=True`)"), ("old", "older (`dynamo=False`)")):
        counts = collections.Counter(entries[exporter]["state"] for entries in families.values() if exporter in entries)
        lines.append(f"By the {name} exporter, of {sum(counts.values())}: "
                     + "; ".join(f"{counts[state]} {text}" for state, text in STATES.items() if counts[state]) + ".")
        lines.append("")
    for library in ("transformers", "timm"):
        lines += [f"## {library}", ""]
        lines += ["| family | kind | newer exporter | older exporter |", "| --- | --- | --- | --- |"]
        for (of, family, kind), entries in sorted(families.items()):
            if of == library:
                lines.append(f"| {family} | {kind} | {cell(entries.get('new'))} | {cell(entries.get('old'))} |")
        lines.append("")
    with open(path, "w") as file:
        file.write("\n".join(lines).rstrip() + "\n")
