"""A cluster, as its users see it: runs are submitted, followed, waited for, exported."""
from __future__ import annotations

import dataclasses
import os
import time
from typing import Any, Iterator, Optional

import grpc
import numpy as np

from . import onnx_file, spec as specs
from .channel import open_channel
from .errors import Invalid, RunFailed, Unavailable, raised
from .pb import training_pb2 as pb, training_pb2_grpc

CHUNK_BYTES = 1 << 20
CALL_SECONDS = 60
SILENT_SECONDS = 60  # a run is followed across a coordinator's death
ROW_METRICS = 5  # columns of a row of statistics before the running statistics


@dataclasses.dataclass(frozen=True)
class Run:
    """What the coordinator says of a run. NaN: there is no such number yet."""
    id: str
    name: str
    state: str  # QUEUED, LOADING, RUNNING, FINISHING, DONE, FAILED, CANCELLED, PAUSED, HELD, STOPPED
    message: str  # why it waits or failed
    step: int
    steps: int  # 0: not known yet
    loss: float
    accuracy: float
    samples_per_second: float
    workers: int
    weights_sha256: str
    is_over: bool

    @classmethod
    def _of(cls, info: pb.RunInfo) -> "Run":
        state = pb.RunState.Name(info.state)
        return cls(info.run, info.name, state, info.message, info.step, info.steps, info.loss, info.accuracy,
                   info.samples_per_second, info.workers, info.weights_sha256,
                   state in ("DONE", "STOPPED", "FAILED", "CANCELLED"))


def connect(address: Optional[str] = None, tls: Optional[str] = None, insecure: bool = False) -> "Cluster":
    """A cluster by its coordinator's HOST:PORT (default: WEIR_COORDINATOR, else 127.0.0.1:7070).

    tls: the folder of a client's certificate, as `weir certs issue` makes it (default: WEIR_TLS, else plaintext, which
    stays on this machine unless `insecure`)."""
    address = address or os.environ.get("WEIR_COORDINATOR", "127.0.0.1:7070")
    return Cluster(address, tls or os.environ.get("WEIR_TLS"), insecure)


class Cluster:
    """An open connection; `with` closes it. A run is named by its id or a unique prefix. Every method raises WeirError."""

    def __init__(self, address: str, tls: Optional[str] = None, insecure: bool = False):
        self.address = address
        self._channel = open_channel(address, "coordinator", tls, insecure)
        self._training = training_pb2_grpc.TrainingStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _call(self, method: str, request: Any) -> Any:
        with raised(self.address):
            return getattr(self._training, method)(request, timeout=CALL_SECONDS)

    def _read(self, method: str, request: Any) -> bytes:
        with raised(self.address):
            return b"".join(chunk.data for chunk in getattr(self._training, method)(request))

    def submit(self, spec: specs.Spec, overrides: specs.Overrides = ()) -> str:
        """Submits a run, and returns its id once the store has it.

        spec: the path of a YAML file, or a dict of the same form; `model.onnx` is relative to the file, or to the working
        folder. overrides: {"train.epochs": 2}, or ["train.epochs=2"]."""
        document, folder = specs.load(spec)
        specs.override(document, overrides)
        message = specs.message_of(document)
        path = os.path.join(folder, message.model.onnx)
        try:
            with open(path, "rb") as file:
                model = file.read()
        except OSError as error:
            raise Invalid("INVALID_ARGUMENT", f"model.onnx: {path}: {error.strerror}") from None
        onnx_file.check_whole(model, path)

        def requests() -> Iterator[pb.SubmitRequest]:
            yield pb.SubmitRequest(spec=message, model_bytes=len(model))
            for begin in range(0, len(model), CHUNK_BYTES):
                yield pb.SubmitRequest(chunk=model[begin:begin + CHUNK_BYTES])

        with raised(self.address):
            return [reply.run for reply in self._training.Submit(requests())][-1]

    def runs(self) -> list[Run]:
        """All runs that the holder of this certificate may see, the oldest first."""
        return [Run._of(info) for info in self._call("ListRuns", pb.ListRunsRequest()).runs]

    def status(self, run: str) -> Run:
        return Run._of(self._call("GetRun", pb.RunRequest(run=run)))

    def cancel(self, run: str) -> Run:
        """Ends the run at once; it has no result."""
        return Run._of(self._call("Cancel", pb.RunRequest(run=run)))

    def follow(self, run: str, live: bool = True) -> Iterator[dict[str, Any]]:
        """Yields the run's rows, from the first to the last, as they come. live=False: those that there are now.

        A row is a dict, as in the lines of `weir train --metrics`: "event" is "step", "eval" or "done". Where a run was
        rolled back, steps come again with a higher "incarnation". Raises RunFailed if the run fails or is cancelled."""
        run, following, silent_since = self.status(run).id, 0, time.monotonic()
        last = {"step": (0, -1), "eval": (0, -1)}
        while True:
            try:
                with raised(self.address):
                    request = pb.WatchRequest(run=run, only_past=not live)
                    setattr(request, "from", following)
                    for event in self._training.Watch(request):
                        following, silent_since = event.number + 1, time.monotonic()
                        row = _row_of(event)
                        if row is None:
                            continue
                        mark = (row.get("incarnation", 0), row["step"]) if row["event"] in last else None
                        if mark is None or mark > last[row["event"]]:  # a coordinator's successor tells some again
                            last[row["event"]] = mark or (0, 0)
                            yield row
                        if row["event"] == "done":
                            return
                now = self.status(run)
                if now.state in ("FAILED", "CANCELLED"):
                    raise RunFailed(now.state, f"run '{run}': {now.message or now.state.lower()}")
                if now.is_over or not live:
                    return
            except Unavailable:
                if time.monotonic() - silent_since > SILENT_SECONDS:
                    raise
            time.sleep(0.5)

    def wait(self, run: str) -> Run:
        """Returns when the run has ended. Raises RunFailed if it has no result."""
        for _ in self.follow(run):
            pass
        return self.status(run)

    def layout(self, run: str) -> pb.Layout:
        """The run's tensors, and the blocks into which they are cut."""
        return self._call("GetLayout", pb.RunRequest(run=run))

    def batch(self, run: str, step: int, microbatch: int, evaluation: bool = False) -> np.ndarray:
        """The numbers of the samples of a microbatch, in the order of the dataset's files. evaluation: of that eval chunk of
        version `step`."""
        request = pb.BatchRequest(run=run, step=step, microbatch=microbatch, evaluation=evaluation)
        return np.array(self._call("GetBatch", request).indices, np.int64)

    def weights(self, run: str, step: Optional[int] = None) -> dict[str, np.ndarray]:
        """What training changes, by the names of the ONNX file: of the newest checkpoint, or of that of a version."""
        request = pb.WeightsRequest(run=run, has_step=step is not None, step=step or 0)
        layout, flat = self.layout(run), np.frombuffer(self._read("GetWeights", request), "<f4")
        n_trained = sum(tensor.elems for tensor in layout.tensors if not tensor.is_statistic)
        begins = {True: n_trained - ROW_METRICS, False: 0}
        return {tensor.name: flat[begin:begin + tensor.elems].reshape(tuple(tensor.shape)) for tensor in layout.tensors
                for begin in [begins[tensor.is_statistic] + tensor.begin]}

    def export(self, run: str, path: "str | os.PathLike[str]", step: Optional[int] = None) -> None:
        """Writes the submitted model in inference form, with the weights of a checkpoint, as an ONNX file."""
        weights = self.weights(run, step)
        model = onnx_file.parse(self._read("GetModel", pb.RunRequest(run=run)))
        onnx_file.fill(model, weights, lambda key: self._read("GetPieces", pb.PiecesRequest(run=run, keys=[key])))
        onnx_file.infer(model)
        with open(path, "wb") as file:
            file.write(model.SerializeToString())

    def plot(self, run: str, axes: Any = None) -> Any:
        """Draws the losses of steps and evaluations so far; returns matplotlib's axes. Needs matplotlib."""
        import matplotlib.pyplot
        axes = axes or matplotlib.pyplot.subplots()[1]
        rows = list(self.follow(run, live=False))
        for event, style in (("step", {"linewidth": 1}), ("eval", {"marker": "o"})):
            points = [(row["step"], row["loss"]) for row in rows if row["event"] == event]
            if points:
                axes.plot(*zip(*points), label=event, **style)
        axes.set(title=run, xlabel="step", ylabel="loss")
        axes.legend()
        return axes


def _row_of(event: pb.RunEvent) -> Optional[dict[str, Any]]:
    """None: an event that is no row."""
    kind = event.WhichOneof("event")
    if kind not in ("step", "eval", "done"):
        return None
    of = getattr(event, kind)
    row = {"event": kind, **{field.name: value for field, value in of.ListFields() if field.name not in ("metrics", "reason")}}
    for name in {"step": ("step", "epoch", "loss"), "eval": ("step", "loss"), "done": ("steps",)}[kind]:
        row.setdefault(name, getattr(of, name))
    row.update({metric.name: metric.value for metric in getattr(of, "metrics", ())})
    return row
