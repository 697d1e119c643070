/* TLS between a port and a channel: who is let in, who is believed, and files that change meanwhile. Health
   is served by every port. */
#include <ftw.h>
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
                                                  "home/all", "home/client"};
  const struct fixture *f = *state;
  struct rpc_tls *own = tls_of(f, "home/client");
  struct rpc_client *client = rpc_client_new(1, own);
  for (enum cert_role role = 0; role < CERT_ROLES; role++) {
    struct rpc_tls *tls = tls_of(f, folders[role]);
    struct rpc_server *server = serve(tls);
    for (enum rpc_peer peer = PEER_COORDINATOR; peer <= PEER_ANY; peer++) {
      bool is_right =
          role == CERT_ALL || (peer == PEER_ANY ? role != CERT_CLIENT : (enum cert_role)peer == role);
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
