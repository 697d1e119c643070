"""Small models of every kind that `weir model` writes, for comparison with PyTorch. Needs numpy alone: zoo.py makes the
numbers with PyTorch, tests/integration/test_models.py compares without it."""
import numpy

import toy

STEPS, BATCH = 12, 8
EVAL_SAMPLES = 3

# kind: options of `weir model`, the task of toy.py and its options, loss, lr, microbatches. Models with batch norm
# normalise within a microbatch, so that theirs is the whole batch. Sizes and lr are such that PyTorch's own float32
# stays near its float64: through many layers of batch norm, rounding grows fast.
CASES = {
    "mlp": (["--input", "3,8,8", "--hidden", "16,12", "--classes", "4"],
            "images", {"channels": 3, "size": 8, "classes": 4}, "cross_entropy", 0.05, 4),
    "lenet": (["--input", "3,16,16", "--channels", "4,6", "--hidden", "12", "--classes", "4", "--batch-norm"],
              "images", {"channels": 3, "size": 16, "classes": 4}, "cross_entropy", 0.02, 1),
    "resnet18": (["--input", "3,32,32", "--width", "6", "--depth", "1,2,1,1", "--classes", "4"],
                 "images", {"channels": 3, "size": 32, "classes": 4}, "cross_entropy", 0.005, 1),
    "resnet50": (["--input", "3,64,64", "--width", "8", "--depth", "1,1,1,1", "--classes", "4"],
                 "images", {"channels": 3, "size": 64, "classes": 4}, "cross_entropy", 0.002, 1),
    "mobilenet_v2": (["--input", "3,96,96", "--width", "0.5", "--classes", "4", "--dropout", "0"],
                     "images", {"channels": 3, "size": 96, "classes": 4}, "cross_entropy", 0.00002, 1),
    "vit": (["--input", "3,16,16", "--patch", "4", "--width", "16", "--depth", "2", "--heads", "2", "--hidden", "32",
             "--classes", "4"], "images", {"channels": 3, "size": 16, "classes": 4}, "cross_entropy", 0.02, 4),
    "gpt": (["--vocabulary", "40", "--context", "10", "--width", "16", "--depth", "2", "--heads", "2"],
            "next_tokens", {"length": 10, "vocabulary": 40}, "cross_entropy", 0.05, 4),
    "dlrm": (["--dense", "5", "--tables", "50,30,20", "--width", "4", "--bottom", "8,4", "--top", "6"],
             "clicks", {"dense": 5, "tables": [50, 30, 20]}, "bce_with_logits", 0.1, 4),
}


def columns_of(kind):
    """The dataset, by the names of the model's inputs, and labels."""
    _, task, options, *_ = CASES[kind]
    columns = getattr(toy, task)(STEPS * BATCH, **options)
    return {"image" if name == "x" else name: data for name, data in columns.items()}


def value(name, shape):
    """What a tensor is filled with, so that none hides behind its initial zeros."""
    if name.endswith("running_var"):
        return toy.uniform(name, *shape) * numpy.float32(0.3) + numpy.float32(1)
    return toy.weights(name, tuple(shape))
