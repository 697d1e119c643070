/* Channels that are closed while they connect: nothing of them stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/rpc/client.h"
#include "tests/support/common/patience.h"

enum { PREFACE_BYTES = 24 };

/* An HTTP/2 server by hand, which says what it takes only when it is told to. */
struct server {
  int listener, connection;
  char address[32];
};

static void server_listen(struct server *server) {
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof own;
  server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(server->listener, (struct sockaddr *)&own, size), 0);
  assert_int_equal(listen(server->listener, 1), 0);
  assert_int_equal(getsockname(server->listener, (struct sockaddr *)&own, &size), 0);
  snprintf(server->address, sizeof server->address, "127.0.0.1:%d", ntohs(own.sin_port));
}

static void server_close(struct server *server) {
  close(server->connection);
  close(server->listener);
}

static void on_end(void *user, const struct err *err) {
  (void)user;
  assert_int_equal(err->code, ERR_CANCELLED);
}

/* The client has said its part and waits for the server's settings: only then does gRPC call it a connection.
 */
static void close_while_it_connects(struct server *server, struct rpc_client *client) {
  const struct rpc_stream_handlers handlers = {.on_end = on_end};
  struct rpc_channel *channel = rpc_channel_open(client, server->address, PEER_ANY);
  struct rpc_stream *stream = rpc_stream_open(channel, RPC_JOIN, &handlers);
  char preface[PREFACE_BYTES];
  server->connection = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
  assert_true(server->connection >= 0);
  assert_int_equal(recv(server->connection, preface, sizeof preface, MSG_WAITALL), sizeof preface);
  rpc_stream_close(stream);
  rpc_channel_close(channel);
}

static void a_connection_that_is_made_after_its_channel_was_closed_is_closed(void **state) {
  static const char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
  struct rpc_client *client = rpc_client_new(1, NULL);
  struct server server;
  char bytes[256];
  (void)state;
  patience_begin();
  server_listen(&server);
  close_while_it_connects(&server, client);
  assert_int_equal(send(server.connection, settings, sizeof settings, MSG_NOSIGNAL), sizeof settings);
  while (recv(server.connection, bytes, sizeof bytes, 0) > 0)
    continue;
  rpc_client_free(client);
  assert_false(grpc_is_initialized());
  server_close(&server);
  patience_end();
}

static void a_client_ends_though_nothing_comes_of_a_connection(void **state) {
  struct rpc_client *client = rpc_client_new(1, NULL);
  struct server server;
  (void)state;
  patience_begin();
  server_listen(&server);
  close_while_it_connects(&server, client);
  rpc_client_free(client);
  server_close(&server);
  patience_end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_connection_that_is_made_after_its_channel_was_closed_is_closed),
      cmocka_unit_test(a_client_ends_though_nothing_comes_of_a_connection),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
