#!/usr/bin/env python3
"""A worker that lies: it joins a run as its other workers did, and pushes parts that are finite and far too large.

usage: lying_worker.py COORDINATOR STORE RUN HOST

What a worker has to find in the run's data it takes from the run's record below the folder STORE, so that it is
accepted. It pushes its share as the fewest nodes, and obeys no Reissue. Says what happens, a line of JSON each, on
stdout: joined, loads, ready, lies, unloaded, refused. Goes on until it is killed. Needs grpcio and grpcio-reflection."""
import json
import os
import queue
import struct
import sys
import threading
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

BEAT_SECONDS, DEADLINE_SECONDS = 1, 30
LARGEST = struct.pack("<f", 3.4028234663852886e38)  # of all finite ones
ELEMS_LEAST = 1000  # smaller blocks are of statistics


class Peer:
    """The services of one address, and all messages, by its reflection."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.lock = threading.Lock()  # the pool asks for a file at its first use, and fails where two threads do

    def message(self, name, **fields):
        with self.lock:
            kind = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"weir.{name}"))
        return kind(**fields)

    def call(self, service, name, request, reply, ticket=""):
        stub = self.channel.unary_unary(f"/weir.{service}/{name}", request_serializer=lambda it: it.SerializeToString(),
                                        response_deserializer=type(self.message(reply)).FromString)
        try:
            return stub(request, timeout=DEADLINE_SECONDS, metadata=[("weir-ticket", ticket)] if ticket else None), ""
        except grpc.RpcError as error:
            return None, error.details()


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def read_record(coordinator, store, run):
    with open(os.path.join(store, "records", "runs", run, "run"), "rb") as file:
        return type(coordinator.message("RunRecord")).FromString(file.read())


def nodes_of(begin, end, microbatches):
    """The fewest nodes of the tree that are the range: (first, level)."""
    while begin < end:
        level = 0
        while begin % (2 << level) == 0 and min(begin + (2 << level), microbatches) <= end and 1 << level < microbatches:
            level += 1
        yield begin, level
        begin = min(begin + (1 << level), microbatches)


class Liar:
    def __init__(self, address, store, run, host):
        self.coordinator, self.store, self.run, self.host = Peer(address), store, run, host
        self.number, self.view, self.microbatches = 0, None, 0
        self.out = queue.Queue()

    def tell(self, **body):
        self.out.put(self.coordinator.message("MemberMessage", **body))

    def hello(self):
        record = read_record(self.coordinator, self.store, self.run)
        self.microbatches = record.spec.train.microbatches
        self.tell(hello=self.coordinator.message("Hello", role="WORKER", host=self.host, pid=os.getpid(), device="cpu",
                                                 executors=1, fingerprint=record.reference.fingerprint))

    def load(self, order):
        record = read_record(self.coordinator, self.store, self.run)
        say("loads", run=order.run)
        self.tell(loaded=self.coordinator.message(
            "RunLoaded", run=order.run, incarnation=order.incarnation, train_samples=record.plan.train_samples,
            eval_samples=record.plan.eval_samples, dataset_sha256=record.reference.dataset_sha256,
            probe_sha256=record.reference.probe_sha256))

    def obey(self, order):
        kind = order.WhichOneof("body")
        if kind == "welcome":
            self.number = int(order.welcome.id.split("-")[1])
            say("joined", id=order.welcome.id)
        elif kind == "load":
            self.load(order.load)
        elif kind == "view":
            self.view = order.view
        elif kind == "unload":
            self.view = None
            say("unloaded", reason=order.unload.reason)

    def orders(self):
        stub = self.coordinator.channel.stream_stream(
            "/weir.Cluster/Join", request_serializer=lambda it: it.SerializeToString(),
            response_deserializer=type(self.coordinator.message("Order")).FromString)
        self.hello()
        try:
            for order in stub(iter(self.out.get, None)):
                self.obey(order)
        except grpc.RpcError as error:
            say("refused", text=error.details())
        os._exit(0)

    def work(self):
        try:
            self.follow_or_lie()
        finally:
            os._exit(1)

    def follow_or_lie(self):
        """As long as there is a view: at each version once."""
        done, servers = None, {}
        while True:
            time.sleep(0.01)
            view = self.view
            mine = [item for item in view.workers if item.worker == f"worker-{self.number}"] if view else []
            if not mine:
                continue
            for server in view.servers:
                if server.address not in servers:
                    servers[server.address] = Server(server.address)
            present = [servers[server.address] for server in view.servers]
            if not all([server.knows_blocks(view, self.number) for server in present]):
                continue
            versions = [server.version(view) for server in present]
            if None in versions or (view.number, min(versions)) == done:
                continue
            done = view.number, min(versions)
            if mine[0].follows:
                say("ready", version=done[1])
                self.tell(ready=self.coordinator.message("Ready", run=view.run, incarnation=view.incarnation,
                                                         version=done[1]))
                continue
            nodes = list(nodes_of(mine[0].microbatch_begin, mine[0].microbatch_end, self.microbatches))
            accepted = sum(server.lie(view, done[1], node, self.number) for server in present for node in nodes)
            say("lies", step=done[1], nodes=nodes, accepted=accepted)


class Server(Peer):
    def __init__(self, address):
        super().__init__(address)
        self.elems = None

    def push(self, of, **fields):
        request = self.message("PushRequest", run=of.run, incarnation=of.incarnation, **fields)
        return self.call("Parameters", "Push", request, "PushReply", of.ticket)

    def knows_blocks(self, view, number):
        """Finds the sizes of this server's blocks: what a push of no data is refused with names them. False while it is
        elsewhere in the run than the view."""
        elems, block = {}, 0
        while self.elems is None:
            _, text = self.push(view, block=block, worker=number)
            if "there is no block" in text:
                self.elems = elems
            elif " elements are " in text:
                size = int(text.split(" elements are ")[0].rsplit(" ", 1)[1])
                if size >= ELEMS_LEAST:
                    elems[block] = size
            elif "belongs to another server" not in text:
                return False
            block += 1
        return True

    def version(self, view):
        reply, _ = self.call("Parameters", "Versions",
                             self.message("VersionsRequest", run=view.run, incarnation=view.incarnation), "VersionsReply",
                             view.ticket)
        return reply.lowest if reply else None

    def lie(self, view, step, node, number):
        """How many blocks took it."""
        return sum(self.push(view, step=step, block=block, first=node[0], level=node[1], worker=number, view=view.number,
                             data=LARGEST * elems)[0] is not None for block, elems in self.elems.items())


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    liar = Liar(*sys.argv[1:])
    threading.Thread(target=liar.orders, daemon=True).start()
    threading.Thread(target=liar.work, daemon=True).start()
    while True:
        time.sleep(BEAT_SECONDS)
        liar.tell(heartbeat=liar.coordinator.message("Heartbeat"))


if __name__ == "__main__":
    main()
