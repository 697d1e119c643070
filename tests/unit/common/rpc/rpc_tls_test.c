/* TLS between a port and a channel: who is let in, who is believed, and files that change meanwhile. Health
   is served by every port. */
#include <dirent.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/certs/authority.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "grpc/health/v1/health.pb-c.h"
#include "tests/support/common/patience.h"

/* Two authorities in a folder: home and away, with a folder for each role in each. */
struct fixture {
  char folder[64];
};

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

static int setup(void **state) {
  struct fixture *f = mem_new(sizeof *f);
  struct err err = ERR_NONE;
  snprintf(f->folder, sizeof f->folder, "/tmp/weir-tls-XXXXXX");
  if (!mkdtemp(f->folder))
    return -1;
  for (int i = 0; i < 2; i++) {
    char *folder = mem_printf("%s/%s", f->folder, i ? "away" : "home");
    authority_make(folder, &err);
    free(folder);
  }
  *state = f;
  return err.code;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  nftw(f->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  free(f);
  return 0;
}

static struct rpc_tls *tls_of(const struct fixture *f, const char *below) {
  char *folder = mem_printf("%s/%s", f->folder, below);
  struct rpc_tls *tls = NULL;
  struct err err = ERR_NONE;
  if (rpc_tls_open(folder, &tls, &err))
    fail_msg("%s", err.text);
  free(folder);
  return tls;
}

static struct rpc_server *serve(const struct rpc_tls *tls) {
  struct rpc_server *server;
  struct err err = ERR_NONE;
  if (rpc_server_start(&(struct rpc_server_options){.listen = "127.0.0.1:0", .tls = tls}, &server, &err))
    fail_msg("%s", err.text);
  return server;
}

/* By a connection of its own. */
static int probe(struct rpc_client *client, const struct rpc_server *server, enum rpc_peer peer,
                 struct err *err) {
  char *target = mem_printf("127.0.0.1:%d", rpc_server_port(server));
  struct rpc_channel *channel = rpc_channel_open(client, target, peer);
  bool is_serving = false;
  *err = ERR_NONE;
  rpc_health_probe(channel, patience_ms(), &is_serving, err);
  rpc_channel_close(channel);
  free(target);
  return err->code;
}

/* A client with the certificates of one folder asks a server with those of another; NULL: plaintext. says:
   what an error must hold; NULL: there is none. */
static void try(const struct fixture *f, const char *client_folder, const char *server_folder,
                const char *says) {
  struct rpc_tls *client_tls = client_folder ? tls_of(f, client_folder) : NULL;
  struct rpc_tls *server_tls = server_folder ? tls_of(f, server_folder) : NULL;
  struct rpc_server *server = serve(server_tls);
  struct rpc_client *client = rpc_client_new(1, client_tls);
  struct err err = ERR_NONE;
  int code = probe(client, server, PEER_ANY, &err);
  if (code != (says ? ERR_UNAVAILABLE : ERR_OK) || (says && !strstr(err.text, says)))
    fail_msg("%s to %s: %s", client_folder, server_folder, err.text);
  rpc_client_free(client);
  rpc_server_stop(server);
  rpc_tls_close(server_tls);
  rpc_tls_close(client_tls);
}

static void both_ends_need_a_certificate_of_one_authority(void **state) {
  const struct fixture *f = *state;
  try(f, NULL, NULL, NULL);
  try(f, "home/client", "home/coordinator", NULL);
  try(f, "home/worker", "home/server", NULL);
  try(f, "away/client", "home/coordinator", "no authority of our ca.pem has signed its certificate");
  try(f, NULL, "home/coordinator", "does one end lack --tls");
  try(f, "home/client", NULL, "it does not speak TLS");
}

/* One that trusts the server, and is not trusted by it. */
static void a_client_of_an_authority_that_the_server_does_not_trust_is_refused(void **state) {
  const struct fixture *f = *state;
  char *trusted = mem_printf("%s/home/client/ca.pem", f->folder);
  char *own = mem_printf("%s/away/client/ca.pem", f->folder);
  char *both = mem_printf("cat %s >>%s", trusted, own);
  assert_int_equal(system(both), 0);
  try(f, "away/client", "home/coordinator", "does one end lack --tls, or an authority that the other trusts");
  free(both);
  free(own);
  free(trusted);
}

static void a_server_is_believed_only_in_its_role(void **state) {
  static const char *const folders[CERT_ROLES] = {"home/coordinator", "home/server", "home/worker",
                                                  "home/all",         "home/client", "home/store"};
  const struct fixture *f = *state;
  struct rpc_tls *own = tls_of(f, "home/client");
  struct rpc_client *client = rpc_client_new(1, own);
  for (enum cert_role role = 0; role < CERT_ROLES; role++) {
    struct rpc_tls *tls = tls_of(f, folders[role]);
    struct rpc_server *server = serve(tls);
    for (enum rpc_peer peer = PEER_COORDINATOR; peer <= PEER_ANY; peer++) {
      bool is_right = role == CERT_ALL || (peer == PEER_ANY ? role != CERT_CLIENT && role != CERT_STORE
                                                            : (enum cert_role)peer == role);
      struct err err;
      if (probe(client, server, peer, &err) != (is_right ? ERR_OK : ERR_UNAVAILABLE) ||
          (!is_right && !strstr(err.text, "not of the role that is needed")))
        fail_msg("%s as peer %d: %s", folders[role], (int)peer, err.text);
    }
    rpc_server_stop(server);
    rpc_tls_close(tls);
  }
  rpc_client_free(client);
  rpc_tls_close(own);
}

static void point_to(const struct fixture *f, const char *link, const char *below) {
  char *target = mem_printf("%s/%s", f->folder, below), *path = mem_printf("%s/%s", f->folder, link);
  char *beside = mem_printf("%s.new", path);
  assert_int_equal(symlink(target, beside), 0);
  assert_int_equal(rename(beside, path), 0);
  free(beside);
  free(path);
  free(target);
}

/* Until it is let in: gRPC looks at a client's files once a second. */
static void await_entry(struct rpc_client *client, const struct rpc_server *server) {
  uint64_t until_ns = clock_now_ns() + (uint64_t)patience_seconds() * 1000000000;
  struct timespec pause = {.tv_nsec = 50000000};
  struct err err;
  while (probe(client, server, PEER_ANY, &err)) {
    if (clock_now_ns() > until_ns)
      fail_msg("%s", err.text);
    nanosleep(&pause, NULL);
  }
}

/* A link that both ends follow leads from one authority to another. */
static void new_certificates_are_taken_by_ports_and_channels_that_are_open(void **state) {
  const struct fixture *f = *state;
  struct rpc_tls *tls, *away_tls = tls_of(f, "away/all");
  struct rpc_server *server, *away_server = serve(away_tls);
  struct rpc_client *client, *away_client = rpc_client_new(1, away_tls);
  struct err err;
  point_to(f, "link", "home/all");
  tls = tls_of(f, "link");
  server = serve(tls);
  client = rpc_client_new(1, tls);
  assert_int_equal(probe(client, server, PEER_ANY, &err), 0);
  assert_int_equal(probe(away_client, server, PEER_ANY, &err), ERR_UNAVAILABLE);
  assert_int_equal(probe(client, away_server, PEER_ANY, &err), ERR_UNAVAILABLE);
  point_to(f, "link", "away/all");
  assert_int_equal(probe(away_client, server, PEER_ANY, &err), 0);
  await_entry(client, away_server);
  await_entry(client, server);
  rpc_client_free(client);
  rpc_client_free(away_client);
  rpc_server_stop(server);
  rpc_server_stop(away_server);
  rpc_tls_close(tls);
  rpc_tls_close(away_tls);
}

static void files_that_cannot_be_used_leave_a_port_with_those_it_had(void **state) {
  const struct fixture *f = *state;
  struct rpc_tls *tls, *own = tls_of(f, "home/client");
  struct rpc_server *server;
  struct rpc_client *client = rpc_client_new(1, own);
  char *mixed = mem_printf("cd %s && cp -r home/server mixed && cp home/worker/key.pem mixed/", f->folder);
  struct err err;
  assert_int_equal(system(mixed), 0);
  point_to(f, "link", "home/server");
  tls = tls_of(f, "link");
  server = serve(tls);
  for (int i = 0; i < 2; i++) {
    point_to(f, "link", i ? "none" : "mixed");
    if (probe(client, server, PEER_SERVER, &err))
      fail_msg("%s", err.text);
  }
  rpc_client_free(client);
  rpc_server_stop(server);
  rpc_tls_close(tls);
  rpc_tls_close(own);
  free(mixed);
}

static void write_denied(const struct fixture *f, const char *role, const char *text) {
  char *path = mem_printf("%s/home/%s/denied.txt", f->folder, role), *beside = mem_printf("%s.new", path);
  FILE *file = fopen(beside, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(rename(beside, path), 0);
  free(beside);
  free(path);
}

/* A stream that a server ends by itself only when it stops. */
static struct rpc_reader *watch(struct rpc_channel *channel) {
  struct rpc_reader *reader = rpc_reader_open(channel, RPC_HEALTH_WATCH, patience_ms());
  Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
  struct err err = ERR_NONE;
  void *reply;
  assert_int_equal(rpc_reader_send(reader, &request, &err), 0);
  rpc_reader_half_close(reader);
  if (rpc_reader_next(reader, &reply, &err))
    fail_msg("%s", err.text);
  protobuf_c_message_free_unpacked(reply, NULL);
  return reader;
}

static int ask(struct rpc_channel *channel, struct err *err) {
  bool is_serving;
  *err = ERR_NONE;
  return rpc_health_probe(channel, patience_ms(), &is_serving, err);
}

/* Asks until the answer is that; says: what an error must hold. The list is read every second. */
static void await_answer(struct rpc_channel *channel, enum err_code code, const char *says) {
  uint64_t until_ns = clock_now_ns() + (uint64_t)patience_seconds() * 1000000000;
  struct timespec pause = {.tv_nsec = 50000000};
  struct err err;
  while (ask(channel, &err) != (int)code || !strstr(err.text, says)) {
    if (clock_now_ns() > until_ns)
      fail_msg("%s", err.text);
    nanosleep(&pause, NULL);
  }
}

/* Streams and calls of connections that were opened before. */
static void a_denied_name_is_refused_on_connections_that_are_open(void **state) {
  static const char says[] = "the certificate of spiffe://weir/client/default/operator/client is denied";
  const struct fixture *f = *state;
  struct rpc_tls *tls = tls_of(f, "home/server"), *own = tls_of(f, "home/client"),
                 *other = tls_of(f, "home/worker");
  struct rpc_server *server = serve(tls);
  struct rpc_client *clients[] = {rpc_client_new(1, own), rpc_client_new(1, other)};
  char *target = mem_printf("127.0.0.1:%d", rpc_server_port(server));
  struct rpc_channel *denied = rpc_channel_open(clients[0], target, PEER_SERVER);
  struct rpc_channel *welcome = rpc_channel_open(clients[1], target, PEER_SERVER);
  struct rpc_reader *reader = watch(denied), *kept = watch(welcome);
  struct err err = ERR_NONE;
  void *reply;
  write_denied(f, "server",
               "# lost:\n\n  client/default/operator/client \t# in the train\r\nspiffe://weir/worker/w\n");
  if (rpc_reader_next(reader, &reply, &err) != ERR_DENIED || !strstr(err.text, says))
    fail_msg("the stream: %s", err.text);
  if (ask(denied, &err) != ERR_DENIED || !strstr(err.text, says))
    fail_msg("a call: %s", err.text);
  if (ask(welcome, &err))
    fail_msg("another's call: %s", err.text);
  write_denied(f, "server", "");
  await_answer(denied, ERR_OK, "");
  rpc_server_set_serving(server, false);
  if (rpc_reader_next(kept, &reply, &err))
    fail_msg("another's stream: %s", err.text);
  protobuf_c_message_free_unpacked(reply, NULL);
  rpc_reader_close(reader);
  rpc_reader_close(kept);
  rpc_channel_close(denied);
  rpc_channel_close(welcome);
  rpc_client_free(clients[0]);
  rpc_client_free(clients[1]);
  rpc_server_stop(server);
  rpc_tls_close(tls);
  rpc_tls_close(own);
  rpc_tls_close(other);
  free(target);
}

static void a_list_of_denied_names_that_says_nothing_clear_is_refused(void **state) {
  static const char *const texts[] = {"worker/w\nworker\n", "\n*\n", "# all\nspiffe://other/worker/w"};
  const struct fixture *f = *state;
  char *folder = mem_printf("%s/home/server", f->folder);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct rpc_tls *tls;
    struct err err = ERR_NONE;
    write_denied(f, "server", texts[i]);
    if (rpc_tls_open(folder, &tls, &err) != ERR_INVALID || !strstr(err.text, "/home/server/denied.txt:2: '"))
      fail_msg("%s: %s", texts[i], err.text);
  }
  free(folder);
}

/* By the list of the client's own folder; connections that are open, and the handshake of those that come. */
static void a_server_whose_name_is_denied_is_believed_no_more(void **state) {
  static const char open[] = "TLS: the certificate of spiffe://weir/server/server is denied";
  static const char shut[] = "TLS: the name of its certificate is in denied.txt here";
  const struct fixture *f = *state;
  struct rpc_tls *tls = tls_of(f, "home/server"), *own = tls_of(f, "home/worker"),
                 *other = tls_of(f, "home/client");
  struct rpc_server *server = serve(tls);
  struct rpc_client *client = rpc_client_new(1, own), *another = rpc_client_new(1, other);
  char *target = mem_printf("127.0.0.1:%d", rpc_server_port(server));
  struct rpc_channel *channel = rpc_channel_open(client, target, PEER_SERVER);
  struct rpc_reader *reader = watch(channel);
  struct err err = ERR_NONE;
  void *reply;
  write_denied(f, "worker", "worker/w\nserver/server # stolen\n");
  await_answer(channel, ERR_UNAVAILABLE, open);
  rpc_server_set_serving(server, false);
  if (rpc_reader_next(reader, &reply, &err) != ERR_UNAVAILABLE || !strstr(err.text, open))
    fail_msg("the stream: %s", err.text);
  await_answer(channel, ERR_UNAVAILABLE, shut);
  assert_int_equal(probe(another, server, PEER_SERVER, &err), 0);
  write_denied(f, "worker", "worker/server\n");
  await_answer(channel, ERR_OK, "");
  rpc_reader_close(reader);
  rpc_channel_close(channel);
  rpc_client_free(client);
  rpc_client_free(another);
  rpc_server_stop(server);
  rpc_tls_close(tls);
  rpc_tls_close(own);
  rpc_tls_close(other);
  free(target);
}

static int threads(void) {
  int n = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  while (readdir(tasks))
    n++;
  closedir(tasks);
  return n;
}

/* Else they would go on with what the end of the process takes away. The last of them may be leaving. */
static void the_threads_of_grpc_have_ended_once_nobody_uses_it(void **state) {
  int before = threads(); /* or more, if those of the tests before are leaving */
  for (int i = 0; i < 3; i++) {
    uint64_t until_ns = clock_now_ns() + (uint64_t)patience_seconds() * 1000000000;
    try(*state, "away/client", "home/coordinator", "no authority");
    while (threads() > before && clock_now_ns() < until_ns)
      sched_yield();
    assert_in_range(threads(), 1, before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(both_ends_need_a_certificate_of_one_authority, setup, teardown),
      cmocka_unit_test_setup_teardown(a_client_of_an_authority_that_the_server_does_not_trust_is_refused,
                                      setup, teardown),
      cmocka_unit_test_setup_teardown(a_server_is_believed_only_in_its_role, setup, teardown),
      cmocka_unit_test_setup_teardown(new_certificates_are_taken_by_ports_and_channels_that_are_open, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(files_that_cannot_be_used_leave_a_port_with_those_it_had, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_denied_name_is_refused_on_connections_that_are_open, setup, teardown),
      cmocka_unit_test_setup_teardown(a_list_of_denied_names_that_says_nothing_clear_is_refused, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_server_whose_name_is_denied_is_believed_no_more, setup, teardown),
      cmocka_unit_test_setup_teardown(the_threads_of_grpc_have_ended_once_nobody_uses_it, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
