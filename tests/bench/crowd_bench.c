/* A parameter server in a process of its own and simulated workers, which compute nothing:
   `crowd_bench steps WORKERS HIDDEN STEPS ROOM_MIB`: each worker pushes its microbatch's part of every block
   and gets the next version, in a window of 16 sends on two connections, as weir-worker does; all begin at
   once. The first quarter of the steps is not measured: memory that both processes take once is touched
   there. ROOM_MIB: what the server holds of received gradients at a time; 0: as much as comes. `crowd_bench
   parked CALLS`: pulls of a version that does not come. One line of JSON: seconds, CPU seconds and resident
   memory of both processes. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

enum { SHARDS = 2, THREADS = 2, CHANNELS = 2, WINDOW = 16, WORKERS_MAX = 1024, BLOCKS_MAX = 256 };
enum { BLOCK_BYTES = 256 * 1024, SCRATCHES = 8, PARTS_MIB = 512, WARM_DIVISOR = 4 };

extern const struct model_kind_def model_kind_mlp;

/* What the server tells the clients. */
struct ready {
  int port;
  uint32_t n_blocks;
  uint32_t elems[BLOCKS_MAX];
  uint64_t state_bytes; /* three versions of the weights and the slots */
};

struct setting {
  int workers, hidden, steps, room_mib;
};

struct worker;

/* A block of a worker, and the call that carries it. */
struct flight {
  struct rpc_request request; /* first */
  struct worker *worker;
  uint32_t block;
  int attempt;
  uint64_t due_ns; /* of a refused one */
  struct flight *next;
};

struct worker {
  uint32_t microbatch;
  struct rpc_channel *channels[CHANNELS];
  pthread_mutex_t lock; /* what follows */
  uint64_t step;
  uint32_t n_started, n_answered; /* blocks of the step */
  int n_sending;
  struct flight *flights; /* [n_blocks] */
};

/* What was spent so far. */
struct mark {
  uint64_t ns, sent_bytes, received_bytes;
  double server_s, server_kernel_s, clients_s;
  long server_faults;
};

static struct {
  struct setting setting;
  pid_t server_process;
  struct ready server;
  struct worker workers[WORKERS_MAX];
  struct buffer *gradient;
  unsigned char scratch[SCRATCHES][BLOCK_BYTES];
  unsigned turn;
  pthread_mutex_t lock; /* what follows; taken inside a worker's */
  pthread_cond_t changed;
  int n_working, n_parked_sent;
  bool is_ending;
  struct flight *refused;
  uint64_t n_refused, sent_bytes, received_bytes;
  struct mark warm; /* once the first worker is through the steps that are not measured */
} bench = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void worker_go_on(struct worker *worker);

static void die(const struct err *err) {
  fprintf(stderr, "crowd_bench: %s\n", err->text);
  exit(1);
}

static void *make_model(size_t *size_bytes) {
  char hidden[32];
  const char *options[] = {"--input", "1024", "--hidden", hidden, NULL};
  struct model_recipe recipe = {.kind = &model_kind_mlp, .options = options, .seed = 1};
  struct err err = ERR_NONE;
  void *bytes;
  snprintf(hidden, sizeof hidden, "%d", bench.setting.hidden);
  if (model_bytes(&recipe, &bytes, size_bytes, &err))
    die(&err);
  return bytes;
}

static struct hosted_run *make_run(struct shard **shards) {
  uint32_t workers = (uint32_t)bench.setting.workers;
  struct run_order order;
  void *model;
  size_t size_bytes;
  struct run_setup setup = {.order = &order.load, .own_id = "server-1", .shards = shards, .n_shards = SHARDS};
  struct hosted_run *run;
  struct err err;
  model = make_model(&size_bytes);
  run_order_init(&order, "bench", (struct run_size){(uint64_t)bench.setting.steps + 1, workers, workers},
                 1e-3);
  order.plan.train_samples = 100000;
  if (given_model_load(&setup, model, size_bytes, &run, &err))
    die(&err);
  free(model);
  return run;
}

static void serve(int pipe) {
  static struct run_table runs;
  static struct shard_budgets budgets = {{.bytes_max = (size_t)PARTS_MIB << 20}, {.bytes_max = SIZE_MAX}};
  struct shard *shards[SHARDS];
  struct rpc_service service;
  struct rpc_server_options options = {.listen = "127.0.0.1:0",
                                       .services = &service,
                                       .n_services = 1,
                                       .threads = THREADS,
                                       .received_bytes_max = (size_t)bench.setting.room_mib << 20};
  struct rpc_server *server;
  struct hosted_run *run;
  struct ready ready = {0};
  struct err err;
  run_table_init(&runs);
  for (int s = 0; s < SHARDS; s++)
    shards[s] = shard_new(&budgets);
  service = service_over(&runs);
  if (rpc_server_start(&options, &server, &err))
    die(&err);
  run = make_run(shards);
  CHECK(run->n_own <= BLOCKS_MAX);
  ready.port = rpc_server_port(server);
  ready.n_blocks = run->n_own;
  for (uint32_t b = 0; b < run->n_own; b++) {
    ready.elems[b] = run->blocks[b].elems;
    ready.state_bytes += 3 * run->blocks[b].current->size_bytes;
  }
  if (run_table_add(&runs, run, &err))
    die(&err);
  malloc_trim(0);
  CHECK(write(pipe, &ready, sizeof ready) == sizeof ready);
  pause();
}

static long memory_kb(pid_t process, const char *name) {
  char path[64], line[128];
  long value = 0;
  FILE *status;
  snprintf(path, sizeof path, "/proc/%d/status", (int)process);
  status = fopen(path, "r");
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, name, strlen(name)) == 0)
      value = atol(line + strlen(name) + 1);
  if (status)
    fclose(status);
  return value;
}

static double cpu_seconds(pid_t process) {
  clockid_t clock;
  struct timespec time;
  CHECK(clock_getcpuclockid(process, &clock) == 0 && clock_gettime(clock, &time) == 0);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Of /proc/PID/stat: time in the kernel and page faults that needed no disk. */
static void mark_kernel(pid_t process, struct mark *mark) {
  char path[64], line[1024] = "";
  const char *end;
  unsigned long kernel_ticks = 0;
  FILE *stat;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
  stat = fopen(path, "r");
  end = stat && fgets(line, sizeof line, stat) ? strrchr(line, ')') : NULL;
  CHECK(end && sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %ld %*u %*u %*u %*u %lu", &mark->server_faults,
                      &kernel_ticks) == 2);
  fclose(stat);
  mark->server_kernel_s = (double)kernel_ticks / (double)sysconf(_SC_CLK_TCK);
}

static struct mark mark_now(void) {
  struct mark mark = {.ns = clock_now_ns(),
                      .sent_bytes = __atomic_load_n(&bench.sent_bytes, __ATOMIC_RELAXED),
                      .received_bytes = __atomic_load_n(&bench.received_bytes, __ATOMIC_RELAXED),
                      .server_s = cpu_seconds(bench.server_process),
                      .clients_s = cpu_seconds(getpid())};
  mark_kernel(bench.server_process, &mark);
  return mark;
}

static struct rpc_channel *open_channel(struct rpc_client *client) {
  char target[64];
  snprintf(target, sizeof target, "127.0.0.1:%d", bench.server.port);
  return rpc_channel_open(client, target, PEER_ANY);
}

static void on_sent(struct rpc_request *request) {
  struct worker *worker = ((struct flight *)request)->worker;
  pthread_mutex_lock(&worker->lock);
  worker->n_sending--;
  worker_go_on(worker);
  pthread_mutex_unlock(&worker->lock);
}

static void flight_refused(struct flight *flight, const struct err *err) {
  if (err->code != ERR_BUSY)
    die(err);
  flight->due_ns = clock_now_ns() + (uint64_t)rpc_backoff_ms(flight->attempt++) * 1000000;
  pthread_mutex_lock(&bench.lock);
  flight->next = bench.refused;
  bench.refused = flight;
  bench.n_refused++;
  pthread_mutex_unlock(&bench.lock);
}

static void flight_landed(struct flight *flight, struct rpc_bytes *bytes) {
  unsigned turn = __atomic_fetch_add(&bench.turn, 1, __ATOMIC_RELAXED);
  struct worker *worker = flight->worker;
  bool is_over = false, is_warm;
  CHECK(rpc_bytes_size(bytes) == bench.server.elems[flight->block] * sizeof(float));
  rpc_bytes_copy(bytes, bench.scratch[turn % SCRATCHES]);
  __atomic_fetch_add(&bench.received_bytes, rpc_bytes_size(bytes), __ATOMIC_RELAXED);
  pthread_mutex_lock(&worker->lock);
  if (++worker->n_answered == bench.server.n_blocks) {
    worker->step++;
    worker->n_started = worker->n_answered = 0;
    worker_go_on(worker);
    is_over = worker->step == (uint64_t)bench.setting.steps;
  }
  is_warm = worker->step == (uint64_t)bench.setting.steps / WARM_DIVISOR;
  pthread_mutex_unlock(&worker->lock);
  pthread_mutex_lock(&bench.lock);
  if (is_warm && !bench.warm.ns)
    bench.warm = mark_now();
  if (is_over && --bench.n_working == 0)
    pthread_cond_signal(&bench.changed);
  pthread_mutex_unlock(&bench.lock);
}

static void on_done(struct rpc_request *request, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes) {
  struct flight *flight = (struct flight *)request;
  (void)reply;
  if (err->code)
    flight_refused(flight, err);
  else
    flight_landed(flight, bytes);
  rpc_bytes_free(bytes);
}

static void flight_start(struct flight *flight) {
  struct worker *worker = flight->worker;
  Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
  struct rpc_payload payload = {bench.gradient, 0, bench.server.elems[flight->block] * sizeof(float)};
  push.run = (char *)"bench";
  push.block = flight->block;
  push.step = worker->step;
  push.first = worker->microbatch;
  push.wait = true;
  worker->n_sending++;
  __atomic_fetch_add(&bench.sent_bytes, payload.size_bytes, __ATOMIC_RELAXED);
  flight->request = (struct rpc_request){.on_sent = on_sent, .on_done = on_done};
  rpc_request_start(&flight->request, worker->channels[flight->block % CHANNELS],
                    &(struct rpc_question){RPC_PUSH, &push, -1}, &payload);
}

/* Sends what the window has room for. Under the worker's lock. */
static void worker_go_on(struct worker *worker) {
  while (worker->step < (uint64_t)bench.setting.steps && worker->n_sending < WINDOW &&
         worker->n_started < bench.server.n_blocks)
    flight_start(&worker->flights[worker->n_started++]);
}

static void resend(struct flight *refused, uint64_t now_ns) {
  struct flight *next;
  for (; refused; refused = next) {
    next = refused->next;
    if (refused->due_ns <= now_ns) {
      pthread_mutex_lock(&refused->worker->lock);
      flight_start(refused);
      pthread_mutex_unlock(&refused->worker->lock);
      continue;
    }
    pthread_mutex_lock(&bench.lock);
    refused->next = bench.refused;
    bench.refused = refused;
    pthread_mutex_unlock(&bench.lock);
  }
}

static void work(void) {
  for (int w = 0; w < bench.setting.workers; w++) {
    pthread_mutex_lock(&bench.workers[w].lock);
    worker_go_on(&bench.workers[w]);
    pthread_mutex_unlock(&bench.workers[w].lock);
  }
  pthread_mutex_lock(&bench.lock);
  while (bench.n_working) {
    struct timespec until = clock_after_ms(10);
    struct flight *refused = bench.refused;
    bench.refused = NULL;
    pthread_mutex_unlock(&bench.lock);
    resend(refused, clock_now_ns());
    pthread_mutex_lock(&bench.lock);
    if (bench.n_working)
      pthread_cond_timedwait(&bench.changed, &bench.lock, &until);
  }
  pthread_mutex_unlock(&bench.lock);
}

/* Of the steps that are measured, but for times_sent, refused and memory, which are of all. Each worker sends
   as much as it gets, unless it sends again. */
static void print_steps(const struct mark *end, long idle_kb) {
  const struct mark *warm = &bench.warm;
  printf("{\"seconds\": %.6f, \"server_cpu_s\": %.6f, \"server_kernel_s\": %.2f, \"server_faults\": %ld, "
         "\"clients_cpu_s\": %.6f, \"sent\": %llu, \"received\": %llu, \"times_sent\": %.6f, "
         "\"refused\": %llu, \"idle_kb\": %ld, \"peak_kb\": %ld, \"after_kb\": %ld, "
         "\"state_bytes\": %llu, \"parts_bytes_max\": %zu, \"blocks\": %u}\n",
         clock_seconds(end->ns - warm->ns), end->server_s - warm->server_s,
         end->server_kernel_s - warm->server_kernel_s, end->server_faults - warm->server_faults,
         end->clients_s - warm->clients_s, (unsigned long long)(end->sent_bytes - warm->sent_bytes),
         (unsigned long long)(end->received_bytes - warm->received_bytes),
         (double)end->sent_bytes / (double)end->received_bytes, (unsigned long long)bench.n_refused, idle_kb,
         memory_kb(bench.server_process, "VmHWM"), memory_kb(bench.server_process, "VmRSS"),
         (unsigned long long)bench.server.state_bytes, (size_t)PARTS_MIB << 20, bench.server.n_blocks);
}

static void measure_steps(struct rpc_client *client) {
  long idle_kb;
  struct mark end;
  bench.n_working = bench.setting.workers;
  CHECK((bench.gradient = buffer_new(BLOCK_BYTES)));
  memset(bench.gradient->data, 0, BLOCK_BYTES);
  for (int w = 0; w < bench.setting.workers; w++) {
    struct worker *worker = &bench.workers[w];
    worker->microbatch = (uint32_t)w;
    pthread_mutex_init(&worker->lock, NULL);
    worker->flights = mem_new(bench.server.n_blocks * sizeof *worker->flights);
    for (uint32_t b = 0; b < bench.server.n_blocks; b++)
      worker->flights[b] = (struct flight){.worker = worker, .block = b};
    for (int c = 0; c < CHANNELS; c++)
      worker->channels[c] = open_channel(client);
  }
  idle_kb = memory_kb(bench.server_process, "VmRSS");
  work();
  end = mark_now();
  print_steps(&end, idle_kb);
  for (int w = 0; w < bench.setting.workers; w++) {
    for (int c = 0; c < CHANNELS; c++)
      rpc_channel_close(bench.workers[w].channels[c]);
    free(bench.workers[w].flights);
  }
  buffer_put(bench.gradient);
}

static void on_parked_sent(struct rpc_request *request) {
  (void)request;
  pthread_mutex_lock(&bench.lock);
  bench.n_parked_sent++;
  pthread_cond_signal(&bench.changed);
  pthread_mutex_unlock(&bench.lock);
}

static void on_parked_done(struct rpc_request *request, const struct err *err, const void *reply,
                           struct rpc_bytes *bytes) {
  (void)request, (void)reply, (void)bytes;
  if (!bench.is_ending)
    die(err);
}

/* Two connections a hundred calls. What both processes hold is looked at when it does not change any more. */
static void measure_parked(struct rpc_client *client, pid_t server, int calls) {
  int n_channels = CHANNELS * ((calls + 99) / 100);
  struct rpc_channel **channels = mem_new((size_t)n_channels * sizeof *channels);
  struct rpc_request *requests = mem_new((size_t)calls * sizeof *requests);
  long server_kb, clients_kb, before_kb = -1;
  Weir__VersionsRequest versions = WEIR__VERSIONS_REQUEST__INIT;
  struct err err;
  versions.run = (char *)"bench";
  for (int c = 0; c < n_channels; c++) {
    void *reply;
    channels[c] = open_channel(client);
    if (rpc_unary(channels[c], &(struct rpc_question){RPC_VERSIONS, &versions, 60000}, true, &reply, &err))
      die(&err);
    protobuf_c_message_free_unpacked(reply, NULL);
  }
  server_kb = memory_kb(server, "VmRSS");
  clients_kb = memory_kb(getpid(), "VmRSS");
  for (int i = 0; i < calls; i++) {
    Weir__PullRequest pull = WEIR__PULL_REQUEST__INIT;
    pull.run = (char *)"bench";
    pull.version = 1;
    pull.block = (uint32_t)i % bench.server.n_blocks;
    requests[i] = (struct rpc_request){.on_sent = on_parked_sent, .on_done = on_parked_done};
    rpc_request_start(&requests[i], channels[i % n_channels], &(struct rpc_question){RPC_PULL, &pull, -1},
                      NULL);
  }
  pthread_mutex_lock(&bench.lock);
  while (bench.n_parked_sent < calls)
    pthread_cond_wait(&bench.changed, &bench.lock);
  pthread_mutex_unlock(&bench.lock);
  while (before_kb != memory_kb(server, "VmRSS")) {
    before_kb = memory_kb(server, "VmRSS");
    usleep(500000);
  }
  printf("{\"calls\": %d, \"server_bytes\": %ld, \"client_bytes\": %ld}\n", calls,
         (memory_kb(server, "VmRSS") - server_kb) * 1024 / calls,
         (memory_kb(getpid(), "VmRSS") - clients_kb) * 1024 / calls);
}

static pid_t start_server(void) {
  int pipes[2];
  pid_t server;
  CHECK(pipe(pipes) == 0);
  server = fork(); /* before gRPC has threads */
  if (server == 0)
    serve(pipes[1]);
  close(pipes[1]);
  if (read(pipes[0], &bench.server, sizeof bench.server) != sizeof bench.server)
    exit(1);
  return server;
}

int main(int argc, char **argv) {
  bool is_parked = argc == 3 && strcmp(argv[1], "parked") == 0;
  struct rpc_client *client;
  pid_t server;
  float_setting_apply();
  if (!is_parked && (argc != 6 || strcmp(argv[1], "steps") != 0)) {
    fprintf(stderr, "usage: crowd_bench steps WORKERS HIDDEN STEPS ROOM_MIB | crowd_bench parked CALLS\n");
    return 2;
  }
  bench.setting = is_parked ? (struct setting){1, 320, 1, 0}
                            : (struct setting){atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5])};
  CHECK(bench.setting.workers > 0 && bench.setting.workers <= WORKERS_MAX && bench.setting.steps > 0);
  server = bench.server_process = start_server();
  client = rpc_client_new(THREADS, NULL);
  if (is_parked)
    measure_parked(client, server, atoi(argv[2]));
  else
    measure_steps(client);
  fflush(stdout);
  bench.is_ending = true;
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
  if (is_parked)
    _exit(0); /* with its calls */
  rpc_client_free(client);
  return 0;
}
