"""A worker in Python: it joins a cluster, computes microbatches of runs with a program of yours, and pushes their gradients.

Such a worker is given runs with `train.deterministic: false`. What Weir's own workers agree on by themselves, it asks for: how the
model is cut into blocks, who owns them, and which samples a microbatch has. See torch_program.py for a program.
"""
from __future__ import annotations

import abc
import dataclasses
import logging
import os
import queue
import socket
import threading
import time
from typing import Any, Callable, Iterator, Mapping, Optional

import grpc
import numpy as np

from .channel import open_channel
from .pb import cluster_pb2 as pb, cluster_pb2_grpc, parameters_pb2, parameters_pb2_grpc, training_pb2

log = logging.getLogger("weir")
BEAT_SECONDS, CALL_SECONDS, REACH_SECONDS = 1.0, 30.0, 2.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 5.0
METRICS = 5  # what a row of statistics begins with
OVER = (grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)  # of a step or incarnation
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)


class Refused(Exception):
    """A program does not compute this run; the text says why."""


@dataclasses.dataclass
class Result:
    """What a program makes of some samples: sums over them. `denominator` divides the sum of the losses."""
    loss_sum: float
    samples: int
    correct: float = 0
    denominator: float = 0  # usually the labels
    scored: float = 0  # labels that can be correct
    gradients: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)  # by the names of trained tensors
    statistics: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)  # of batch norm: the samples' mean and variance

    def row(self, elems: int) -> np.ndarray:
        row = np.zeros(elems, "<f4")
        row[:METRICS] = self.loss_sum, self.samples, self.correct, self.denominator, self.scored
        return row


class Program(abc.ABC):
    """What computes. Weights are f32 arrays by the names of the ONNX file; they are the same dict for one version."""

    wants_file = False  # `read` is called before `open`

    def read(self, file: bytes, piece: Callable[[str], bytes]) -> None:
        """The run's ONNX file, without its large tensors; piece(key): one of the pieces that it names. Raises Refused."""

    @abc.abstractmethod
    def open(self, spec: Any, layout: training_pb2.Layout) -> tuple[int, int]:
        """Makes ready for a run. Returns how many samples data.train and data.eval have. Raises Refused."""

    @abc.abstractmethod
    def train(self, weights: Mapping[str, np.ndarray], indices: np.ndarray, batch: int) -> Result:
        """Gradients of the samples' loss, of which the whole step has `batch`: of their sum, divided by the step's denominator."""

    @abc.abstractmethod
    def evaluate(self, weights: Mapping[str, np.ndarray], indices: np.ndarray) -> Result:
        """The same of evaluation, without gradients."""


class _Seat:
    """The worker's part in a run. Fields from `view` on are the orders', under the worker's lock; the rest is the computing thread's."""

    def __init__(self, load: pb.LoadRun, loaded: pb.RunLoaded):
        self.run, self.spec, self.loaded = load.run, load.spec, loaded
        self.layout: training_pb2.Layout = training_pb2.Layout()
        self.servers: list[tuple[str, parameters_pb2_grpc.ParametersStub]] = []
        self.channels: list[grpc.Channel] = []
        self.entered: Optional[tuple] = None  # incarnation, ticket and addresses that calls are made by
        self.version: Optional[int] = None
        self.vectors: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))  # parameters, statistics
        self.weights: dict[str, np.ndarray] = {}
        self.pulls: dict[int, grpc.Future] = {}  # of the next version, by block
        self.pulled: dict[int, np.ndarray] = {}
        self.done: set[tuple[bool, int]] = set()  # of this version: microbatches, and (True, ...) eval chunks
        self.extras: list[tuple[bool, int]] = []  # likewise: what others are late with
        self.evaluated = 0  # the lowest version from the present one on that is evaluated
        self.told_ready: Optional[int] = None
        self.computed, self.busy_seconds, self.received_bytes = 0, 0.0, 0
        self.answered: dict[str, float] = {}  # when each server did last
        self.view: Optional[pb.View] = None
        self.reissue: Optional[pb.Reissue] = None

    def leave(self) -> None:
        """Holds no version any more."""
        for pull in self.pulls.values():
            pull.cancel()
        self.pulls, self.pulled, self.version, self.told_ready, self.extras = {}, {}, None, None, []

    def close(self) -> None:
        self.leave()
        for channel in self.channels:
            channel.close()
        self.entered, self.channels = None, []


class Worker:
    """One worker; it computes one run at a time. `run` returns after `stop`."""

    def __init__(self, address: str, program: Program, tls: Optional[str] = None, insecure: bool = False, device: str = "python",
                 labels: Optional[Mapping[str, str]] = None):
        self.address, self.program, self.tls, self.insecure = address, program, tls, insecure
        self._labels = [{"key": key, "value": value} for key, value in (labels or {}).items()]
        self._device, self._id, self._term, self._draining = device, "", 0, False
        self._changed = threading.Condition()
        self._out: "queue.Queue[Optional[pb.MemberMessage]]" = queue.Queue()
        self._seat: Optional[_Seat] = None
        self._load: Optional[pb.LoadRun] = None
        self._dropped: list[_Seat] = []  # to be closed by the thread that computes
        self._stopped = False
        self.computed = 0  # microbatches, of all runs
        self._channel = open_channel(address, "coordinator", tls, insecure)
        self._cluster = cluster_pb2_grpc.ClusterStub(self._channel)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._tell(leaving=pb.Leaving())
        self._out.put(None)

    def run(self) -> None:
        threading.Thread(target=self._stay_joined, daemon=True).start()
        pause = PAUSE_SECONDS
        while not self._stopped:
            seat = self._seat
            view = seat.view if seat else None
            try:
                self._turn(seat, view)
                pause = PAUSE_SECONDS
            except grpc.RpcError as error:
                if seat and error.code() in OVER:
                    seat.leave()
                elif seat and error.code() in REFUSED:
                    with self._changed:
                        self._refuse(seat.run, seat.loaded.incarnation, error.details())
                self._wait(lambda: self._stopped or self._seat is not seat or (seat and seat.view is not view), pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    # The membership: a thread of its own.

    def _stay_joined(self) -> None:
        pause = PAUSE_SECONDS
        while not self._stopped:
            self._out = queue.Queue()
            try:
                for order in self._cluster.Join(self._messages(self._out)):
                    pause = PAUSE_SECONDS
                    with self._changed:
                        if order.term >= self._term:
                            self._term = order.term
                            self._obey(order)
                            self._changed.notify_all()
            except grpc.RpcError as error:  # the run goes on meanwhile
                log.warning("the coordinator %s: %s", self.address, error.details())
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _messages(self, out: "queue.Queue[Optional[pb.MemberMessage]]") -> Iterator[pb.MemberMessage]:
        yield pb.MemberMessage(hello=self._hello())
        due = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= due:
                due = now + BEAT_SECONDS
                yield pb.MemberMessage(heartbeat=self._heartbeat())
            try:
                message = out.get(timeout=max(0.001, due - now))
            except queue.Empty:
                continue
            if message is None:
                return
            yield message

    def _hello(self) -> pb.Hello:
        seat = self._seat
        hosted = [pb.HostedRun(run=seat.run, incarnation=seat.loaded.incarnation, version=seat.version or 0)] if seat else []
        return pb.Hello(role=pb.WORKER, host=socket.gethostname(), pid=os.getpid(), device=self._device, executors=1, foreign=True,
                        fingerprint="foreign", id=self._id, term=self._term, draining=self._draining, runs=hosted, labels=self._labels)

    def _heartbeat(self) -> pb.Heartbeat:
        seat, now = self._seat, time.monotonic()
        if not seat:
            return pb.Heartbeat()
        reached = [server for server, at in list(seat.answered.items()) if now - at < REACH_SECONDS]
        return pb.Heartbeat(runs=[pb.RunCounters(run=seat.run, incarnation=seat.loaded.incarnation, computed=seat.computed,
                                                 busy_seconds=seat.busy_seconds, received_bytes=seat.received_bytes, reached=reached)])

    def _tell(self, **body: Any) -> None:
        self._out.put(pb.MemberMessage(**body))

    def _refuse(self, run: str, incarnation: int, text: str, beside: bool = False) -> None:
        log.warning("run %s is refused: %s", run, text)
        self._tell(refused=pb.RunRefused(run=run, incarnation=incarnation, message=text, no_memory_beside=beside))
        if not beside:
            self._drop(run)

    def _obey(self, order: pb.Order) -> None:
        kind, seat = order.WhichOneof("body"), self._seat
        if kind == "welcome":
            self._id = order.welcome.id
        elif kind == "load" and any(other and other.run != order.load.run for other in (seat, self._load)):
            self._refuse(order.load.run, order.load.incarnation, "it computes one run at a time", beside=True)
        elif kind == "load":
            self._load = order.load
        elif kind == "view" and seat and seat.run == order.view.run:
            seat.view = order.view
        elif kind == "reissue" and seat and seat.run == order.reissue.run:
            seat.reissue = order.reissue
        elif kind == "unload":
            self._drop(order.unload.run)
        elif kind == "drain":
            self._draining = True

    def _drop(self, run: str) -> None:
        if self._load and self._load.run == run:
            self._load = None
        if self._seat and self._seat.run == run:
            self._dropped.append(self._seat)
            self._seat = None

    def _wait(self, condition: Any, seconds: Optional[float] = None) -> None:
        with self._changed:
            self._changed.wait_for(condition, seconds)

    # Runs: the thread of `run`.

    def _turn(self, seat: Optional[_Seat], view: Optional[pb.View]) -> None:
        """Does one thing of what there is to do, or waits for something."""
        load = self._load
        while self._dropped:
            self._dropped.pop().close()
        if load:
            self._enter_run(load)
        elif seat and view and view.servers:
            self._advance(seat, view)
        else:
            self._wait(lambda: self._stopped or self._load or self._seat is not seat or (seat and seat.view is not view))

    def _enter_run(self, load: pb.LoadRun) -> None:
        loaded = pb.RunLoaded(run=load.run, incarnation=load.incarnation)
        seat = self._seat
        if not seat or seat.run != load.run:
            try:
                layout = self._cluster.FetchLayout(training_pb2.RunRequest(run=load.run), metadata=[("weir-ticket", load.ticket)],
                                                   timeout=CALL_SECONDS)
                _check(load.spec, layout)
                if self.program.wants_file:
                    self.program.read(self._fetch(load, "FetchModel", training_pb2.RunRequest(run=load.run)),
                                      lambda key: self._fetch(load, "FetchPieces", training_pb2.PiecesRequest(run=load.run, keys=[key])))
                loaded.train_samples, loaded.eval_samples = self.program.open(load.spec, layout)
            except Refused as refused:
                with self._changed:
                    self._refuse(load.run, load.incarnation, str(refused))
                return
            seat = _Seat(load, loaded)
        else:
            loaded.train_samples, loaded.eval_samples = seat.loaded.train_samples, seat.loaded.eval_samples
            seat.loaded = loaded
        with self._changed:
            if self._load is load:
                self._load, self._seat = None, seat
                self._tell(loaded=loaded)

    def _fetch(self, load: pb.LoadRun, method: str, request: Any) -> bytes:
        chunks = getattr(self._cluster, method)(request, metadata=[("weir-ticket", load.ticket)], timeout=CALL_SECONDS)
        return b"".join(chunk.data for chunk in chunks)

    def _advance(self, seat: _Seat, view: pb.View) -> None:
        share = next((one for one in view.workers if one.worker == self._id), pb.Assignment())
        if not share.follows and share.microbatch_begin == share.microbatch_end and share.eval_begin == share.eval_end:
            self._await(seat, view)  # nothing is asked of it
            return
        self._enter_view(seat, view)
        if seat.version is None:
            self._begin(seat, view)
        elif share.follows and seat.told_ready != seat.version:
            self._tell(ready=pb.Ready(run=seat.run, incarnation=view.incarnation, version=seat.version))
            seat.told_ready = seat.version
        elif (task := self._next_task(seat, view, share)) is not None:
            self._compute(seat, view, *task)
        elif seat.version < view.plan.steps:
            self._pull_next(seat, view)
        else:
            self._await(seat, view)

    def _await(self, seat: _Seat, view: pb.View) -> None:
        """Until there is another view, an extra task, or what was pulled."""
        reissue = seat.reissue
        self._wait(lambda: self._stopped or self._load or self._seat is not seat or seat.view is not view or
                   seat.reissue is not reissue or (seat.pulls and all(pull.done() for pull in seat.pulls.values())))

    def _enter_view(self, seat: _Seat, view: pb.View) -> None:
        """Connects to the servers that the view names, where they are others."""
        entered = (view.incarnation, view.ticket, *((server.id, server.address) for server in view.servers))
        if seat.entered == entered:
            return
        seat.close()
        layout = self._cluster.FetchLayout(training_pb2.RunRequest(run=seat.run), metadata=[("weir-ticket", view.ticket)],
                                           timeout=CALL_SECONDS)
        if layout.incarnation != view.incarnation or len(layout.servers) != len(view.servers):
            self._wait(lambda: seat.view is not view, PAUSE_SECONDS)  # one of them is older than the other
            return
        seat.layout, seat.evaluated, seat.answered = layout, 0, {}
        seat.channels = [open_channel(server.address, "server", self.tls, self.insecure) for server in view.servers]
        seat.servers = [(server.id, parameters_pb2_grpc.ParametersStub(channel)) for server, channel in zip(view.servers, seat.channels)]
        seat.entered = entered

    def _begin(self, seat: _Seat, view: pb.View) -> None:
        """Pulls the newest version that all blocks have."""
        if seat.entered is None:
            return
        seat.leave()
        request = parameters_pb2.VersionsRequest(run=seat.run, incarnation=view.incarnation)
        lowest = min(self._ask(seat, view, at, "Versions", request).lowest for at in range(len(seat.servers)))
        for block in range(len(seat.layout.blocks)):
            self._pull(seat, view, block, lowest)
        self._take(seat, lowest)

    def _pull_next(self, seat: _Seat, view: pb.View) -> None:
        """Parks calls for the next version, and takes it when it is there."""
        assert seat.version is not None
        for block in range(len(seat.layout.blocks)):
            if block not in seat.pulls and block not in seat.pulled:
                self._pull(seat, view, block, seat.version + 1)
        if all(pull.done() for pull in seat.pulls.values()):
            self._take(seat, seat.version + 1)
        else:
            self._await(seat, view)

    def _pull(self, seat: _Seat, view: pb.View, block: int, version: int) -> None:
        request = parameters_pb2.PullRequest(run=seat.run, incarnation=view.incarnation, block=block, version=version)
        pull = seat.servers[seat.layout.blocks[block].server][1].Pull.future(request, metadata=[("weir-ticket", view.ticket)])
        seat.pulls[block] = pull
        pull.add_done_callback(self._wake)

    def _wake(self, *unused: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _take(self, seat: _Seat, version: int) -> None:
        """All blocks of the version, once they are there."""
        for block, pull in list(seat.pulls.items()):
            try:
                seat.pulled[block] = np.frombuffer(pull.result().data, "<f4")
            finally:
                del seat.pulls[block]  # one that failed is asked for again
            seat.answered[seat.servers[seat.layout.blocks[block].server][0]] = time.monotonic()
            seat.received_bytes += seat.pulled[block].nbytes
        elems = [sum(tensor.elems for tensor in seat.layout.tensors if not tensor.is_statistic), seat.layout.row_elems]
        seat.vectors = np.empty(elems[0], "<f4"), np.empty(elems[1], "<f4")
        for block, data in seat.pulled.items():
            place = seat.layout.blocks[block]
            seat.vectors[place.is_statistics][place.begin:place.begin + place.elems] = data
        seat.weights = {tensor.name: seat.vectors[tensor.is_statistic][tensor.begin:tensor.begin + tensor.elems].reshape(tuple(tensor.shape))
                        for tensor in seat.layout.tensors}
        seat.version, seat.pulled, seat.done, seat.extras = version, {}, set(), []

    def _next_task(self, seat: _Seat, view: pb.View, share: pb.Assignment) -> Optional[tuple[bool, int]]:
        """(False, a microbatch) or (True, an eval chunk) that is still to be computed of this version."""
        assert seat.version is not None
        has_chunks = (share.eval_begin < share.eval_end or seat.reissue) and seat.version < view.plan.steps
        if has_chunks and (seat.evaluated == 0 or seat.evaluated < seat.version):
            seat.evaluated = self._batch(seat, view, False, 0).next_evaluated or view.plan.steps + 1
        is_evaluated = seat.evaluated == seat.version or (seat.version == view.plan.steps and view.plan.eval_samples > 0)
        may_train = seat.version < view.plan.steps and not 0 < view.hold <= seat.version
        extra = seat.reissue
        if extra and (extra.incarnation, extra.step) == (view.incarnation, seat.version):
            seat.extras = [(kind, n) for kind, parts in ((True, extra.chunks), (False, extra.microbatches)) for part in parts
                           for n in range(part.begin, part.end)]
            seat.done -= set(seat.extras)  # what was pushed may be doubted
            with self._changed:
                seat.reissue = None if seat.reissue is extra else seat.reissue
        tasks = [*seat.extras, *((True, chunk) for chunk in range(share.eval_begin, share.eval_end)),
                 *((False, microbatch) for microbatch in range(share.microbatch_begin, share.microbatch_end))]
        return next((task for task in tasks if task not in seat.done and (is_evaluated if task[0] else may_train)), None)

    def _batch(self, seat: _Seat, view: pb.View, evaluation: bool, number: int) -> training_pb2.Batch:
        request = training_pb2.BatchRequest(run=seat.run, step=seat.version, microbatch=number, evaluation=evaluation)
        return self._cluster.FetchBatch(request, metadata=[("weir-ticket", view.ticket)], timeout=CALL_SECONDS)

    def _compute(self, seat: _Seat, view: pb.View, evaluation: bool, number: int) -> None:
        """A task, and its parts to their servers: of a microbatch a row of statistics and each block of its gradient."""
        indices, began = np.array(self._batch(seat, view, evaluation, number).indices, np.int64), time.monotonic()
        layout = seat.layout
        if evaluation:
            row = self.program.evaluate(seat.weights, indices).row(layout.evaluation_elems)
            first = next(at for at, block in enumerate(layout.blocks) if block.is_statistics)
            parts = {first: row}
        else:
            result = self.program.train(seat.weights, indices, seat.spec.train.batch)
            vectors = np.zeros_like(seat.vectors[False]), result.row(layout.row_elems)
            for tensor in layout.tensors:
                values = (result.statistics if tensor.is_statistic else result.gradients)[tensor.name]
                vectors[tensor.is_statistic][tensor.begin:tensor.begin + tensor.elems] = np.asarray(values, "<f4").reshape(-1)
            parts = {at: vectors[block.is_statistics][block.begin:block.begin + block.elems] for at, block in enumerate(layout.blocks)}
        seat.busy_seconds += time.monotonic() - began
        calls = {at: parameters_pb2.PushRequest(
            run=seat.run, incarnation=view.incarnation, step=seat.version, block=at, first=number, evaluation=evaluation,
            worker=int(self._id.rsplit("-", 1)[1]), view=view.number, data=part.tobytes()) for at, part in parts.items()}
        pushes = [(layout.blocks[at].server, seat.servers[layout.blocks[at].server][1].Push.future(
            request, metadata=[("weir-ticket", view.ticket)], timeout=CALL_SECONDS)) for at, request in calls.items()]
        for server, push in pushes:
            push.result()
            seat.answered[seat.servers[server][0]] = time.monotonic()
        seat.done.add((evaluation, number))
        seat.computed += not evaluation
        self.computed += not evaluation

    def _ask(self, seat: _Seat, view: pb.View, server: int, method: str, request: Any) -> Any:
        answer = getattr(seat.servers[server][1], method)(request, metadata=[("weir-ticket", view.ticket)], timeout=CALL_SECONDS)
        seat.answered[seat.servers[server][0]] = time.monotonic()
        return answer


def _check(spec: Any, layout: training_pb2.Layout) -> None:
    """What programs here do not know of."""
    if layout.evaluation_elems != METRICS:
        raise Refused("eval.metrics: of all metrics only accuracy is computed here")
    if spec.data.split:
        raise Refused("data.split: this worker reads data.train and data.eval")
    for number, transform in enumerate(spec.data.transforms):
        for field, _ in transform.ListFields():
            if field.name not in ("scale", "normalize"):
                raise Refused(f"data.transforms[{number}].{field.name}: this worker does not know it")
