#!/usr/bin/env python3
"""A gRPC client that pushes to the servers of a run what they must refuse.

usage: hostile_pusher.py RUN TICKET STEPS HOST:PORT...

Commands come on stdin, one a line, answered by a line of JSON on stdout:
  harass    pushes parts that are never right to every block, at the versions where the run is, until the line "stop"
            and until REFUSED_LEAST were refused
  attack    waits until some blocks of a server have made a version that others lack, and will lack; pushes to all of its
            blocks what would follow, all of which must be refused
Needs grpcio and grpcio-reflection."""
import collections
import json
import select
import struct
import sys
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

DEADLINE_SECONDS, SETTLE_SECONDS, REFUSED_LEAST = 300, 0.1, 200
NAN, FINITE = struct.pack("<f", float("nan")), struct.pack("<f", 0.5)


class Server:
    def __init__(self, address, run, ticket):
        self.run, self.metadata, self.channel = run, [("weir-ticket", ticket)], grpc.insecure_channel(address)
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.methods = {method.name: method for method in pool.FindServiceByName("weir.Parameters").methods}
        self.elems, self.compressed = {}, set()

    def call(self, name, **fields):
        """(status, reply or the error's text)."""
        method = self.methods[name]
        stub = self.channel.unary_unary(
            f"/weir.Parameters/{name}", request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString)
        request = message_factory.GetMessageClass(method.input_type)(run=self.run, **fields)
        try:
            return "OK", stub(request, timeout=DEADLINE_SECONDS, metadata=self.metadata)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def versions(self):
        status, reply = self.call("Versions")
        return (reply.lowest, reply.highest) if status == "OK" else None

    def find_blocks(self):
        """The sizes of this server's blocks: what a push of no data is refused with names them."""
        block = 0
        while True:
            status, text = self.call("Push", block=block)
            if "there is no block" in text:
                return
            if " elements are " in text:
                self.elems[block] = int(text.split(" elements are ")[0].rsplit(" ", 1)[1])
            if " bytes in " in self.call("Push", block=block, level=1)[1]:
                self.compressed.add(block)
            block += 1


def wrong_parts(step, steps, elems):
    """Fields of pushes that are wrong at any time, whatever the run does meanwhile."""
    yield {"step": step, "data": NAN * elems}
    yield {"step": step, "data": FINITE * (elems - 1) + NAN, "level": 1}
    yield {"step": step + 1, "data": NAN * elems, "wait": False}
    yield {"step": step, "data": FINITE * (elems + 1)}
    yield {"step": step, "data": FINITE * elems + b"\0"}
    yield {"step": step, "data": b""}
    yield {"step": step, "data": FINITE * elems, "incarnation": 1}
    yield {"step": step, "data": FINITE * elems, "first": 1 << 20}
    yield {"step": step, "data": FINITE * elems, "first": 1, "level": 1}
    yield {"step": step, "data": FINITE * elems, "level": 2**32 - 1}
    for size in (2 * elems, elems + 2 * -(-elems // 128)):  # of what is compressed, but no bf16 and no int8 says it
        yield {"step": step, "data": b"\xff" * size, "level": 1}
        yield {"step": step, "data": b"\x80" * size, "first": 2, "level": 1}
        yield {"step": step, "data": b"\xff" * (size - 1), "level": 1}
    yield {"step": steps, "data": FINITE * elems}
    yield {"step": 2**64 - 1, "data": FINITE * elems}
    yield {"step": step, "data": NAN * elems, "evaluation": True}
    yield {"step": steps, "data": NAN * 5, "evaluation": True}
    yield {"step": step, "data": FINITE * 5, "evaluation": True, "first": 1 << 20}
    size = 4 * elems
    for share in (1, 2):  # of the workers' that there are: what no segment of theirs has
        for segment, offset in ((1, 1 << 40), (1, 2**64 - 256), (1, 513), (1, 0), (1000, 512)):
            yield {"step": step, "share": share, "shared": {"segment": segment, "offset": offset, "size": size}}
        yield {"step": step, "share": share, "shared": {"segment": 1, "offset": 512, "size": 2**63}}
        wrong = {"segment": 1, "offset": 1 << 40, "size": size}
        for parts in (1, 15, 16):  # that come with it, the last of which is no block's
            yield {"step": step, "share": share, "shared": wrong, "wait": True,
                   "further": [{"block": block, "shared": wrong} for block in (*range(parts - 1), 2**32 - 1)]}
        yield {"step": step, "share": share, "shared": wrong, "further": [{}]}
        yield {"step": step, "data": FINITE * elems, "further": [{"block": 1, "shared": wrong}]}


def wrong_forms(step, elems):
    """Of a block whose sums are compressed at level 1: those that are not, and those from above."""
    yield {"step": step, "data": FINITE * elems, "level": 1}
    for size in (4 * elems, 2 * elems, elems + 2 * -(-elems // 128)):
        yield {"step": step, "data": b"\0" * size, "level": 2}


def harass(servers, steps):
    """A part that is wrong by its content alone may be late or covered: then it is acknowledged, unread."""
    statuses = collections.Counter()
    while statuses["INVALID_ARGUMENT"] < REFUSED_LEAST or not select.select([sys.stdin], [], [], 0)[0]:
        for server in servers:
            for block, elems in server.elems.items():
                versions = server.versions()
                forms = wrong_forms(versions[1], elems) if versions and block in server.compressed else ()
                for part in (*wrong_parts(versions[1], steps, elems), *forms) if versions else ():
                    statuses[server.call("Push", block=block, **part)[0]] += 1
    return statuses


def attack(server, step, value):
    """Pushes for a version that not all blocks have; until one is not refused."""
    statuses = collections.Counter()
    for block, elems in server.elems.items():
        for part in ({}, {"wait": True}, {"first": 2, "level": 1}, {"first": 2, "level": 1, "wait": True}):
            status = server.call("Push", block=block, step=step, data=value * elems, **part)[0]
            statuses[status] += 1
            if status != "INVALID_ARGUMENT":
                return statuses
    return statuses


def attack_torn(servers):
    torn = []
    while not torn:
        before = {server: server.versions() for server in servers}
        time.sleep(SETTLE_SECONDS)
        torn = [server for server, (lowest, highest) in before.items() if server.versions() == (lowest, highest) != (lowest, lowest)]
    lowest, highest = before[torn[0]]
    not_finite = attack(torn[0], highest, NAN)
    assert torn[0].versions() == (lowest, highest)
    return {"version": lowest, "not_finite": not_finite, "forged": attack(torn[0], highest, FINITE)}


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    run, ticket, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    servers = [Server(address, run, ticket) for address in sys.argv[4:]]
    for server in servers:
        server.find_blocks()
    while line := sys.stdin.readline():
        words = line.split()
        if words[0] == "harass":
            print(json.dumps(harass(servers, steps)), flush=True)
        elif words[0] == "attack":
            print(json.dumps(attack_torn(servers)), flush=True)


if __name__ == "__main__":
    main()
