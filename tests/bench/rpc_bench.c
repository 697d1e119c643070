/* Push-pull of blocks through our RPC beside raw TCP over loopback, in one run: two processes, several blocks
   in flight on two channels, every pushed byte summed and every pulled byte copied once. TCP only moves
   bytes; its figure is the better of one way and both ways at once. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "parameters.pb-c.h"

enum {
  BLOCK_BYTES = 256 * 1024,
  IN_FLIGHT = 8,
  CHANNELS = 2,
  ROUNDS = 5,
  ROUND_MS = 500,
  WARM_UP_MS = 300,
  PATTERN = 7
};

/* The server sums what is pushed and answers from one buffer. */
static float sums[IN_FLIGHT][BLOCK_BYTES / 4];
static struct buffer *weights;

static void push(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__PushRequest *request = message;
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  struct rpc_payload payload = {weights, 0, BLOCK_BYTES};
  if (rpc_bytes_size(bytes) != BLOCK_BYTES || !rpc_bytes_add_f32(bytes, sums[request->block % IN_FLIGHT]))
    rpc_call_fail(call, ERR_INVALID, "not a block of finite numbers");
  else
    rpc_call_reply(call, &reply, &payload);
  rpc_bytes_free(bytes);
}

static void serve(int port_pipe) {
  static const struct rpc_method methods[] = {{.id = RPC_PUSH, .on_message = push}};
  struct rpc_service service = {methods, 1, NULL};
  struct rpc_server_options options = {.listen = "127.0.0.1:0", .services = &service, .n_services = 1};
  struct rpc_server *server;
  struct err err = ERR_NONE;
  int port;
  CHECK((weights = buffer_new(BLOCK_BYTES)));
  memset(weights->data, PATTERN, BLOCK_BYTES);
  if (rpc_server_start(&options, &server, &err)) {
    fprintf(stderr, "rpc_bench: %s\n", err.text);
    exit(1);
  }
  port = rpc_server_port(server);
  CHECK(write(port_pipe, &port, sizeof port) == sizeof port);
  pause();
}

/* The client keeps IN_FLIGHT blocks on their way. */
struct bench {
  struct rpc_channel *channels[CHANNELS];
  struct buffer *gradients;
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
  unsigned char copy[BLOCK_BYTES];
};

static void flight_done(struct rpc_request *request, const struct err *err, const void *reply,
                        struct rpc_bytes *bytes);

static void flight_start(struct flight *flight) {
  Weir__PushRequest push_request = WEIR__PUSH_REQUEST__INIT;
  struct rpc_payload payload = {flight->bench->gradients, 0, BLOCK_BYTES};
  push_request.run = "bench-000000";
  push_request.block = flight->block;
  push_request.wait = true;
  flight->request = (struct rpc_request){.on_done = flight_done};
  rpc_request_start(&flight->request, flight->bench->channels[flight->block % CHANNELS],
                    &(struct rpc_question){RPC_PUSH, &push_request, -1}, &payload);
}

static void flight_done(struct rpc_request *request, const struct err *err, const void *reply,
                        struct rpc_bytes *bytes) {
  struct flight *flight = (struct flight *)request;
  struct bench *bench = flight->bench;
  bool is_ending;
  (void)reply;
  if (err->code || rpc_bytes_size(bytes) != BLOCK_BYTES) {
    fprintf(stderr, "rpc_bench: %s\n", err->code ? err->text : "short block");
    exit(1);
  }
  rpc_bytes_copy(bytes, flight->copy);
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

/* Both directions together, bytes per second. */
static double rpc_rate(struct bench *bench, struct flight *flights, int ms) {
  uint64_t begin_ns = clock_now_ns();
  bench->n_blocks = 0;
  bench->is_ending = false;
  bench->n_flying = IN_FLIGHT;
  for (int i = 0; i < IN_FLIGHT; i++)
    flight_start(&flights[i]);
  usleep((useconds_t)ms * 1000);
  pthread_mutex_lock(&bench->lock);
  bench->is_ending = true;
  while (bench->n_flying)
    pthread_cond_wait(&bench->idle, &bench->lock);
  pthread_mutex_unlock(&bench->lock);
  return 2.0 * BLOCK_BYTES * (double)bench->n_blocks / clock_seconds(clock_now_ns() - begin_ns);
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

static void measure(struct bench *bench, struct flight *flights) {
  double rpc[ROUNDS], tcp[ROUNDS], ratio[ROUNDS];
  rpc_rate(bench, flights, WARM_UP_MS);
  for (int i = 0; i < ROUNDS; i++) {
    double one_way = tcp_rate(ROUND_MS, false), both_ways = tcp_rate(ROUND_MS, true);
    tcp[i] = one_way > both_ways ? one_way : both_ways;
    rpc[i] = rpc_rate(bench, flights, ROUND_MS);
    ratio[i] = rpc[i] / tcp[i];
  }
  printf("push-pull of 256 KiB blocks, %d in flight on %d channels: %.2f GB/s\n", IN_FLIGHT, CHANNELS,
         median(rpc) * 1e-9);
  printf("raw TCP over loopback: %.2f GB/s\n", median(tcp) * 1e-9);
  qsort(ratio, ROUNDS, sizeof *ratio, compare_doubles);
  printf("ratio to raw TCP: %.2f (median of %d rounds; %.2f to %.2f)\n", ratio[ROUNDS / 2], ROUNDS, ratio[0],
         ratio[ROUNDS - 1]);
}

int main(void) {
  struct bench bench = {.lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
  struct flight *flights = mem_new(IN_FLIGHT * sizeof *flights);
  struct rpc_client *client;
  char target[64];
  int port = 0, pipes[2];
  pid_t server;
  CHECK(pipe(pipes) == 0);
  server = fork(); /* before gRPC has threads */
  if (server == 0)
    serve(pipes[1]);
  close(pipes[1]);
  if (read(pipes[0], &port, sizeof port) != sizeof port)
    return 1;
  snprintf(target, sizeof target, "127.0.0.1:%d", port);
  client = rpc_client_new(1, NULL);
  CHECK((bench.gradients = buffer_new(BLOCK_BYTES)));
  memset(bench.gradients->data, 0, BLOCK_BYTES);
  for (int i = 0; i < CHANNELS; i++)
    bench.channels[i] = rpc_channel_open(client, target, PEER_ANY);
  for (uint32_t i = 0; i < IN_FLIGHT; i++)
    flights[i] = (struct flight){.bench = &bench, .block = i};
  measure(&bench, flights);
  for (int i = 0; i < CHANNELS; i++)
    rpc_channel_close(bench.channels[i]);
  rpc_client_free(client);
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
  buffer_put(bench.gradients);
  free(flights);
  return 0;
}
