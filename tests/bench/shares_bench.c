/* Two runs on one parameter server, each with simulated workers in a process of its own, which push and pull
   and compute nothing: `shares_bench STEPS RUN [RUN]`. A RUN is WORKERS:HIDDEN:PAUSE_US:WEIGHT: how many
   workers it has, the width of its model, how long the first of them pauses between its steps, its weight.
   The first run is measured, beside the second one where that is given. One line of JSON: seconds of each
   step of the first run, GB/s of the second one both ways together, and what each of them took of the shards'
   time. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/rpc/client.h"
#include "parameters.pb-c.h"
#include "server/parameters/service.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/parameters/given_model.h"
#include "tests/support/parameters/run_order.h"

enum { SHARDS = 2, THREADS = 2, CHANNELS = 2, WINDOW = 16, WORKERS_MAX = 128, BLOCKS_MAX = 256 };
enum { BLOCK_BYTES = 256 * 1024, ROOM_MIB = 128, STEPS_MAX = 100000, LOOK_US = 1000 };
enum { WARM_STEPS = 3, RUNS = 2 };

extern const struct model_kind_def model_kind_mlp;

static const char *const names[RUNS] = {"first", "second"};

struct setting {
  int workers, hidden, pause_us;
  double weight;
};

/* What the processes know of each other. */
struct shared {
  int port; /* atomic; 0: the server is not there yet */
  uint32_t n_blocks[RUNS], elems[RUNS][BLOCKS_MAX];
  uint64_t bytes[RUNS];     /* atomic: of replies */
  uint64_t steps[RUNS];     /* atomic: of all workers */
  uint64_t served_ns[RUNS]; /* atomic: of the shards' time, as of late */
  double seconds[STEPS_MAX];
};

struct worker;

struct flight {
  struct rpc_request request; /* first */
  struct worker *worker;
  uint32_t block;
};

struct worker {
  pthread_t thread;
  uint32_t microbatch;
  struct rpc_channel *channels[CHANNELS];
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  uint32_t n_sending, n_answered;
  struct flight flights[BLOCKS_MAX];
};

static struct {
  int steps, n_runs;
  struct setting runs[RUNS];
  struct shared *shared;
  int run; /* of a client's process */
  struct buffer *gradient;
  struct worker list[WORKERS_MAX];
} bench;

static void die(const struct err *err) {
  fprintf(stderr, "shares_bench: %s\n", err->text);
  exit(1);
}

static void *make_model(int r, size_t *size_bytes) {
  char hidden[32];
  const char *options[] = {"--input", "1024", "--hidden", hidden, NULL};
  struct model_recipe recipe = {.kind = &model_kind_mlp, .options = options, .seed = 1};
  struct err err = ERR_NONE;
  void *bytes;
  snprintf(hidden, sizeof hidden, "%d", bench.runs[r].hidden);
  if (model_bytes(&recipe, &bytes, size_bytes, &err))
    die(&err);
  return bytes;
}

static struct hosted_run *make_run(int r, struct shard **shards) {
  uint32_t workers = (uint32_t)bench.runs[r].workers;
  struct run_order order;
  void *model;
  size_t size_bytes;
  struct run_setup setup = {.order = &order.load, .own_id = "server-1", .shards = shards, .n_shards = SHARDS};
  struct hosted_run *run;
  struct err err;
  model = make_model(r, &size_bytes);
  run_order_init(&order, names[r], (struct run_size){1000000, workers, workers}, 1e-3);
  order.plan.train_samples = 100000;
  order.workers.has_weight = true;
  order.workers.weight = bench.runs[r].weight;
  if (given_model_load(&setup, model, size_bytes, &run, &err))
    die(&err);
  free(model);
  CHECK(run->n_own <= BLOCKS_MAX);
  bench.shared->n_blocks[r] = run->n_own;
  for (uint32_t b = 0; b < run->n_own; b++)
    bench.shared->elems[r][b] = run->blocks[b].elems;
  return run;
}

static void serve(void) {
  static struct run_table table;
  static struct shard_budgets budgets = {{.bytes_max = SIZE_MAX}, {.bytes_max = SIZE_MAX}};
  struct shard *shards[SHARDS];
  struct rpc_service service;
  struct rpc_server_options options = {.listen = "127.0.0.1:0",
                                       .services = &service,
                                       .n_services = 1,
                                       .threads = THREADS,
                                       .received_bytes_max = (size_t)ROOM_MIB << 20};
  struct rpc_server *server;
  struct hosted_run *runs[RUNS] = {NULL};
  struct err err;
  run_table_init(&table);
  for (int s = 0; s < SHARDS; s++)
    shards[s] = shard_new(&budgets);
  service = service_over(&table);
  if (rpc_server_start(&options, &server, &err))
    die(&err);
  for (int r = 0; r < bench.n_runs; r++) {
    runs[r] = make_run(r, shards);
    if (run_table_add(&table, hosted_run_get(runs[r]), &err))
      die(&err);
  }
  __atomic_store_n(&bench.shared->port, rpc_server_port(server), __ATOMIC_RELEASE);
  for (;; usleep(LOOK_US))
    for (int r = 0; r < bench.n_runs; r++)
      __atomic_store_n(&bench.shared->served_ns[r], hosted_run_served_ns(runs[r]), __ATOMIC_RELAXED);
}

static void on_sent(struct rpc_request *request) {
  struct worker *worker = ((struct flight *)request)->worker;
  pthread_mutex_lock(&worker->lock);
  worker->n_sending--;
  pthread_cond_signal(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

static void on_done(struct rpc_request *request, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes) {
  static __thread unsigned char scratch[BLOCK_BYTES];
  struct flight *flight = (struct flight *)request;
  struct worker *worker = flight->worker;
  (void)reply;
  if (err->code)
    die(err);
  CHECK(rpc_bytes_size(bytes) == bench.shared->elems[bench.run][flight->block] * sizeof(float));
  rpc_bytes_copy(bytes, scratch);
  __atomic_fetch_add(&bench.shared->bytes[bench.run], rpc_bytes_size(bytes), __ATOMIC_RELAXED);
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&worker->lock);
  worker->n_answered++;
  pthread_cond_signal(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

static void flight_start(struct flight *flight, uint64_t step) {
  struct worker *worker = flight->worker;
  Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
  struct rpc_payload payload = {bench.gradient, 0,
                                bench.shared->elems[bench.run][flight->block] * sizeof(float)};
  push.run = (char *)names[bench.run];
  push.block = flight->block;
  push.step = step;
  push.first = worker->microbatch;
  push.wait = true;
  flight->request = (struct rpc_request){.on_sent = on_sent, .on_done = on_done};
  rpc_request_start(&flight->request, worker->channels[flight->block % CHANNELS],
                    &(struct rpc_question){RPC_PUSH, &push, -1}, &payload);
}

/* Returns with the next version. */
static void worker_step(struct worker *worker, uint64_t step) {
  uint32_t n_blocks = bench.shared->n_blocks[bench.run];
  pthread_mutex_lock(&worker->lock);
  worker->n_answered = 0;
  for (uint32_t b = 0; b < n_blocks; b++) {
    while (worker->n_sending == WINDOW)
      pthread_cond_wait(&worker->changed, &worker->lock);
    worker->n_sending++;
    pthread_mutex_unlock(&worker->lock);
    flight_start(&worker->flights[b], step);
    pthread_mutex_lock(&worker->lock);
  }
  while (worker->n_answered < n_blocks || worker->n_sending > 0)
    pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
  __atomic_fetch_add(&bench.shared->steps[bench.run], 1, __ATOMIC_RELAXED);
}

static void *worker_main(void *argument) {
  struct worker *worker = argument;
  for (uint64_t step = 0;; step++)
    worker_step(worker, step);
  return NULL;
}

static void workers_init(struct rpc_client *client) {
  char target[64];
  snprintf(target, sizeof target, "127.0.0.1:%d", bench.shared->port);
  CHECK((bench.gradient = buffer_new(BLOCK_BYTES)));
  memset(bench.gradient->data, 0, BLOCK_BYTES);
  for (int w = 0; w < bench.runs[bench.run].workers; w++) {
    struct worker *worker = &bench.list[w];
    worker->microbatch = (uint32_t)w;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    for (uint32_t b = 0; b < BLOCKS_MAX; b++)
      worker->flights[b] = (struct flight){.worker = worker, .block = b};
    for (int c = 0; c < CHANNELS; c++)
      worker->channels[c] = rpc_channel_open(client, target, PEER_ANY);
  }
}

static void await_warm(int r) {
  while (__atomic_load_n(&bench.shared->steps[r], __ATOMIC_RELAXED) <
         (uint64_t)WARM_STEPS * (uint64_t)bench.runs[r].workers)
    usleep(LOOK_US);
}

static void read_spent(uint64_t served_ns[RUNS], uint64_t *bytes) {
  usleep(2 * LOOK_US);
  for (int r = 0; r < RUNS; r++)
    served_ns[r] = __atomic_load_n(&bench.shared->served_ns[r], __ATOMIC_RELAXED);
  *bytes = __atomic_load_n(&bench.shared->bytes[1], __ATOMIC_RELAXED);
}

static void print_result(const uint64_t begin_ns[RUNS], const uint64_t end_ns[RUNS], double gb_s) {
  printf("{\"second_gb_s\": %.4f, \"served_s\": [%.6f, %.6f], \"step_s\": [", gb_s,
         clock_seconds(end_ns[0] - begin_ns[0]), clock_seconds(end_ns[1] - begin_ns[1]));
  for (int i = 0; i < bench.steps; i++)
    printf("%s%.6f", i ? ", " : "", bench.shared->seconds[i]);
  printf("]}\n");
}

/* The first worker of the first run. */
static void measure(void) {
  uint64_t step = 0, begin_ns, served_begin[RUNS], served_end[RUNS], bytes_begin, bytes_end;
  double seconds;
  if (bench.n_runs == RUNS)
    await_warm(1);
  while (step < WARM_STEPS)
    worker_step(&bench.list[0], step++);
  read_spent(served_begin, &bytes_begin);
  begin_ns = clock_now_ns();
  for (int i = 0; i < bench.steps; i++) {
    uint64_t step_ns = clock_now_ns();
    worker_step(&bench.list[0], step++);
    bench.shared->seconds[i] = clock_seconds(clock_now_ns() - step_ns);
    usleep((useconds_t)bench.runs[0].pause_us);
  }
  seconds = clock_seconds(clock_now_ns() - begin_ns);
  read_spent(served_end, &bytes_end);
  print_result(served_begin, served_end, 2e-9 * (double)(bytes_end - bytes_begin) / seconds);
}

static void work(int r) {
  bench.run = r;
  while (!__atomic_load_n(&bench.shared->port, __ATOMIC_ACQUIRE))
    usleep(LOOK_US);
  workers_init(rpc_client_new(THREADS, NULL));
  for (int w = r == 0; w < bench.runs[r].workers; w++)
    CHECK(pthread_create(&bench.list[w].thread, NULL, worker_main, &bench.list[w]) == 0);
  if (r > 0)
    pause();
  measure();
  fflush(stdout);
  _exit(0);
}

/* Before gRPC has threads. */
static pid_t start(int r) {
  pid_t process = fork();
  if (process == 0 && r == RUNS)
    serve();
  if (process == 0)
    work(r);
  return process;
}

static bool read_setting(const char *text, struct setting *setting) {
  return sscanf(text, "%d:%d:%d:%lf", &setting->workers, &setting->hidden, &setting->pause_us,
                &setting->weight) == 4 &&
         setting->workers > 0 && setting->workers <= WORKERS_MAX;
}

int main(int argc, char **argv) {
  pid_t server, second = 0;
  int status;
  float_setting_apply();
  bench.steps = argc > 2 ? atoi(argv[1]) : 0;
  bench.n_runs = argc - 2;
  if (bench.steps <= 0 || bench.steps > STEPS_MAX || bench.n_runs > RUNS ||
      !read_setting(argv[2], &bench.runs[0]) ||
      (bench.n_runs == RUNS && !read_setting(argv[3], &bench.runs[1]))) {
    fprintf(stderr, "usage: shares_bench STEPS WORKERS:HIDDEN:PAUSE_US:WEIGHT [the second run's]\n");
    return 2;
  }
  bench.shared = mmap(NULL, sizeof *bench.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(bench.shared != MAP_FAILED);
  server = start(RUNS);
  if (bench.n_runs == RUNS)
    second = start(1);
  waitpid(start(0), &status, 0);
  if (second)
    kill(second, SIGKILL);
  kill(server, SIGKILL);
  while (wait(NULL) > 0)
    continue;
  return status != 0;
}
