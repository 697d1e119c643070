#!/usr/bin/env python3
"""Makes losses.json: the mean loss and its gradient by the model's output, as PyTorch computes them in float64, for
every loss and option. tests/unit/model/losses_test.c compares ours. Needs tests/parity/requirements.txt; run as

    python tests/parity/losses.py > tests/parity/losses.json

Outputs are drawn in float32, so that both compute from the same numbers. options are those of model.loss_options;
torch are the same for PyTorch's function where they are called or shaped otherwise."""
import json

import torch
import torch.nn.functional as F

torch.set_flush_denormal(True)  # as Weir computes

FUNCTIONS = {"cross_entropy": F.cross_entropy, "nll": F.nll_loss, "mse": F.mse_loss, "l1": F.l1_loss,
             "bce_with_logits": F.binary_cross_entropy_with_logits, "smooth_l1": F.smooth_l1_loss,
             "huber": F.huber_loss, "kl_div": F.kl_div}
TENSORS = ("weight", "pos_weight")
OURS = ("class_axis", "soft_labels")  # PyTorch sees them from the shapes
WEIGHTS = [0.5, 2.0, 1.25, 0.0, 3.0]


def case(name, loss, shape, options=None, axis=1, ignored=(), torch_options=None):
    """ignored: flat places of labels that are ignored; axis: where PyTorch's classes lie in our output."""
    return {"name": name, "loss": loss, "shape": shape, "options": options or {}, "axis": axis, "ignored": ignored,
            "torch": torch_options or {}}


CASES = [
    case("a label a sample", "cross_entropy", [8, 5]),
    case("smoothed labels", "cross_entropy", [8, 5], {"label_smoothing": 0.1}),
    case("weighted classes", "cross_entropy", [8, 5], {"weight": WEIGHTS}),
    case("ignored labels, all of the first quarter", "cross_entropy", [8, 5], ignored=(0, 1, 5)),
    case("ignored, weighted and smoothed", "cross_entropy", [8, 5],
         {"weight": WEIGHTS, "label_smoothing": 0.25, "ignore_index": -1}, ignored=(0, 1, 2, 6)),
    case("a class is ignored", "cross_entropy", [8, 5], {"ignore_index": 2}),
    case("a label a token", "cross_entropy", [4, 6, 5], axis=2),
    case("tokens, ignored and smoothed", "cross_entropy", [4, 6, 5], {"label_smoothing": 0.1}, axis=2,
         ignored=(0, 1, 2, 3, 4, 7, 11, 20, 21)),
    case("classes before positions", "cross_entropy", [4, 5, 6], {"class_axis": 1}),
    case("a label a pixel", "cross_entropy", [4, 5, 2, 3], {"weight": WEIGHTS}, ignored=(3, 4, 5, 17)),
    case("classes behind pixels", "cross_entropy", [4, 2, 3, 5], {"class_axis": -1}, axis=3),
    case("log-probabilities", "nll", [8, 5]),
    case("log-probabilities, weighted and ignored", "nll", [4, 6, 5], {"weight": WEIGHTS, "ignore_index": 255},
         axis=2, ignored=(0, 1, 2, 3, 4, 5, 12)),
    case("a logit a sample", "bce_with_logits", [8, 1]),
    case("weighted positives", "bce_with_logits", [8, 5], {"pos_weight": WEIGHTS}),
    case("one weight for all positives", "bce_with_logits", [8, 5], {"pos_weight": [3.5]}),
    case("weighted positives of pixels", "bce_with_logits", [4, 5, 2, 3], {"pos_weight": WEIGHTS},
         torch_options={"pos_weight": [[[weight]] for weight in WEIGHTS]}),
    case("squares", "mse", [8, 3]),
    case("squares of scalars", "mse", [8]),
    case("absolute", "l1", [8, 3]),
    case("smooth", "smooth_l1", [8, 3]),
    case("smooth within a beta", "smooth_l1", [8, 3], {"beta": 0.3}),
    case("smooth within nothing", "smooth_l1", [8, 3], {"beta": 0.0}),
    case("huber", "huber", [4, 2, 3]),
    case("huber with a delta", "huber", [8, 3], {"delta": 0.4}),
    case("divergence", "kl_div", [8, 5]),
    case("divergence a sample", "kl_div", [8, 5], {"reduction": "batchmean"}),
    case("divergence of logs", "kl_div", [8, 5], {"log_target": True, "reduction": "batchmean"}),
    case("probabilities of the classes", "cross_entropy", [8, 5], {"soft_labels": True}),
    case("probabilities, weighted and smoothed", "cross_entropy", [8, 5],
         {"soft_labels": True, "weight": WEIGHTS, "label_smoothing": 0.25}),
    case("probabilities of tokens", "cross_entropy", [4, 6, 5], {"soft_labels": True, "label_smoothing": 0.1}, axis=2),
    case("probabilities of pixels", "cross_entropy", [4, 5, 2, 19], {"soft_labels": True, "weight": WEIGHTS}),
]


def draw(made):
    """Output and labels."""
    shape, loss = made["shape"], made["loss"]
    output = torch.randn(shape) * 2
    if loss in ("nll", "kl_div"):
        output = F.log_softmax(output, made["axis"])
    if made["options"].get("soft_labels"):
        return output, torch.softmax(torch.randn(shape) * 2, made["axis"])
    if loss in ("cross_entropy", "nll"):
        shape = shape[:made["axis"]] + shape[made["axis"] + 1:]
        labels = torch.randint(0, made["shape"][made["axis"]], shape)
        labels.view(-1)[list(made["ignored"])] = made["options"].get("ignore_index", -100)
        return output, labels
    if loss == "bce_with_logits":
        return output, torch.bernoulli(torch.full(shape, 0.4))
    if loss == "kl_div":
        target = F.log_softmax(torch.randn(shape), 1)
        return output, target if made["options"].get("log_target") else target.exp()
    return output, output + torch.randn(shape)


def numbers(tensor):
    """Nine digits are all of a float32."""
    return [float(f"{value:.9g}") if tensor.is_floating_point() else value for value in tensor.flatten().tolist()]


def compute(made):
    output, labels = draw(made)
    options = {key: value for key, value in {**made["options"], **made["torch"]}.items() if key not in OURS}
    options = {key: torch.tensor(value, dtype=torch.float64) if key in TENSORS else value
               for key, value in options.items()}
    x = output.double().requires_grad_()
    is_soft = made["options"].get("soft_labels", False)
    is_classes = made["loss"] in ("cross_entropy", "nll") and not is_soft
    given = x.movedim(made["axis"], 1) if is_classes or is_soft else x
    wanted = labels.movedim(made["axis"], 1) if is_soft else labels
    loss = FUNCTIONS[made["loss"]](given, wanted if is_classes else wanted.double(), **options)
    loss.backward()
    answer = {key: made[key] for key in ("name", "loss", "shape", "options")}
    answer.update(output=numbers(output), labels=numbers(labels), mean=loss.item(), gradient=numbers(x.grad))
    if is_classes:
        scored = labels != made["options"].get("ignore_index", -100)
        answer.update(scored=int(scored.sum()),
                      correct=int(((given.argmax(1) == labels) & scored).sum()))
    return answer


if __name__ == "__main__":
    torch.manual_seed(17)
    print("{\"torch\": " + json.dumps(torch.__version__) + ", \"cases\": [")
    print(",\n".join(json.dumps(compute(made)) for made in CASES))
    print("]}")
