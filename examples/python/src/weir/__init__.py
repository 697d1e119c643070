"""A client of Weir, and workers that compute with PyTorch.

    import weir
    with weir.connect("HOST:7070", tls="certs/client") as cluster:
        run = cluster.submit("spec.yaml", {"train.epochs": 2})
        for row in cluster.follow(run):
            print(row)
        cluster.export(run, "model.onnx")
"""
from .client import Cluster, Run, connect
from .errors import Denied, Invalid, NotFound, RunFailed, Unavailable, WeirError

__all__ = ["Cluster", "Run", "connect", "Denied", "Invalid", "NotFound", "RunFailed", "Unavailable", "WeirError"]
