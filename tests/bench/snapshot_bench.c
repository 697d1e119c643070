/* A parameter server's checkpoints, without workers: `snapshot_bench URL WIDTH ROUNDS [PID]`. A model of two
   hidden layers' WIDTH x WIDTH weights (and as much momentum) on one server of two shards. In turn:
   - a checkpoint while nothing else goes on, and a second one when every tenth block has changed;
   - rounds of three steps that do nothing but push and pull every block through the data plane: a plain one,
     one whose updates write to new memory because a checkpoint of its version has begun, and the next, beside
     the writer. Real steps compute, too: their shares are smaller. ROUNDS 0 leaves them out;
   - loading the last checkpoint into a new run, every block verified.
   One line of JSON: bytes, seconds (of steps and stalls: medians), CPU seconds of this process and of PID,
   the store's server, resident memory. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/clock.h"
#include "common/rpc/client.h"
#include "parameters.pb-c.h"
#include "server/parameters/load/restore.h"
#include "server/parameters/service.h"
#include "server/parameters/snapshot/snapshot.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/parameters/given_model.h"
#include "tests/support/parameters/run_order.h"

enum { WARM_STEPS = 3, ROUND_STEPS = 3, ROUNDS_MAX = 100, CHANGED_EVERY = 10, WINDOW = 16, SHARDS = 2 };
enum { BLOCK_BYTES = 256 * 1024 };

extern const struct model_kind_def model_kind_mlp;

struct bench {
  int width, rounds;
  pid_t server; /* the store's; 0: not told */
  struct store *store;
  struct snapshot_writer *writer;
  struct run_table runs;
  struct shard_budgets budgets;
  struct shard *shards[SHARDS];
  struct rpc_channel *channels[2];
  struct hosted_run *run;
  struct buffer *gradient;
  struct rpc_request *requests;
  Weir__Manifest manifest; /* of the newest checkpoint */
  Weir__WrittenBlock *blocks;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  int n_in_flight, n_left, n_answers;
  double stall_s;
  uint64_t written_bytes;
};

/* What is printed. */
struct spent {
  double seconds, cpu_s, server_cpu_s;
};

struct figures {
  uint64_t state_bytes, first_bytes, second_bytes;
  struct spent first, second, restore;
  double step_s, copying_s, beside_s, stall_s, load_s;
  long before_kb, peak_kb, after_kb, load_peak_kb, restore_before_kb, restore_peak_kb;
};

static struct bench bench = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void die(const struct err *err) {
  fprintf(stderr, "snapshot_bench: %s\n", err->text);
  exit(1);
}

/* VmRSS, or VmHWM: the most since peak_reset. */
static long memory_kb(const char *name) {
  char line[128];
  long value = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, name, strlen(name)) == 0)
      value = atol(line + strlen(name) + 1);
  if (status)
    fclose(status);
  return value;
}

static void peak_reset(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (file) {
    fputs("5", file);
    fclose(file);
  }
}

static void *make_model(size_t *size_bytes) {
  char hidden[32];
  const char *options[] = {"--input", "784", "--hidden", hidden, NULL};
  struct model_recipe recipe = {.kind = &model_kind_mlp, .options = options, .seed = 1};
  struct err err = ERR_NONE;
  void *bytes;
  snprintf(hidden, sizeof hidden, "%dx3", bench.width);
  if (model_bytes(&recipe, &bytes, size_bytes, &err))
    die(&err);
  return bytes;
}

/* At a version: 0 is the model's, a later one is to be restored. */
static struct hosted_run *make_run(const void *bytes, size_t size_bytes, uint64_t step) {
  uint64_t steps = (uint64_t)(WARM_STEPS + ROUND_STEPS * bench.rounds + 1);
  struct run_order order;
  struct run_setup setup = {
      .order = &order.load, .own_id = "server-1", .shards = bench.shards, .n_shards = SHARDS};
  struct hosted_run *run;
  struct err err;
  run_order_init(&order, "bench", (struct run_size){steps, 1, 1}, 1e-3);
  order.optimizer.has_momentum = true;
  order.optimizer.momentum = 0.9;
  order.load.step = step;
  order.load.manifest = (char *)(step ? "bench" : "");
  if (given_model_load(&setup, bytes, size_bytes, &run, &err))
    die(&err);
  return run;
}

/* What no disk can make smaller; the momentum of version 0 is zeros otherwise. */
static void fill_slots(void) {
  for (uint32_t b = 0; b < bench.run->n_own; b++) {
    struct buffer *slots = bench.run->blocks[b].slots;
    for (size_t i = 0; slots && i < slots->size_bytes / sizeof(float); i++)
      ((float *)slots->data)[i] = 1e-6f * (float)(int32_t)random_key(7, b, i, 0);
  }
}

static uint64_t state_bytes(void) {
  uint64_t bytes = 0;
  for (uint32_t b = 0; b < bench.run->n_own; b++)
    bytes += bench.run->blocks[b].current->size_bytes +
             (bench.run->blocks[b].slots ? bench.run->blocks[b].slots->size_bytes : 0);
  return bytes;
}

static void on_answer(void *user, uint64_t membership, const Weir__MemberMessage *message) {
  const Weir__BlocksWritten *written = message->written;
  (void)user, (void)membership;
  if (*written->error) {
    fprintf(stderr, "snapshot_bench: %s\n", written->error);
    exit(1);
  }
  pthread_mutex_lock(&bench.lock);
  for (size_t i = 0; i < written->n_blocks; i++) {
    Weir__WrittenBlock *block = &bench.blocks[written->blocks[i]->block];
    memcpy(block->sha256, written->blocks[i]->sha256, STORE_KEY_SIZE);
    block->bytes = written->blocks[i]->bytes;
  }
  if (written->is_last) {
    bench.n_answers++;
    bench.stall_s = written->stall_seconds;
    bench.written_bytes = written->written_bytes;
  }
  pthread_cond_broadcast(&bench.changed);
  pthread_mutex_unlock(&bench.lock);
}

static void make_manifest(void) {
  uint32_t n = bench.run->n_blocks;
  bench.blocks = mem_new(n * sizeof *bench.blocks);
  weir__manifest__init(&bench.manifest);
  bench.manifest.n_blocks = n;
  bench.manifest.blocks = mem_new(n * sizeof *bench.manifest.blocks);
  for (uint32_t b = 0; b < n; b++) {
    weir__written_block__init(&bench.blocks[b]);
    bench.blocks[b].sha256 = mem_new(STORE_KEY_SIZE);
    bench.manifest.blocks[b] = &bench.blocks[b];
  }
}

static void snapshot_order(uint64_t step) {
  Weir__WriteBlocks order = WEIR__WRITE_BLOCKS__INIT;
  struct snapshot *snapshot;
  order.run = (char *)"bench";
  order.step = bench.manifest.step = step;
  snapshot = snapshot_start(bench.writer, &order, bench.run->n_own, 1);
  hosted_run_arm(bench.run, snapshot);
  snapshot_put(snapshot);
}

static void snapshot_await(int n_answers) {
  pthread_mutex_lock(&bench.lock);
  while (bench.n_answers < n_answers)
    pthread_cond_wait(&bench.changed, &bench.lock);
  pthread_mutex_unlock(&bench.lock);
}

/* Of all threads of a process, user and system. */
static double cpu_seconds(pid_t pid) {
  struct timespec used = {0};
  clockid_t clock;
  if (clock_getcpuclockid(pid, &clock) == 0)
    clock_gettime(clock, &used);
  return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static struct spent spent_now(void) {
  return (struct spent){.seconds = clock_seconds(clock_now_ns()),
                        .cpu_s = cpu_seconds(getpid()),
                        .server_cpu_s = bench.server ? cpu_seconds(bench.server) : 0};
}

static struct spent spent_since(const struct spent *begin) {
  struct spent now = spent_now();
  return (struct spent){now.seconds - begin->seconds, now.cpu_s - begin->cpu_s,
                        now.server_cpu_s - begin->server_cpu_s};
}

static struct spent measure_checkpoint(int nth, uint64_t *written_bytes) {
  struct spent begin = spent_now();
  snapshot_order(0);
  snapshot_await(nth);
  *written_bytes = bench.written_bytes;
  return spent_since(&begin);
}

static void measure_idle(struct figures *figures) {
  figures->first = measure_checkpoint(1, &figures->first_bytes);
  for (uint32_t b = 0; b < bench.run->n_own; b += CHANGED_EVERY)
    *(float *)bench.run->blocks[b].current->data += 1;
  figures->second = measure_checkpoint(2, &figures->second_bytes);
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
    rpc_request_start(&bench.requests[b], bench.channels[b % 2], &(struct rpc_question){RPC_PUSH, &push, -1},
                      &payload);
  }
  pthread_mutex_lock(&bench.lock);
  while (bench.n_left > 0)
    pthread_cond_wait(&bench.changed, &bench.lock);
  pthread_mutex_unlock(&bench.lock);
  return clock_seconds(clock_now_ns() - begin_ns);
}

static int compare(const void *a, const void *b) {
  double d = *(const double *)a - *(const double *)b;
  return (d > 0) - (d < 0);
}

static double middle(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, compare);
  return values[n / 2];
}

static void measure_steps(struct figures *figures) {
  double plain[ROUNDS_MAX], copying[ROUNDS_MAX], beside[ROUNDS_MAX], stall[ROUNDS_MAX];
  uint64_t step = 0;
  while (step < WARM_STEPS)
    run_step(step++);
  figures->before_kb = memory_kb("VmRSS");
  peak_reset();
  for (int r = 0; r < bench.rounds; r++) {
    int n_answers = bench.n_answers;
    plain[r] = run_step(step++);
    snapshot_order(step);
    copying[r] = run_step(step++);
    beside[r] = run_step(step++);
    snapshot_await(n_answers + 1);
    stall[r] = bench.stall_s;
  }
  figures->peak_kb = memory_kb("VmHWM");
  figures->after_kb = memory_kb("VmRSS");
  figures->step_s = middle(plain, bench.rounds);
  figures->copying_s = middle(copying, bench.rounds);
  figures->beside_s = middle(beside, bench.rounds);
  figures->stall_s = middle(stall, bench.rounds) / SHARDS; /* both at the same time */
}

static bool never_pause(void *user, int ms) {
  (void)user, (void)ms;
  return false;
}

/* The run that is goes first, with all its memory, to see what loading takes. */
static void unload_run(void) {
  run_table_remove(&bench.runs, NULL, "it is loaded anew");
  while (__atomic_load_n(&bench.run->refs, __ATOMIC_ACQUIRE) > 1)
    usleep(1000);
  hosted_run_put(bench.run);
}

static void measure_restore(struct figures *figures) {
  struct restore restore = {.store = bench.store, .pause = never_pause};
  struct restored restored;
  struct spent begin;
  struct err err = ERR_NONE;
  size_t size_bytes;
  uint64_t begin_ns, made_ns;
  void *model;
  unload_run();
  model = make_model(&size_bytes);
  malloc_trim(0);
  peak_reset();
  begin_ns = clock_now_ns();
  bench.run = make_run(model, size_bytes, bench.manifest.step);
  made_ns = clock_now_ns();
  free(model);
  figures->load_peak_kb = memory_kb("VmHWM");
  malloc_trim(0);
  peak_reset();
  figures->restore_before_kb = memory_kb("VmRSS");
  begin = spent_now();
  if (restore_blocks(&restore, bench.run, &bench.manifest, &restored, &err))
    die(&err);
  figures->restore = spent_since(&begin);
  figures->load_s = clock_seconds(made_ns - begin_ns) + figures->restore.seconds;
  figures->restore_peak_kb = memory_kb("VmHWM");
}

static void print_spent(const char *what, const struct spent *spent) {
  printf("\"%s_s\":%.4f,\"%s_cpu_s\":%.4f,\"%s_server_cpu_s\":%.4f,", what, spent->seconds, what,
         spent->cpu_s, what, spent->server_cpu_s);
}

static void print(const struct figures *figures, uint32_t n_blocks) {
  printf("{\"state_bytes\":%llu,\"blocks\":%u,\"first_bytes\":%llu,\"second_bytes\":%llu,",
         (unsigned long long)figures->state_bytes, n_blocks, (unsigned long long)figures->first_bytes,
         (unsigned long long)figures->second_bytes);
  print_spent("first", &figures->first);
  print_spent("second", &figures->second);
  print_spent("restore", &figures->restore);
  printf("\"step_s\":%.5f,\"copying_s\":%.5f,\"beside_s\":%.5f,\"stall_s\":%.6f,\"load_s\":%.4f,"
         "\"before_kb\":%ld,\"peak_kb\":%ld,\"after_kb\":%ld,\"load_peak_kb\":%ld,\"restore_before_kb\":%ld,"
         "\"restore_peak_kb\":%ld}\n",
         figures->step_s, figures->copying_s, figures->beside_s, figures->stall_s, figures->load_s,
         figures->before_kb, figures->peak_kb, figures->after_kb, figures->load_peak_kb,
         figures->restore_before_kb, figures->restore_peak_kb);
}

static void host_run(void) {
  struct err err = ERR_NONE;
  size_t size_bytes;
  void *model = make_model(&size_bytes);
  bench.run = make_run(model, size_bytes, 0);
  free(model);
  if (run_table_add(&bench.runs, hosted_run_get(bench.run), &err))
    die(&err);
  fill_slots();
  make_manifest();
  bench.requests = mem_new(bench.run->n_own * sizeof *bench.requests);
  bench.gradient = buffer_new(BLOCK_BYTES);
  for (int i = 0; i < BLOCK_BYTES / 4; i++)
    ((float *)bench.gradient->data)[i] = 1e-3f * (float)(i % 7);
  malloc_trim(0);
}

static void measure(struct rpc_server *server) {
  struct rpc_client *client = rpc_client_new(1, NULL);
  struct figures figures = {0};
  char address[64];
  host_run();
  snprintf(address, sizeof address, "127.0.0.1:%d", rpc_server_port(server));
  for (int c = 0; c < 2; c++)
    bench.channels[c] = rpc_channel_open(client, address, PEER_ANY);
  figures.state_bytes = state_bytes();
  measure_idle(&figures);
  if (bench.rounds > 0)
    measure_steps(&figures);
  measure_restore(&figures);
  print(&figures, bench.run->n_own);
  for (int c = 0; c < 2; c++)
    rpc_channel_close(bench.channels[c]);
  rpc_client_free(client);
}

int main(int argc, char **argv) {
  float_setting_apply();
  struct rpc_service service;
  struct rpc_server_options options = {.listen = "127.0.0.1:0", .services = &service, .n_services = 1};
  struct snapshot_writer_options writer_options = {.tell = on_answer};
  struct rpc_server *server;
  struct err err = ERR_NONE;
  bench.width = argc >= 4 ? atoi(argv[2]) : 0;
  bench.rounds = argc >= 4 ? atoi(argv[3]) : 0;
  bench.server = argc == 5 ? atoi(argv[4]) : 0;
  if (argc > 5 || bench.width < 1 || bench.rounds < 0 || bench.rounds > ROUNDS_MAX) {
    fprintf(stderr, "usage: snapshot_bench URL WIDTH ROUNDS [PID]\n");
    return 2;
  }
  run_table_init(&bench.runs);
  bench.budgets.parts.bytes_max = bench.budgets.calls.bytes_max = SIZE_MAX;
  for (int s = 0; s < SHARDS; s++)
    bench.shards[s] = shard_new(&bench.budgets);
  service = service_over(&bench.runs);
  if (store_open(argv[1], &bench.store, &err) || rpc_server_start(&options, &server, &err))
    die(&err);
  writer_options.store = bench.store;
  bench.writer = snapshot_writer_new(&writer_options);
  measure(server);
  snapshot_writer_stop(bench.writer);
  rpc_server_stop(server);
  hosted_run_put(bench.run);
  for (int s = 0; s < SHARDS; s++)
    shard_free(bench.shards[s]);
  snapshot_writer_free(bench.writer);
  run_table_fini(&bench.runs);
  buffer_put(bench.gradient);
  free(bench.requests);
  for (size_t b = 0; b < bench.manifest.n_blocks; b++)
    free(bench.blocks[b].sha256);
  free(bench.manifest.blocks);
  free(bench.blocks);
  store_close(bench.store);
  return 0;
}
