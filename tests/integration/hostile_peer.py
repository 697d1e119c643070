#!/usr/bin/env python3
"""A gRPC client that sends to a worker what no neighbour in its team would send.

usage: hostile_peer.py RUN TICKET HOST:PORT...

Prints one line of JSON: how often each status was answered. Exit status 0 if nothing was taken. Needs grpcio and
grpcio-reflection."""
import collections
import itertools
import json
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

DEADLINE_SECONDS, PIECE_BYTES, TERM = 60, 256 * 1024, 1
REFUSALS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.ABORTED,
            grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED}


def pieces(run):
    """Of messages of a size that no model has, so that none fits; and of other runs, teams, stages, steps and tasks."""
    far = 2 ** 31
    for team, stage, step, index in itertools.product((0, 1, 2, 3, far), (0, 1, 2, far), (0, 20, 21, 2 ** 63), (0, 3, far)):
        yield {"run": run, "term": TERM, "team": team, "stage": stage, "step": step, "index": index,
               "evaluation": index == 3, "execution": step % 3, "offset": stage * PIECE_BYTES + team % 2,
               "message_bytes": 2 ** 40 + step, "data": bytes(17 + team % 5)}
    yield {"run": run, "term": TERM, "team": 1, "stage": 1, "step": 20, "message_bytes": 3, "data": bytes(PIECE_BYTES)}
    yield {"run": "no-such-run", "data": bytes(3)}
    yield {"run": "x" * 10000}
    yield {}


def main():
    run, ticket, answers = sys.argv[1], sys.argv[2], collections.Counter()
    for address in sys.argv[3:]:
        channel = grpc.insecure_channel(address)
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName("weir.Peers").FindMethodByName("Send")
        request, reply = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
        send = channel.unary_unary("/weir.Peers/Send", request_serializer=request.SerializeToString,
                                   response_deserializer=reply.FromString)
        for fields in pieces(run):
            try:
                send(request(**fields), timeout=DEADLINE_SECONDS, metadata=[("weir-ticket", ticket)])
                answers["OK"] += 1
            except grpc.RpcError as error:
                answers[error.code().name] += 1
                if error.code() not in REFUSALS or "\n" in error.details():
                    sys.exit(f"{fields}: {error}")
    print(json.dumps(answers))
    sys.exit(answers["OK"] > 0)


if __name__ == "__main__":
    main()
