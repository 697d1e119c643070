"""Run by the tests with grpcio: polls GetOverview of a coordinator as a dashboard does, and applies what has changed to what it had.

usage: peer_overview.py HOST:PORT

Each line of standard input is JSON, the request's fields; those that are not there are as in the answer before. Prints a line of
JSON: the answer's is_whole and has_more, the rows that it sent, and all that there is by now."""
import json
import sys

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from stock_client import call


def main():
    runs, members, samples, cursor = {}, {}, 0, 0
    pool = method = None
    for line in sys.stdin:
        with grpc.insecure_channel(sys.argv[1]) as channel:  # of whichever coordinator is there
            if not pool:
                pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
                method = pool.FindServiceByName("weir.Training").FindMethodByName("GetOverview")
            try:
                answer = call(channel, method, **{"since": cursor, **json.loads(line)})
            except grpc.RpcError as error:
                print(json.dumps({"error": error.code().name, "details": error.details()}), flush=True)
                continue
        if answer.is_whole:
            runs, members, samples = {}, {}, 0
        for gone in answer.gone:
            runs.pop(gone, None)
            members.pop(gone, None)
        runs.update((row.run, {"state": row.state, "step": row.step, "sparkline": len(row.sparkline), "message": row.message,
                               "objective": row.objective}) for row in answer.runs)
        members.update((row.id, {"role": row.role, "state": row.state}) for row in answer.members)
        samples += len(answer.history.unix_ms)
        cursor = answer.cursor
        print(json.dumps({"is_whole": answer.is_whole, "has_more": answer.has_more, "sent": len(answer.runs) + len(answer.members),
                          "runs": runs, "members": members, "samples": samples, "queue": list(answer.fleet.queue),
                          "executors": answer.fleet.executors}), flush=True)


if __name__ == "__main__":
    main()
