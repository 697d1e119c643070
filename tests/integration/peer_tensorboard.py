"""What TensorBoard reads of a log folder, by its own loaders, as JSON: {"scalars": {run: {tag: [[step, value, wall time]]}},
"sessions": [{"name", "hparams", "status", "metrics"}]}."""
import json
import sys

from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
from tensorboard.plugins.hparams.api_pb2 import Status


def scalars(multiplexer, run):
    accumulator = multiplexer.GetAccumulator(run)
    return {tag: [[event.step, float(event.tensor_proto.float_val[0]), event.wall_time] for event in accumulator.Tensors(tag)]
            for tag in accumulator.Tags()["tensors"] if not tag.startswith("_hparams_")}


def value_of(value):
    kind = value.WhichOneof("kind")
    return getattr(value, kind) if kind else None


def sessions(multiplexer, folder):
    """As the HParams page lists them."""
    provider = data_provider.MultiplexerDataProvider(multiplexer, folder)
    page = backend_context.Context(base_plugin.TBContext(data_provider=provider, logdir=folder))
    found = page.hparams_metadata(context.RequestContext(), "")
    if not found:
        return []
    experiment = page.experiment_from_metadata(context.RequestContext(), "", True, found, [])
    columns = [api_pb2.ColParams(hparam=info.name) for info in experiment.hparam_infos]
    columns += [api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos]
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=1000, include_metrics=True, col_params=columns, aggregation_type=api_pb2.AGGREGATION_AVG,
        allowed_statuses=[Status.Value(name) for name in Status.keys()])
    groups = list_session_groups.Handler(context.RequestContext(), page, "", request).run().session_groups
    return [{"name": group.name, "hparams": {key: value_of(value) for key, value in group.hparams.items()},
             "status": [Status.Name(session.status) for session in group.sessions],
             "metrics": {f"{metric.name.group}/{metric.name.tag}": metric.value for metric in group.metric_values}}
            for group in groups]


def main():
    folder = sys.argv[1]
    multiplexer = plugin_event_multiplexer.EventMultiplexer(
        tensor_size_guidance={"scalars": 0}, size_guidance={"tensors": 0}, purge_orphaned_data=True)
    multiplexer.AddRunsFromDirectory(folder)
    multiplexer.Reload()
    print(json.dumps({"scalars": {run: scalars(multiplexer, run) for run in multiplexer.Runs()},
                      "sessions": sessions(multiplexer, folder)}))


main()
