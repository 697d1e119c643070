#!/usr/bin/env python3
"""A gRPC client that knows nothing of Weir: what it says, it learnt by reflection.

usage: stock_client.py HOST:PORT

Needs grpcio, grpcio-reflection and grpcio-health-checking. Lists the services and their methods, checks the
health of each service, and where there is weir.Training reads the runs with ListRuns. Exit status 0 if all of it
worked.
"""

import sys

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

TIMEOUT_SECONDS = 240


def message_class(descriptor):
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory().GetPrototype(descriptor)


def call(channel, method, **fields):
    """One unary call of a method that is known by its descriptor only."""
    request = message_class(method.input_type)(**fields)
    path = f"/{method.containing_service.full_name}/{method.name}"
    stub = channel.unary_unary(
        path,
        request_serializer=type(request).SerializeToString,
        response_deserializer=message_class(method.output_type).FromString,
    )
    return stub(request, timeout=TIMEOUT_SECONDS)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    with grpc.insecure_channel(sys.argv[1]) as channel:
        grpc.channel_ready_future(channel).result(timeout=TIMEOUT_SECONDS)
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = descriptor_pool.DescriptorPool(database)
        services = list(database.get_services())
        health = health_pb2_grpc.HealthStub(channel)
        for name in services:
            status = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_SECONDS).status
            print(f"{name}: {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}")
            for method in pool.FindServiceByName(name).methods:
                print(f"  {method.name}({method.input_type.full_name}) -> {method.output_type.full_name}")
            if status != health_pb2.HealthCheckResponse.SERVING:
                sys.exit(f"{name} does not serve")
        if "weir.Training" not in services:
            return
        training = pool.FindServiceByName("weir.Training")
        reply = call(channel, training.FindMethodByName("ListRuns"))
        print(f"runs: {len(reply.runs)}")
        for run in reply.runs:
            print(json_format.MessageToJson(run, preserving_proto_field_name=True, indent=None))


if __name__ == "__main__":
    try:
        main()
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
    except grpc.FutureTimeoutError:
        sys.exit(f"{sys.argv[1]}: no connection within {TIMEOUT_SECONDS} s")
