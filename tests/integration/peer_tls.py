#!/usr/bin/env python3
"""A gRPC client that knows nothing of Weir asks a port for its health.

usage: peer_tls.py HOST:PORT NAME [CA [CERTIFICATE KEY]]

Needs grpcio and grpcio-health-checking. NAME: what the port's certificate must say. Without CA in plaintext. Prints the status,
or the code of the call's error; exit status 0 if the port serves.
"""
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 60


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    address, name, *files = sys.argv[1:]
    if files:
        ca, certificate, key = [read(path) for path in files] + [None] * (3 - len(files))
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        channel = grpc.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", name)])
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS)
            print(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
        except grpc.RpcError as error:
            sys.exit(error.code().name)


main()
