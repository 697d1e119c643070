#!/usr/bin/env python3
"""A gRPC client that means harm: random and mutated messages at every method that reflection shows.

usage: hostile_client.py HOST:PORT SEED COUNT [RUN MODEL.onnx TICKET SERVERS_TICKET]

RUN is a live run to name in half of the messages, MODEL the file whose submission is twisted. The tickets are a worker's and
that of the run's servers: most calls have them, so that their messages are read. Every call must end
in a status of its own or in the deadline of a method that may wait; prints the statuses by method as JSON. Needs
grpcio and grpcio-reflection."""
import collections
import json
import math
import random
import struct
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

WAIT_SECONDS = 0.3  # for methods that may wait for ever
DEADLINE_SECONDS = 60
MAY_WAIT = {"Join", "Watch", "Push", "Pull", "Sums"}
# What a server says, or gRPC in its place, when it is lost for an answer or gone. Of a run that nobody has loaded yet, as
# one of a spec of ours may be, it says so.
NO_ANSWERS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
NOT_LOADED = "no worker has loaded its data yet"
DEPTH_MAX, REPLIES_MAX = 4, 50

NUMBERS = [0, 1, 2, 3, 7, 8, 255, 4095, 4096, 4097, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1,
           2**63, 2**64 - 1, -1, -(2**31), -(2**63)]
REALS = [0.0, -0.0, 1.0, -1.0, 0.1, 1e-320, 1e-30, 1e30, 1e308, -1e308, math.inf, -math.inf, math.nan]
TEXTS = ["", "x", "a" * 39, "a" * 41, "A b", "sgd", "sync", "idx", "cross_entropy", "../../../../etc/passwd", "/", "%s%n%s%n",
         "images", "labels", "\0", "a\0b", "\n\r\t\x1b[2J", "\u202e\U0001f600", "*", "[", "[!", "*" * 500, "x" * 5000]
RANGES = {FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1), FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
          FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1), FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1)}


def message_class(descriptor):
    return message_factory.GetMessageClass(descriptor)


class Attacker:
    def __init__(self, seed, run, model, sweep="", tickets=("", "")):
        self.random, self.run, self.model, self.sweep = random.Random(seed), run, model, sweep
        self.tickets = tickets
        self.version, self.block_elems = None, {}  # of the run, where it is served

    def blob(self):
        size = self.random.choice((0, 1, 3, 4, 40, 200, 262144, 262148))
        kind = self.random.randrange(3)
        if kind == 0:
            return self.random.randbytes(size)
        return struct.pack("<f", self.random.choice(REALS[:8] + REALS[10:])) * (size // 4)

    def scalar(self, field):
        if field.type in RANGES:
            low, high = RANGES[field.type]
            number = self.random.choice(NUMBERS + list(range(4)))
            return number if low <= number <= high else self.random.randrange(4)
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return self.random.choice(REALS)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.random.random() < 0.5
        if field.type == FieldDescriptor.TYPE_ENUM:
            return self.random.choice([value.number for value in field.enum_type.values])
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.blob()
        if field.name == "run" and self.run and self.random.random() < 0.6:
            return self.run
        if field.name == "sweep" and self.sweep and self.random.random() < 0.6:
            return self.sweep
        return self.random.choice(TEXTS)

    def fill(self, message, density=0.6, depth=0):
        for field in message.DESCRIPTOR.fields:
            if self.random.random() > density:
                continue
            is_message = field.type == FieldDescriptor.TYPE_MESSAGE
            if is_message and depth == DEPTH_MAX:
                continue
            if is_message and field.message_type.GetOptions().map_entry:
                self.fill_map(getattr(message, field.name), field.message_type.fields_by_name["value"], density, depth)
            elif field.is_repeated:
                for _ in range(self.random.choice((1, 2, 3, 40))):
                    if is_message:
                        self.fill(getattr(message, field.name).add(), density, depth + 1)
                    else:
                        getattr(message, field.name).append(self.scalar(field))
            elif is_message:
                getattr(message, field.name).SetInParent()
                self.fill(getattr(message, field.name), density, depth + 1)
            else:
                setattr(message, field.name, self.scalar(field))
        return message

    def fill_map(self, entries, value, density, depth):
        for _ in range(self.random.randrange(3)):
            key = self.random.choice(TEXTS)
            if value.type == FieldDescriptor.TYPE_MESSAGE:
                self.fill(entries[key], density, depth + 1)
            else:
                entries[key] = self.scalar(value)

    def mutate(self, wire):
        """Bytes that are nearly a message."""
        wire = bytearray(wire)
        for _ in range(self.random.choice((0, 0, 0, 1, 3, 10))):
            at = self.random.randrange(len(wire) + 1)
            kind = self.random.randrange(4)
            if kind == 0 and at < len(wire):
                wire[at] ^= 1 << self.random.randrange(8)
            elif kind == 1:
                wire[at:at] = self.random.randbytes(self.random.randrange(6))
            elif kind == 2:
                del wire[at:at + self.random.randrange(1, 8)]
            else:
                wire[at:at] = wire[:at][-32:]
        return bytes(wire)

    def nested(self):
        """Messages in messages, far deeper than any of ours."""
        wire = b""
        field = self.random.choice((b"\x0a", b"\x12", b"\x1a"))
        for _ in range(2000):
            size, prefix = len(wire), b""
            while size > 127:
                prefix, size = prefix + bytes([size & 127 | 128]), size >> 7
            wire = field + prefix + bytes([size]) + wire
        return wire

    def twist(self, message):
        """Changes one field somewhere below the message."""
        while True:
            field = self.random.choice(message.DESCRIPTOR.fields)
            is_message = field.type == FieldDescriptor.TYPE_MESSAGE
            if self.random.random() < 0.1:
                message.ClearField(field.name)
                return
            if field.is_repeated:
                part = type(message)()
                self.fill(part, density=0.9)
                message.MergeFrom(part)
                return
            if not is_message:
                setattr(message, field.name, self.scalar(field))
                return
            message = getattr(message, field.name)

    def fill_spec(self, spec):
        """As a user would."""
        spec.name, spec.model.onnx, spec.model.loss = "hostile", "m.onnx", "cross_entropy"
        spec.data.root = "/nowhere"
        for source in (spec.data.train, spec.data.eval):
            source.format, source.images, source.labels = "idx", "i", "l"
        spec.data.transforms.add().scale = 0.5
        spec.train.steps, spec.train.batch, spec.train.microbatches = 10, 16, 4
        spec.train.optimizer.lr = 0.1

    def submission(self, request_class):
        """What a user would send, with a few things wrong."""
        model, request = self.model, request_class()
        spec = request.spec
        self.fill_spec(spec)
        for _ in range(self.random.choice((0, 1, 1, 2, 4))):
            self.twist(spec)
        if self.random.random() < 0.3:
            model = self.mutate(model) if self.random.random() < 0.7 else self.nested()
        if self.random.random() < 0.2:
            spec.train.batch = spec.train.microbatches = self.random.choice((4096, 2**20, 2**32 - 1))
        request.model_bytes = len(model) if self.random.random() < 0.8 else self.random.choice(NUMBERS[:18])
        cut = self.random.randrange(len(model) + 1)
        request.chunk = model[:cut]
        rest = request_class(chunk=model[cut:])
        if self.random.random() < 0.1:
            rest.spec.CopyFrom(spec)
        return [request.SerializeToString(), rest.SerializeToString()]

    def push(self, request):
        """What a worker would send at the run's present step, but for the gradient, and one thing more."""
        request.run, request.incarnation = self.run, 0
        request.step = max(0, self.version + self.random.choice((-1, 0, 0, 0, 1)))
        request.block, request.first = self.random.randrange(5), self.random.randrange(5)
        request.level, request.wait = self.random.choice((0, 0, 1, 2)), self.random.random() < 0.5
        elems = self.block_elems.get(request.block, 1)
        if self.random.random() < 0.2:
            elems = self.random.randrange(70000)
        request.data = struct.pack("<f", self.random.choice((0.0, 1e-3, 1e30, math.nan, math.inf))) * elems
        if self.random.random() < 0.3:
            self.evaluation_row(request)
        if self.random.random() < 0.3:
            self.twist(request)
        return [request.SerializeToString()]

    def evaluation_row(self, request):
        """Of an eval chunk: the victim's has five columns, and four of the metric top5."""
        request.evaluation, request.level, request.wait = True, 0, self.random.random() < 0.1
        request.block = max(self.block_elems, default=0)
        elems = self.random.choice((9, 9, 9, 5, 8, 10, 0, 65536))
        request.data = struct.pack("<f", self.random.choice((1.0, -1.0, 3e38, 0.5, math.nan, math.inf))) * elems

    def sums(self, request):
        """What a server would send to the one that keeps the sums, and one thing more."""
        request.run, request.incarnation = self.run, 0
        request.step = max(0, self.version + self.random.choice((-1, 0, 0, 0, 1)))
        request.phase = self.random.choice((0, 0, 0, 1))
        request.blocks.extend(self.random.randrange(5) for _ in range(self.random.choice((0, 1, 1, 2, 500))))
        value = self.random.choice((0.0, 1.0, 1e300, math.nan, math.inf))
        request.values.extend([value] * (len(request.blocks) + self.random.choice((0, 0, 0, 1))))
        if self.random.random() < 0.3:
            self.twist(request)
        return [request.SerializeToString()]

    def metadata(self, method):
        ticket = self.tickets[method.name == "Sums"]
        if self.random.random() < 0.1:
            ticket = self.random.choice((ticket[:-1], ticket + "0", "x/0/0/" + "0" * 64, "//", "a" * 5000))
        return [("weir-ticket", ticket)] if self.random.random() < 0.95 else None

    def requests(self, method):
        request_class = message_class(method.input_type)
        if method.name == "Push" and self.version is not None and self.random.random() < 0.7:
            return self.push(request_class())
        if method.name == "Sums" and self.version is not None and self.random.random() < 0.7:
            return self.sums(request_class())
        if method.name == "Submit" and self.model and self.random.random() < 0.7:
            return self.submission(request_class)
        many = self.random.choice((0, 1, 2, 5)) if method.client_streaming else 1
        wires = [self.mutate(self.fill(request_class()).SerializeToString()) for _ in range(many)]
        if method.name == "Join" and wires and self.random.random() < 0.7:
            hello = request_class()
            self.fill(hello.hello)
            wires[0] = hello.SerializeToString()
        if self.random.random() < 0.03:
            wires = [self.nested()]
        return wires


def ask(attacker, channel, methods, name, **fields):
    """The reply of one well-formed call with a worker's ticket; None where there is no such method, or it refuses."""
    method = next((method for method in methods if method.name == name), None)
    if not method:
        return None
    stub = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}", request_serializer=bytes,
                               response_deserializer=message_class(method.output_type).FromString)
    try:
        return stub(message_class(method.input_type)(**fields).SerializeToString(), timeout=DEADLINE_SECONDS,
                    metadata=[("weir-ticket", attacker.tickets[0])])
    except grpc.RpcError:
        return None


def spy(attacker, channel, methods):
    """Where the run is, and how large its blocks are."""
    versions = ask(attacker, channel, methods, "Versions", run=attacker.run)
    attacker.version = versions.highest if versions else None
    block = attacker.random.randrange(5)
    if versions:
        reply = ask(attacker, channel, methods, "Pull", run=attacker.run, block=block, version=versions.highest)
        if reply:
            attacker.block_elems[block] = len(reply.data) // 4


def call(channel, method, wires, metadata=None):
    """The status that the call ended with, and its text."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    make = channel.stream_stream if method.client_streaming else channel.unary_stream
    stub = make(path, request_serializer=bytes, response_deserializer=bytes)
    deadline = WAIT_SECONDS if method.name in MAY_WAIT else DEADLINE_SECONDS
    reply = stub(iter(wires) if method.client_streaming else wires[0], timeout=deadline, metadata=metadata)
    try:
        for number, _ in enumerate(reply):
            if number == REPLIES_MAX:
                reply.cancel()
    except grpc.RpcError:
        pass
    code, text = reply.code(), reply.details()
    if code == grpc.StatusCode.DEADLINE_EXCEEDED and method.name not in MAY_WAIT:
        sys.exit(f"{path}: no answer within {deadline} s: {wires[0][:200] if wires else b''}")
    if code in NO_ANSWERS and NOT_LOADED not in (text or ""):
        sys.exit(f"{path}: {code.name}: {text}: {wires[0][:200] if wires else b''}")
    return code.name, text


def services(channel):
    """All of ours that reflection shows, by name."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    return {name: pool.FindServiceByName(name) for name in database.get_services() if name.startswith("weir.")}


def main():
    if len(sys.argv) not in (4, 8):
        sys.exit(__doc__)
    target, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    run, model = (sys.argv[4], open(sys.argv[5], "rb").read()) if len(sys.argv) == 8 else ("", b"")
    attacker = Attacker(seed, run, model, tickets=sys.argv[6:] or ("", ""))
    statuses = collections.Counter()
    with grpc.insecure_channel(target) as channel:
        methods = [method for service in services(channel).values() for method in service.methods]
        for number in range(count):
            method = methods[number % len(methods)]
            if method.name in ("Push", "Sums"):
                spy(attacker, channel, methods)
            status, _ = call(channel, method, attacker.requests(method), attacker.metadata(method))
            statuses[f"{method.name} {status}"] += 1
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
