/* weir workers: the workers of a cluster. */
#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/command.h"
#include "client/terminal/output.h"
#include "client/terminal/stages_table.h"
#include "common/agree/labels.h"

static void workers_print(const Weir__ListWorkersReply *reply);

static int workers_ask(struct connection *connection, const char *readmitted, Weir__ListWorkersReply **reply,
                       struct err *err) {
  Weir__ListWorkersRequest list = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ReadmitRequest readmit = WEIR__READMIT_REQUEST__INIT;
  readmit.worker = (char *)readmitted;
  return readmitted ? connection_call(connection, RPC_READMIT_WORKER, &readmit, (void **)reply, err)
                    : connection_call(connection, RPC_LIST_WORKERS, &list, (void **)reply, err);
}

static int workers_run(const struct args *args) {
  struct connection connection = {0};
  Weir__ListWorkersReply *reply = NULL;
  struct err err = ERR_NONE;
  if (connection_open(&connection, args->coordinator, &args->security, &err) == 0 &&
      workers_ask(&connection, args_text(args, "readmit"), &reply, &err) == 0) {
    if (args_flag(args, "json"))
      output_json_list(stdout, (ProtobufCMessage *const *)reply->workers, reply->n_workers);
    else
      workers_print(reply);
    weir__list_workers_reply__free_unpacked(reply, NULL);
  }
  connection_close(&connection);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

/* A seat; NULL: the worker has none. Beside others it has some of the executors. */
static void add_row(struct table *table, const Weir__WorkerInfo *worker, const Weir__SeatInfo *seat) {
  char pid[16], executors[32], microbatches[16], speed[32] = "-", connected[OUTPUT_TEXT_MAX];
  char labels[LABELS_TEXT_MAX];
  const char *run = seat ? seat->run : worker->run;
  double per_second = seat ? seat->speed : worker->speed;
  snprintf(pid, sizeof pid, "%u", worker->pid);
  if (worker->n_seats > 1)
    snprintf(executors, sizeof executors, "%u/%u", seat->executors, worker->executors);
  else
    snprintf(executors, sizeof executors, "%u", worker->executors);
  snprintf(microbatches, sizeof microbatches, "%u", seat ? seat->microbatches : worker->microbatches);
  if (per_second > 0) /* microbatches a second */
    snprintf(speed, sizeof speed, "%.*f/s", per_second < 10 ? 2 : 0, per_second);
  labels_write((struct labels){worker->labels, worker->n_labels}, labels);
  output_clean(labels);
  table_row(table, (const char *const[]){worker->id, worker->host, pid, worker->device, executors,
                                         seat ? seat->state : worker->state, *run ? run : "-", microbatches,
                                         speed, output_duration(worker->connected_seconds, connected),
                                         worker->n_labels ? labels : "-",
                                         seat && *seat->message ? seat->message : worker->message});
}

static void workers_print(const Weir__ListWorkersReply *reply) {
  static const char *const headings[] = {
      "WORKER",        "HOST",   ">PID",       "DEVICE", ">EXECUTORS", "STATE", "RUN",
      ">MICROBATCHES", ">SPEED", ">CONNECTED", "LABELS", "MESSAGE",    NULL};
  struct table table;
  table_init(&table, headings);
  for (size_t i = 0; i < reply->n_workers; i++) {
    const Weir__WorkerInfo *worker = reply->workers[i];
    output_clean(worker->message);
    for (size_t at = 0; at < worker->n_seats; at++) {
      output_clean(worker->seats[at]->message);
      add_row(&table, worker, worker->seats[at]);
    }
    if (worker->n_seats == 0)
      add_row(&table, worker, NULL);
  }
  table_print(&table, stdout);
  table_fini(&table);
  stages_table_print(stdout, reply->workers, reply->n_workers);
}

static const struct option_def workers_options[] = {
    {.name = "readmit",
     .kind = OPTION_TEXT,
     .value = "WORKER|HOST/DEVICE",
     .help =
         "end the quarantine of a device, named by itself or by a worker on it, and list its workers alone."},
    {.name = "json", .kind = OPTION_FLAG, .help = "print a JSON array of objects instead, for programs."},
    {0}};

const struct command_def command_workers = {
    .name = "workers",
    .summary = "list the workers of a cluster",
    .arguments = "",
    .takes_coordinator = true,
    .description =
        "Lists the workers that have joined the coordinator: where they run, what they compute on, the run "
        "that they work for, how many of each step's microbatches they have and how many they compute a "
        "second, the labels that they were started with, and why one was refused or which servers one cannot "
        "reach. A worker that computes several runs at the same time has a row for each, with its executors "
        "as `2/4`: those that compute for the run, and all.\n"
        "\n"
        "Of workers whose run is cut into stages (workers.stages) a second table has each stage. IDLE is the "
        "share of the time in which it does not compute while another stage of its team is at a microbatch, "
        "since the worker loaded the run. BUBBLE is what that would be if all stages took alike: "
        "(p - 1) / (m + p - 1), of p stages and m microbatches of a step and team. MEMORY is that of the "
        "stage's program for training.\n"
        "\n"
        "A worker whose part of a gradient had other bits than others computed is put into quarantine, with "
        "all "
        "workers of its host and device: it is given no work, in any run, until it is readmitted. A device "
        "in "
        "quarantine is listed even when no worker is connected.",
    .options = workers_options,
    .examples = "weir workers\nweir workers --json | jq 'map(.executors) | add'\n"
                "weir workers --readmit worker-3\nweir workers --readmit node7/cpu\n",
    .run = workers_run,
};
