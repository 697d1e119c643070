/* weir trace: what all members of a run do while they make its next steps. */
#include <stdio.h>
#include <string.h>

#include "client/cluster/connect.h"
#include "client/cluster/stop.h"
#include "client/command.h"
#include "client/files/timeline.h"

enum { STEPS_MAX = 1000 };

static int trace_read(struct connection *connection, const Weir__TraceRequest *request,
                      struct timeline *timeline, struct err *err) {
  struct rpc_reader *reader;
  Weir__TraceChunk *chunk = NULL;
  connection_find_leader(connection);
  reader = rpc_reader_open(connection->channel, RPC_TRACE_RUN, -1);
  stop_cancels(reader);
  if (rpc_reader_send(reader, request, err) == 0)
    rpc_reader_half_close(reader);
  *err = ERR_NONE; /* a failed send shows in the stream's end */
  while (rpc_reader_next(reader, (void **)&chunk, err) == 0 && chunk) {
    timeline_add(timeline, chunk, err);
    weir__trace_chunk__free_unpacked(chunk, NULL);
    chunk = NULL;
    if (err->code)
      break;
  }
  stop_cancels(NULL);
  rpc_reader_close(reader);
  connection_explain(connection, err);
  return err->code;
}

/* What the executors of each worker did of their time. */
static void print_work(const struct timeline *timeline) {
  for (int n = 0; n < timeline_counts(timeline).members; n++) {
    struct timeline_work work = timeline_work(timeline, n);
    if (work.executors > 0)
      printf("%s: %d executor%s computed %.0f %% of the time, waited for weights %.0f %%, for data %.0f %%\n",
             work.member, work.executors, work.executors == 1 ? "" : "s", 100 * work.computed / work.seconds,
             100 * work.weights / work.seconds, 100 * work.data / work.seconds);
  }
}

static int trace_run(const struct args *args) {
  const char *path = args_text(args, "output");
  Weir__TraceRequest request = WEIR__TRACE_REQUEST__INIT;
  struct timeline *timeline = timeline_new();
  struct connection connection = {0};
  struct timeline_counts counts;
  struct err err = ERR_NONE;
  request.run = (char *)args->arguments[0];
  request.steps = (uint64_t)args_count(args, "steps");
  stop_on_signals();
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      trace_read(&connection, &request, timeline, &err) == 0 && timeline_counts(timeline).spans == 0)
    err_set(&err, ERR_UNAVAILABLE, "run '%s' made no step in a minute: there is nothing to show",
            request.run);
  if (stop_cause() == STOP_SIGNAL)
    err_set(&err, ERR_CANCELLED, "interrupted: nothing is written");
  if (!err.code)
    timeline_write(timeline, path, &err);
  counts = timeline_counts(timeline);
  if (!err.code) {
    printf("%s: %llu step%s from %llu on, %d members, %d spans, %d pushes joined to their update\n", path,
           (unsigned long long)(counts.end - counts.first), counts.end - counts.first == 1 ? "" : "s",
           (unsigned long long)counts.first, counts.members, counts.spans, counts.joined);
    print_work(timeline);
  }
  timeline_free(timeline);
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def trace_options[] = {{.name = "steps",
                                                   .kind = OPTION_COUNT,
                                                   .value = "N",
                                                   .fallback = "10",
                                                   .least = 1,
                                                   .most = STEPS_MAX,
                                                   .help = "so many steps, from the next whole one on"},
                                                  {.name = "output",
                                                   .letter = 'o',
                                                   .kind = OPTION_TEXT,
                                                   .value = "FILE",
                                                   .fallback = "trace.json",
                                                   .help = "where the timeline is written"},
                                                  {0}};

const struct command_def command_trace = {
    .name = "trace",
    .summary = "show what all members of a run do while they make its next steps",
    .arguments = "RUN",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description = "Has the workers and servers of RUN (an id or a unique prefix of one) note what their "
                   "threads do while the "
                   "next steps are made, and writes one timeline of it, in Chrome's trace format: for "
                   "ui.perfetto.dev or "
                   "chrome://tracing. All members are on one clock; an arrow leads from each push of a block "
                   "to the update that "
                   "took it. The run must compute; what other runs do is not shown. It ends after a minute "
                   "at the latest.",
    .options = trace_options,
    .if_interrupted = "interrupted: nothing is written",
    .examples = "weir trace fashion-mnist --steps 20 -o trace.json\n",
    .run = trace_run,
};
