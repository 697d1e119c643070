/* What checkpoints cost training: steps of a model of some 58 MB (and as much momentum) that do nothing but
   push and pull its blocks through a parameter server, with and without a checkpoint beside them, in turns.
   Real steps compute, too: the shares printed here are upper bounds. usage: snapshot_bench [STORE-URL] */
#include <ftw.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/model_kind.h"
#include "common/clock.h"
#include "common/rpc/client.h"
#include "parameters.pb-c.h"
#include "server/parameters/service.h"
#include "server/parameters/snapshot.h"

enum { WIDTH = 2500, STEPS = 61, EVERY = 10, WINDOW = 16, BLOCK_BYTES = 256 * 1024 };

extern const struct model_kind_def model_kind_mlp;

struct bench {
  struct run_table runs;
  struct shard *shards[2];
  struct rpc_client *client;
  struct rpc_channel *channels[2];
  struct hosted_run *run;
  struct buffer *gradient;
  struct rpc_request *requests;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  int n_in_flight, n_left, n_answers;
  double stall_seconds;
  uint64_t written_bytes;
};

static struct bench bench = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void die(const struct err *err) {
  fprintf(stderr, "snapshot_bench: %s\n", err->text);
  exit(1);
}

static void on_answer(void *user, uint64_t membership, const Weir__MemberMessage *message) {
  (void)user, (void)membership;
  if (*message->written->error)
    fprintf(stderr, "snapshot_bench: %s\n", message->written->error);
  pthread_mutex_lock(&bench.lock);
  bench.n_answers += message->written->is_last;
  bench.stall_seconds += message->written->stall_seconds;
  bench.written_bytes += message->written->written_bytes;
  pthread_cond_broadcast(&bench.changed);
  pthread_mutex_unlock(&bench.lock);
}

static void *make_model(size_t *size_bytes) {
  struct onnx_writer writer;
  struct model_options options = {
      .input = {784}, .input_rank = 1, .classes = 10, .hidden = {WIDTH, WIDTH, WIDTH}, .n_hidden = 3};
  struct err err = ERR_NONE;
  void *bytes;
  onnx_writer_init(&writer, "mlp", 1);
  if (model_kind_mlp.build(&writer, &options, &err))
    die(&err);
  *size_bytes = onnx__model_proto__get_packed_size(&writer.model);
  bytes = mem_new(*size_bytes);
  onnx__model_proto__pack(&writer.model, bytes);
  onnx_writer_fini(&writer);
  return bytes;
}

static void load_run(void) {
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  Weir__ModelSpec model = WEIR__MODEL_SPEC__INIT;
  Weir__DataSpec data = WEIR__DATA_SPEC__INIT;
  Weir__DataSource source = WEIR__DATA_SOURCE__INIT;
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__OptimizerSpec optimizer = WEIR__OPTIMIZER_SPEC__INIT;
  Weir__ScheduleSpec schedule = WEIR__SCHEDULE_SPEC__INIT;
  Weir__EvalSpec eval = WEIR__EVAL_SPEC__INIT;
  Weir__WorkersSpec workers = WEIR__WORKERS_SPEC__INIT;
  Weir__Plan plan = WEIR__PLAN__INIT;
  Weir__Endpoint endpoint = WEIR__ENDPOINT__INIT, *endpoints[] = {&endpoint};
  Weir__LoadRun order = WEIR__LOAD_RUN__INIT;
  struct run_setup setup = {.order = &order, .own_id = "server-1", .shards = bench.shards, .n_shards = 2};
  struct err err;
  endpoint.id = (char *)"server-1";
  source.format = (char *)"idx";
  data.train = &source;
  model.onnx = (char *)"mlp.onnx";
  optimizer.has_lr = optimizer.has_momentum = true;
  optimizer.lr = 1e-3;
  optimizer.momentum = 0.9;
  train.has_steps = train.has_batch = train.has_microbatches = true;
  train.steps = plan.steps = STEPS;
  train.batch = train.microbatches = 1;
  train.optimizer = &optimizer;
  train.schedule = &schedule;
  spec.name = (char *)"bench";
  spec.model = &model;
  spec.data = &data;
  spec.train = &train;
  spec.eval = &eval;
  spec.workers = &workers;
  plan.train_samples = 1000;
  order.run = (char *)"bench";
  order.spec = &spec;
  order.plan = &plan;
  order.n_servers = 1;
  order.servers = endpoints;
  setup.model = make_model(&setup.model_bytes);
  if (hosted_run_new(&setup, &bench.run, &err) || run_table_add(&bench.runs, hosted_run_get(bench.run), &err))
    die(&err);
  free((void *)setup.model);
}

static void on_done(struct rpc_request *request, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes) {
  (void)request, (void)reply;
  if (err->code)
    die(err);
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&bench.lock);
  bench.n_in_flight--;
  bench.n_left--;
  pthread_cond_broadcast(&bench.changed);
  pthread_mutex_unlock(&bench.lock);
}

/* Pushes every block's gradient and waits for every block's next version. */
static double run_step(uint64_t step) {
  uint64_t begin_ns = clock_now_ns();
  uint32_t n = bench.run->n_own;
  bench.n_left = (int)n;
  for (uint32_t b = 0; b < n; b++) {
    Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
    struct rpc_payload payload = {.buffer = bench.gradient,
                                  .size_bytes = bench.run->blocks[b].elems * sizeof(float)};
    push.run = (char *)"bench";
    push.block = bench.run->blocks[b].index;
    push.step = step;
    push.wait = true;
    pthread_mutex_lock(&bench.lock);
    while (bench.n_in_flight >= WINDOW)
      pthread_cond_wait(&bench.changed, &bench.lock);
    bench.n_in_flight++;
    pthread_mutex_unlock(&bench.lock);
    bench.requests[b] = (struct rpc_request){.on_done = on_done};
    rpc_request_start(&bench.requests[b], bench.channels[b % 2], RPC_PUSH, &push, &payload, -1);
  }
  pthread_mutex_lock(&bench.lock);
  while (bench.n_left > 0)
    pthread_cond_wait(&bench.changed, &bench.lock);
  pthread_mutex_unlock(&bench.lock);
  return clock_seconds(clock_now_ns() - begin_ns);
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *ftw) {
  (void)stat, (void)type, (void)ftw;
  return remove(path);
}

static void order_snapshot(struct snapshot_writer *writer, uint64_t step) {
  Weir__WriteBlocks order = WEIR__WRITE_BLOCKS__INIT;
  struct snapshot *snapshot;
  order.run = (char *)"bench";
  order.step = step;
  snapshot = snapshot_start(writer, &order, bench.run->n_own, 1);
  hosted_run_arm(bench.run, snapshot);
  snapshot_put(snapshot);
}

static size_t heap_bytes(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

static int compare(const void *a, const void *b) {
  double d = *(const double *)a - *(const double *)b;
  return (d > 0) - (d < 0);
}

static double middle(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, compare);
  return values[n / 2];
}

/* In each ten steps: one that begins a checkpoint (its update copies), one before it that does not. */
static void measure(struct snapshot_writer *writer) {
  enum { ROUNDS = STEPS / EVERY };
  double plain[ROUNDS], copying[ROUNDS], beside[ROUNDS], stall[ROUNDS];
  size_t before = 0, peak = 0, copy = 0;
  int n = 0;
  for (uint32_t b = 0; b < bench.run->n_own; b++)
    copy += bench.run->blocks[b].current->size_bytes +
            (bench.run->blocks[b].slots ? bench.run->blocks[b].slots->size_bytes : 0);
  for (uint64_t step = 0; step < STEPS; step++) {
    double seconds;
    if (step % EVERY == EVERY - 1)
      order_snapshot(writer, step);
    seconds = run_step(step);
    if (step % EVERY == EVERY - 2) {
      plain[n] = seconds;
      before = heap_bytes();
    } else if (step % EVERY == EVERY - 1) {
      size_t during = heap_bytes();
      double stalled = bench.stall_seconds;
      peak = during > before && during - before > peak ? during - before : peak;
      copying[n] = seconds;
      beside[n] = run_step(++step);
      pthread_mutex_lock(&bench.lock);
      while (bench.n_answers <= n)
        pthread_cond_wait(&bench.changed, &bench.lock);
      stall[n++] = bench.stall_seconds - stalled;
      pthread_mutex_unlock(&bench.lock);
    }
  }
  printf("model: %zu MB of weights and slots in %u blocks\n", copy / 1000000, bench.run->n_own);
  printf("a step: %.1f ms (median of %d)\n", 1e3 * middle(plain, n), n);
  printf("the step that writes to new memory: %.1f ms; the next, beside the writer: %.1f ms\n",
         1e3 * middle(copying, n), 1e3 * middle(beside, n));
  printf("stall told by the server: %.2f ms of two shards' time, %.1f %% of a step\n", 1e3 * middle(stall, n),
         100 * middle(stall, n) / 2 / middle(plain, n));
  printf("memory: %zu MB more at most, one copy is %zu MB\n", peak / 1000000, copy / 1000000);
  printf("written: %zu MB in %d checkpoints\n", (size_t)bench.written_bytes / 1000000, n);
}

int main(int argc, char **argv) {
  char folder[] = "/tmp/weir-snapshot-bench-XXXXXX", text[64];
  struct rpc_service service;
  struct rpc_server_options options = {.listen = "127.0.0.1:0", .services = &service, .n_services = 1};
  struct snapshot_writer_options writer_options = {.tell = on_answer};
  struct snapshot_writer *writer;
  struct rpc_server *server;
  struct err err = ERR_NONE;
  snprintf(text, sizeof text, "file://%s", argc > 1 ? "" : mkdtemp(folder));
  run_table_init(&bench.runs);
  bench.shards[0] = shard_new();
  bench.shards[1] = shard_new();
  service = service_over(&bench.runs);
  if (store_open(argc > 1 ? argv[1] : text, &writer_options.store, &err) ||
      rpc_server_start(&options, &server, &err))
    die(&err);
  writer = snapshot_writer_new(&writer_options);
  load_run();
  bench.requests = mem_new(bench.run->n_own * sizeof *bench.requests);
  bench.gradient = buffer_new(BLOCK_BYTES);
  for (int i = 0; i < BLOCK_BYTES / 4; i++)
    ((float *)bench.gradient->data)[i] = 1e-3f * (float)(i % 7);
  snprintf(text, sizeof text, "127.0.0.1:%d", rpc_server_port(server));
  bench.client = rpc_client_new(1);
  for (int c = 0; c < 2; c++)
    bench.channels[c] = rpc_channel_open(bench.client, text);
  measure(writer);
  rpc_channel_close(bench.channels[0]);
  rpc_channel_close(bench.channels[1]);
  run_table_remove(&bench.runs, NULL, "the bench is over");
  snapshot_writer_stop(writer);
  rpc_server_stop(server);
  hosted_run_put(bench.run);
  shard_free(bench.shards[0]);
  shard_free(bench.shards[1]);
  snapshot_writer_free(writer);
  run_table_fini(&bench.runs);
  rpc_client_free(bench.client);
  buffer_put(bench.gradient);
  free(bench.requests);
  store_close(writer_options.store);
  if (argc == 1)
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  return 0;
}
