/* Which addresses are on this machine alone, and where plaintext may go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rpc/address.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "tests/support/common/patience.h"

static void only_localhost_and_literals_of_loopback_are_on_this_machine(void **state) {
  static const char *const here[] = {"localhost:1",       "LocalHost:7070", "127.0.0.1:0",
                                     "127.255.255.254:1", "[::1]:7070",     "[0:0:0:0:0:0:0:1]:1"};
  static const char *const beyond[] = {"0.0.0.0:1",
                                       "[::]:1",
                                       "10.0.0.5:7070",
                                       "128.0.0.1:1",
                                       "126.0.0.1:1",
                                       "127.1:1",
                                       "2130706433:1",
                                       "0x7f.0.0.1:1",
                                       "127.0.0.1.example:1",
                                       "localhost.evil:1",
                                       "localhostx:1",
                                       "xlocalhost:1",
                                       "[localhost]:1",
                                       "[127.0.0.1]:1",
                                       "[::2]:1",
                                       "[::1]x:1",
                                       "x[::1]:1",
                                       "[::1%lo]:1",
                                       "::1:1",
                                       "dns:localhost:1",
                                       "dns:///127.0.0.1:1",
                                       "unix:localhost:1",
                                       ":1",
                                       "localhost",
                                       "",
                                       "[]:1",
                                       "[:1",
                                       " localhost:1",
                                       "ip6-localhost:1",
                                       "127.0.0.1,10.0.0.5:1"};
  (void)state;
  for (size_t i = 0; i < sizeof here / sizeof *here; i++)
    if (!rpc_address_is_loopback(here[i]))
      fail_msg("%s", here[i]);
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
    if (rpc_address_is_loopback(beyond[i]))
      fail_msg("%s", beyond[i]);
}

static void plaintext_stays_on_this_machine_unless_it_is_insecure(void **state) {
  static const struct rpc_security local = {0}, insecure = {.is_insecure = true}, secure = {.folder = "x"};
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(rpc_security_check(&local, "127.0.0.1:1,localhost:2", &err), ERR_OK);
  assert_int_equal(rpc_security_check(&insecure, "10.0.0.5:1", &err), ERR_OK);
  assert_int_equal(rpc_security_check(&secure, "10.0.0.5:1", &err), ERR_OK);
  assert_int_equal(rpc_security_check(&local, "127.0.0.1:1,10.0.0.5:2,10.0.0.6:3", &err), ERR_INVALID);
  assert_memory_equal(err.text, "10.0.0.5:2 leads beyond", 23);
  assert_non_null(strstr(err.text, "--tls DIR"));
  assert_non_null(strstr(err.text, "weir certs init"));
  assert_non_null(strstr(err.text, "--insecure"));
}

/* Options before variables, certificates before plaintext. */
static void options_go_before_variables(void **state) {
  static const struct {
    const char *tls, *variable_tls, *variable_insecure; /* NULL: not given */
    bool insecure;
    const char *folder;
    bool is_insecure;
    enum err_code code;
  } cases[] = {
      {NULL, NULL, NULL, false, NULL, false, ERR_OK},  {NULL, "", "", false, NULL, false, ERR_OK},
      {"a", NULL, NULL, false, "a", false, ERR_OK},    {"a", "b", "1", false, "a", false, ERR_OK},
      {NULL, "b", NULL, false, "b", false, ERR_OK},    {NULL, "b", "1", false, "b", false, ERR_OK},
      {NULL, NULL, "1", false, NULL, true, ERR_OK},    {NULL, NULL, "0", false, NULL, false, ERR_OK},
      {NULL, NULL, NULL, true, NULL, true, ERR_OK},    {NULL, "b", NULL, true, NULL, true, ERR_OK},
      {NULL, NULL, "yes", false, NULL, false, ERR_OK}, {"a", NULL, NULL, true, "a", true, ERR_INVALID},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct rpc_security got;
    struct err err = ERR_NONE;
    unsetenv("WEIR_TLS");
    unsetenv("WEIR_INSECURE");
    if (cases[i].variable_tls)
      setenv("WEIR_TLS", cases[i].variable_tls, 1);
    if (cases[i].variable_insecure)
      setenv("WEIR_INSECURE", cases[i].variable_insecure, 1);
    if (rpc_security_choose(cases[i].tls, cases[i].insecure, &got, &err) != (int)cases[i].code ||
        got.is_insecure != cases[i].is_insecure ||
        strcmp(got.folder ? got.folder : "", cases[i].folder ? cases[i].folder : "") != 0)
      fail_msg("case %zu: folder %s, insecure %d: %s", i, got.folder, got.is_insecure, err.text);
  }
  unsetenv("WEIR_TLS");
  unsetenv("WEIR_INSECURE");
}

static void a_server_listens_beyond_this_machine_only_if_it_is_insecure(void **state) {
  struct rpc_server_options options = {.listen = "0.0.0.0:0"};
  struct rpc_server *server = NULL;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(rpc_server_start(&options, &server, &err), ERR_INVALID);
  assert_memory_equal(err.text, "0.0.0.0:0 leads beyond", 22);
  err = ERR_NONE;
  options.is_insecure = true;
  if (rpc_server_start(&options, &server, &err))
    fail_msg("%s", err.text);
  rpc_server_stop(server);
}

static int ask(struct rpc_client *client, const char *target, struct err *err) {
  struct rpc_channel *channel = rpc_channel_open(client, target, PEER_ANY);
  bool is_serving = false;
  int code = rpc_health_probe(channel, patience_ms(), &is_serving, err);
  assert_int_equal(is_serving, code == 0);
  rpc_channel_close(channel);
  return code;
}

/* To 0.0.0.0 one gets on Linux: it is this machine, but no name of it that counts. */
static void a_channel_leads_beyond_this_machine_only_if_its_client_is_insecure(void **state) {
  struct rpc_server_options options = {.listen = "127.0.0.1:0"};
  struct rpc_client *client = rpc_client_new(1, NULL);
  struct rpc_server *server = NULL;
  struct err err = ERR_NONE;
  char target[32];
  (void)state;
  if (rpc_server_start(&options, &server, &err))
    fail_msg("%s", err.text);
  snprintf(target, sizeof target, "0.0.0.0:%d", rpc_server_port(server));
  assert_int_equal(ask(client, target, &err), ERR_UNSUPPORTED);
  assert_memory_equal(err.text, target, strlen(target));
  assert_non_null(strstr(err.text, ": it leads beyond this machine"));
  err = ERR_NONE;
  rpc_client_set_insecure(client);
  assert_int_equal(ask(client, target, &err), ERR_OK);
  rpc_client_free(client);
  rpc_server_stop(server);
}

static void health_tells_whether_a_server_is_insecure(void **state) {
  struct rpc_client *client = rpc_client_new(1, NULL);
  (void)state;
  for (int is_insecure = 0; is_insecure < 2; is_insecure++) {
    struct rpc_server_options options = {.listen = "127.0.0.1:0", .is_insecure = is_insecure};
    struct rpc_server *server = NULL;
    struct rpc_channel *channel;
    struct err err = ERR_NONE;
    bool told = !is_insecure;
    char target[32];
    if (rpc_server_start(&options, &server, &err))
      fail_msg("%s", err.text);
    snprintf(target, sizeof target, "127.0.0.1:%d", rpc_server_port(server));
    channel = rpc_channel_open(client, target, PEER_ANY);
    if (rpc_health_probe_insecure(channel, patience_ms(), &told, &err))
      fail_msg("%s", err.text);
    assert_int_equal(told, is_insecure);
    rpc_channel_close(channel);
    rpc_server_stop(server);
  }
  rpc_client_free(client);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_localhost_and_literals_of_loopback_are_on_this_machine),
      cmocka_unit_test(plaintext_stays_on_this_machine_unless_it_is_insecure),
      cmocka_unit_test(options_go_before_variables),
      cmocka_unit_test(a_server_listens_beyond_this_machine_only_if_it_is_insecure),
      cmocka_unit_test(a_channel_leads_beyond_this_machine_only_if_its_client_is_insecure),
      cmocka_unit_test(health_tells_whether_a_server_is_insecure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
