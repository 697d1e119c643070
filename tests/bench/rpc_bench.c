/* Push-pull of blocks through our RPC beside raw TCP over loopback, in one run: two processes, several blocks
   in flight on two channels, every byte copied once where it arrives. TCP only moves bytes; its figure is the
   better of one way and both ways at once. Then with the blocks in shared memory beside the socket, and a
   control: the socket beside itself. Or with TLS beside itself in plaintext. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "common/share/share.h"
#include "common/share/shared_pool.h"

enum {
  BLOCK_BYTES = 256 * 1024,
  IN_FLIGHT = 8,
  CHANNELS = 2,
  ROUNDS = 5,
  ROUND_MS = 500,
  WARM_UP_MS = 300,
  PATTERN = 7
};

/* Copies a block out of what came, or out of what was named in its place. */
static bool take_block(struct share *share, const Weir__SharedBytes *name, const struct rpc_bytes *bytes,
                       void *out) {
  struct shared_bytes shared;
  struct err err;
  bool is_taken;
  if (!name) {
    rpc_bytes_copy(bytes, out);
    return rpc_bytes_size(bytes) == BLOCK_BYTES;
  }
  if (share_find(share, name, &shared, &err))
    return false;
  is_taken = shared.size_bytes == BLOCK_BYTES && !shared_bytes_copy(&shared, out, &err);
  shared_bytes_put(&shared);
  return is_taken;
}

/* The server answers each block from a buffer of its own. */
static float parts[IN_FLIGHT][BLOCK_BYTES / 4];
static struct buffer *weights[IN_FLIGHT];
static struct share *server_share; /* NULL: no client has opened one */

static void push(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__PushRequest *request = message;
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  uint32_t block = request->block % IN_FLIGHT;
  struct rpc_payload payload = {weights[block], 0, BLOCK_BYTES};
  bool is_named = request->share && share_name(server_share, weights[block], &name);
  reply.shared = is_named ? &name : NULL;
  if (take_block(server_share, request->shared, bytes, parts[block]))
    rpc_call_reply(call, &reply, is_named ? NULL : &payload);
  else
    rpc_call_fail(call, ERR_INVALID, "not a block");
  rpc_bytes_free(bytes);
}

static void tell_client(void *user, const Weir__ShareMessage *message) {
  rpc_call_send(user, message, NULL);
}

static void hear_client(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct err err;
  (void)bytes;
  if (!server_share)
    server_share = share_new(tell_client, call);
  CHECK(share_take(server_share, message, &err) == 0);
}

/* NULL: plaintext. */
static struct rpc_tls *tls_open(const char *folder) {
  struct rpc_tls *tls;
  struct err err = ERR_NONE;
  if (rpc_tls_open(folder, &tls, &err)) {
    fprintf(stderr, "rpc_bench: %s\n", err.text);
    exit(1);
  }
  return tls;
}

static void serve(int port_pipe, const char *tls_folder) {
  static const struct rpc_method methods[] = {
      {.id = RPC_PUSH, .on_message = push},
      {.id = RPC_SHARE, .is_request_stream = true, .on_message = hear_client}};
  struct rpc_service service = {methods, 2, NULL};
  struct shared_pool *pool = shared_pool_new(IN_FLIGHT * shared_bytes_of(BLOCK_BYTES));
  struct rpc_server_options options = {
      .listen = "127.0.0.1:0", .services = &service, .n_services = 1, .tls = tls_open(tls_folder)};
  struct rpc_server *server;
  struct err err = ERR_NONE;
  int port;
  for (int i = 0; i < IN_FLIGHT; i++) {
    CHECK((weights[i] = shared_pool_take(pool, BLOCK_BYTES)));
    memset(weights[i]->data, PATTERN, BLOCK_BYTES);
  }
  if (rpc_server_start(&options, &server, &err)) {
    fprintf(stderr, "rpc_bench: %s\n", err.text);
    exit(1);
  }
  port = rpc_server_port(server);
  CHECK(write(port_pipe, &port, sizeof port) == sizeof port);
  pause();
}

/* The client keeps IN_FLIGHT blocks on their way to a server of its own. */
struct bench {
  const char *tls_folder; /* NULL: plaintext */
  pid_t server;
  int port;
  struct rpc_tls *tls;
  struct rpc_client *client;
  struct rpc_channel *channels[CHANNELS];
  struct flight *flights;
  struct rpc_stream *stream;
  struct share *share;
  bool is_shared; /* blocks are named, once the other end has mapped where they lie */
  pthread_mutex_t lock;
  pthread_cond_t idle;
  int n_flying;
  bool is_ending;
  uint64_t n_blocks;
};

struct flight {
  struct rpc_request request;
  struct bench *bench;
  uint32_t block;
  struct buffer *gradient;
  unsigned char copy[BLOCK_BYTES];
};

static void flight_done(struct rpc_request *request, const struct err *err, const void *reply,
                        struct rpc_bytes *bytes);

static void flight_start(struct flight *flight) {
  Weir__PushRequest push_request = WEIR__PUSH_REQUEST__INIT;
  Weir__SharedBytes name = WEIR__SHARED_BYTES__INIT;
  struct bench *bench = flight->bench;
  struct rpc_payload payload = {flight->gradient, 0, BLOCK_BYTES};
  bool is_named = bench->is_shared && share_name(bench->share, flight->gradient, &name);
  push_request.run = "bench-000000";
  push_request.block = flight->block;
  push_request.wait = true;
  push_request.share = bench->is_shared;
  push_request.shared = is_named ? &name : NULL;
  flight->request = (struct rpc_request){.on_done = flight_done};
  rpc_request_start(&flight->request, bench->channels[flight->block % CHANNELS],
                    &(struct rpc_question){RPC_PUSH, &push_request, -1}, is_named ? NULL : &payload);
}

static void flight_done(struct rpc_request *request, const struct err *err, const void *reply,
                        struct rpc_bytes *bytes) {
  struct flight *flight = (struct flight *)request;
  struct bench *bench = flight->bench;
  const Weir__PushReply *answer = reply;
  bool is_ending;
  if (err->code || !take_block(bench->share, answer->shared, bytes, flight->copy)) {
    fprintf(stderr, "rpc_bench: %s\n", err->code ? err->text : "not a block");
    exit(1);
  }
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&bench->lock);
  bench->n_blocks++;
  is_ending = bench->is_ending;
  if (is_ending && --bench->n_flying == 0)
    pthread_cond_signal(&bench->idle);
  pthread_mutex_unlock(&bench->lock);
  if (!is_ending)
    flight_start(flight);
}

/* Of both processes. */
static double cpu_seconds(pid_t server) {
  struct timespec own, other;
  clockid_t clock;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0 && clock_getcpuclockid(server, &clock) == 0 &&
        clock_gettime(clock, &other) == 0);
  return (double)(own.tv_sec + other.tv_sec) + 1e-9 * (double)(own.tv_nsec + other.tv_nsec);
}

struct rate {
  double bytes_per_second, cpu_seconds_per_gb;
};

/* Both directions together. */
static struct rate rpc_rate(struct bench *bench, int ms) {
  uint64_t begin_ns = clock_now_ns();
  double cpu = cpu_seconds(bench->server), bytes;
  bench->n_blocks = 0;
  bench->is_ending = false;
  bench->n_flying = IN_FLIGHT;
  for (int i = 0; i < IN_FLIGHT; i++)
    flight_start(&bench->flights[i]);
  usleep((useconds_t)ms * 1000);
  pthread_mutex_lock(&bench->lock);
  bench->is_ending = true;
  while (bench->n_flying)
    pthread_cond_wait(&bench->idle, &bench->lock);
  pthread_mutex_unlock(&bench->lock);
  bytes = 2.0 * BLOCK_BYTES * (double)bench->n_blocks;
  return (struct rate){bytes / clock_seconds(clock_now_ns() - begin_ns),
                       (cpu_seconds(bench->server) - cpu) / (bytes * 1e-9)};
}

struct pump {
  int fd, ms;
  uint64_t bytes;
};

static void *pump_out(void *arg) {
  struct pump *pump = arg;
  static const unsigned char block[BLOCK_BYTES];
  uint64_t end_ns = clock_now_ns() + (uint64_t)pump->ms * 1000000;
  while (clock_now_ns() < end_ns) {
    ssize_t n = send(pump->fd, block, sizeof block, MSG_NOSIGNAL);
    if (n <= 0)
      break;
    pump->bytes += (uint64_t)n;
  }
  shutdown(pump->fd, SHUT_WR);
  return NULL;
}

static void *pump_in(void *arg) {
  struct pump *pump = arg;
  unsigned char *block = malloc(BLOCK_BYTES);
  ssize_t n;
  while ((n = recv(pump->fd, block, BLOCK_BYTES, 0)) > 0)
    pump->bytes += (uint64_t)n;
  free(block);
  return NULL;
}

static int tcp_listen(struct sockaddr_in *address) {
  socklen_t size = sizeof *address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  CHECK(fd >= 0 && bind(fd, (struct sockaddr *)address, size) == 0 && listen(fd, 4) == 0 &&
        getsockname(fd, (struct sockaddr *)address, &size) == 0);
  return fd;
}

/* The other process of one measurement: reads, and with both_ways writes beside it. */
static void tcp_peer(const struct sockaddr_in *address, int ms, bool both_ways) {
  struct pump in = {.fd = socket(AF_INET, SOCK_STREAM, 0)}, out = {.ms = ms};
  pthread_t thread;
  CHECK(connect(in.fd, (const struct sockaddr *)address, sizeof *address) == 0);
  out.fd = in.fd;
  if (both_ways)
    pthread_create(&thread, NULL, pump_out, &out);
  pump_in(&in);
  if (both_ways)
    pthread_join(thread, NULL);
  _exit(0);
}

static double tcp_rate(int ms, bool both_ways) {
  struct sockaddr_in address;
  int listener = tcp_listen(&address);
  pid_t peer = fork();
  struct pump in = {0}, out = {.ms = ms};
  uint64_t begin_ns;
  pthread_t thread;
  if (peer == 0)
    tcp_peer(&address, ms, both_ways);
  in.fd = out.fd = accept(listener, NULL, NULL);
  CHECK(in.fd >= 0);
  begin_ns = clock_now_ns();
  pthread_create(&thread, NULL, pump_out, &out);
  pump_in(&in);
  pthread_join(thread, NULL);
  waitpid(peer, NULL, 0);
  close(in.fd);
  close(listener);
  return (double)(in.bytes + out.bytes) / clock_seconds(clock_now_ns() - begin_ns);
}

static int compare_doubles(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return left < right ? -1 : left > right;
}

static double median(double values[ROUNDS]) {
  qsort(values, ROUNDS, sizeof *values, compare_doubles);
  return values[ROUNDS / 2];
}

/* Its server, as a process: before gRPC has threads in this one. */
static void bench_fork(struct bench *bench, const char *tls_folder) {
  int pipes[2];
  *bench = (struct bench){
      .tls_folder = tls_folder, .lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
  CHECK(pipe(pipes) == 0);
  bench->server = fork();
  if (bench->server == 0)
    serve(pipes[1], tls_folder);
  close(pipes[1]);
  if (read(pipes[0], &bench->port, sizeof bench->port) != sizeof bench->port)
    exit(1);
  close(pipes[0]);
}

static void tell_server(void *user, const Weir__ShareMessage *message) {
  rpc_stream_send(((struct bench *)user)->stream, message);
}

static void hear_server(void *user, const void *message) {
  struct err err;
  CHECK(share_take(((struct bench *)user)->share, message, &err) == 0);
}

static void on_stream_end(void *user, const struct err *err) {
  (void)user;
  (void)err;
}

/* Until the other end has what blocks lie in. */
static void bench_share(struct bench *bench) {
  struct rpc_stream_handlers handlers = {hear_server, on_stream_end, bench};
  bench->share = share_new(tell_server, bench);
  bench->stream = rpc_stream_open(bench->channels[0], RPC_SHARE, &handlers);
  bench->is_shared = true;
  while (!share_is_up(bench->share))
    rpc_rate(bench, WARM_UP_MS);
  rpc_rate(bench, WARM_UP_MS);
}

static void bench_connect(struct bench *bench) {
  struct shared_pool *pool = shared_pool_new(IN_FLIGHT * shared_bytes_of(BLOCK_BYTES));
  char target[64];
  snprintf(target, sizeof target, "127.0.0.1:%d", bench->port);
  bench->tls = tls_open(bench->tls_folder);
  bench->client = rpc_client_new(1, bench->tls);
  for (int i = 0; i < CHANNELS; i++)
    bench->channels[i] = rpc_channel_open(bench->client, target, PEER_ANY);
  bench->flights = mem_new(IN_FLIGHT * sizeof *bench->flights);
  for (uint32_t i = 0; i < IN_FLIGHT; i++) {
    struct buffer *gradient = shared_pool_take(pool, BLOCK_BYTES);
    CHECK(gradient);
    memset(gradient->data, 0, BLOCK_BYTES);
    bench->flights[i] = (struct flight){.bench = bench, .block = i, .gradient = gradient};
  }
  shared_pool_free(pool);
  rpc_rate(bench, WARM_UP_MS);
}

static void bench_end(struct bench *bench) {
  if (bench->stream) {
    share_close(bench->share);
    rpc_stream_close(bench->stream);
    share_put(bench->share);
  }
  for (int i = 0; i < CHANNELS; i++)
    rpc_channel_close(bench->channels[i]);
  rpc_client_free(bench->client);
  rpc_tls_close(bench->tls);
  kill(bench->server, SIGKILL);
  waitpid(bench->server, NULL, 0);
  for (int i = 0; i < IN_FLIGHT; i++)
    buffer_put(bench->flights[i].gradient);
  free(bench->flights);
}

static void print_ratio(const char *what, double ratio[ROUNDS]) {
  double middle = median(ratio); /* sorts them */
  printf("ratio to %s: %.2f (median of %d rounds; %.2f to %.2f)\n", what, middle, ROUNDS, ratio[0],
         ratio[ROUNDS - 1]);
}

static void measure_beside_tcp(struct bench *bench) {
  double rpc[ROUNDS], tcp[ROUNDS], ratio[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    double one_way = tcp_rate(ROUND_MS, false), both_ways = tcp_rate(ROUND_MS, true);
    tcp[i] = one_way > both_ways ? one_way : both_ways;
    rpc[i] = rpc_rate(bench, ROUND_MS).bytes_per_second;
    ratio[i] = rpc[i] / tcp[i];
  }
  printf("push-pull of 256 KiB blocks, %d in flight on %d channels: %.2f GB/s\n", IN_FLIGHT, CHANNELS,
         median(rpc) * 1e-9);
  printf("raw TCP over loopback: %.2f GB/s\n", median(tcp) * 1e-9);
  print_ratio("raw TCP", ratio);
}

static struct rate rate_of(struct bench *bench, bool is_shared) {
  bench->is_shared = is_shared;
  return rpc_rate(bench, ROUND_MS);
}

static void print_rate(const char *what, double bytes[ROUNDS], double cpu[ROUNDS]) {
  printf("push-pull %s: %.2f GB/s, %.2f CPU-seconds a GB\n", what, median(bytes) * 1e-9, median(cpu));
}

static void measure_shared(struct bench *bench) {
  double sent[ROUNDS], named[ROUNDS], sent_cpu[ROUNDS], named_cpu[ROUNDS], ratio[ROUNDS], control[ROUNDS];
  bench_share(bench);
  for (int i = 0; i < ROUNDS; i++) {
    struct rate before = rate_of(bench, false), shared = rate_of(bench, true), after = rate_of(bench, false);
    sent[i] = (before.bytes_per_second + after.bytes_per_second) / 2;
    sent_cpu[i] = (before.cpu_seconds_per_gb + after.cpu_seconds_per_gb) / 2;
    named[i] = shared.bytes_per_second;
    named_cpu[i] = shared.cpu_seconds_per_gb;
    ratio[i] = named[i] / sent[i];
    control[i] = after.bytes_per_second / before.bytes_per_second;
  }
  print_rate("in shared memory", named, named_cpu);
  print_rate("by socket", sent, sent_cpu);
  print_ratio("the socket", ratio);
  print_ratio("the socket, of the socket again (control)", control);
}

static void measure_with_tls(struct bench *plain, struct bench *tls) {
  double plain_bytes[ROUNDS], tls_bytes[ROUNDS], plain_cpu[ROUNDS], tls_cpu[ROUNDS], ratio[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    struct rate without = rpc_rate(plain, ROUND_MS), with = rpc_rate(tls, ROUND_MS);
    plain_bytes[i] = without.bytes_per_second;
    plain_cpu[i] = without.cpu_seconds_per_gb;
    tls_bytes[i] = with.bytes_per_second;
    tls_cpu[i] = with.cpu_seconds_per_gb;
    ratio[i] = tls_bytes[i] / plain_bytes[i];
  }
  printf("push-pull with TLS: %.2f GB/s, %.2f CPU-seconds a GB\n", median(tls_bytes) * 1e-9, median(tls_cpu));
  printf("push-pull in plaintext: %.2f GB/s, %.2f CPU-seconds a GB\n", median(plain_bytes) * 1e-9,
         median(plain_cpu));
  print_ratio("plaintext", ratio);
}

/* With a folder of certificates of the role `all`: TLS beside plaintext. */
int main(int argc, char **argv) {
  struct bench plain, tls;
  bool has_tls = argc > 1;
  bench_fork(&plain, NULL);
  if (has_tls)
    bench_fork(&tls, argv[1]);
  bench_connect(&plain);
  if (has_tls) {
    bench_connect(&tls);
    measure_with_tls(&plain, &tls);
    bench_end(&tls);
  } else {
    measure_beside_tcp(&plain);
    measure_shared(&plain);
  }
  bench_end(&plain);
  return 0;
}
