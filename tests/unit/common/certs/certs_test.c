/* Holders of certificates: their URIs, written and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/certs/names.h"

static void a_holder_is_what_its_uri_says(void **state) {
  static const char *const uris[] = {"spiffe://weir/coordinator/c", "spiffe://weir/server/s-1.a_b",
                                     "spiffe://weir/worker/0", "spiffe://weir/all/all",
                                     "spiffe://weir/client/vision/operator/ann"};
  (void)state;
  for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
    struct cert_holder holder;
    struct err err = ERR_NONE;
    char uri[CERT_TEXT_SIZE];
    if (cert_holder_read(uris[i], &holder, &err))
      fail_msg("%s", err.text);
    assert_int_equal(holder.role, i);
    cert_holder_uri(&holder, uri);
    assert_string_equal(uri, uris[i]);
  }
}

static void a_worker_may_be_one_tenants_alone(void **state) {
  struct cert_holder holder;
  struct err err = ERR_NONE;
  char uri[CERT_TEXT_SIZE];
  (void)state;
  assert_int_equal(cert_holder_read("spiffe://weir/worker/vision/gpu-7", &holder, &err), 0);
  assert_int_equal(holder.role, CERT_WORKER);
  assert_string_equal(holder.tenant, "vision");
  assert_string_equal(holder.name, "gpu-7");
  cert_holder_uri(&holder, uri);
  assert_string_equal(uri, "spiffe://weir/worker/vision/gpu-7");
  assert_int_equal(cert_holder_read("spiffe://weir/worker/gpu-7", &holder, &err), 0);
  assert_string_equal(holder.tenant, "");
}

static void what_names_no_holder_is_refused(void **state) {
  char *long_name = mem_printf("spiffe://weir/worker/%064d", 1);
  const char *const uris[] = {"",
                              "spiffe://weir/",
                              "spiffe://weir/worker",
                              "spiffe://weir/worker/",
                              "spiffe://weir/worker/w/",
                              "spiffe://weir/server/vision/s",
                              "spiffe://weir/worker/vision/w/x",
                              "spiffe://weir/worker//w",
                              "spiffe://weir//w",
                              "spiffe://weir/boss/w",
                              "spiffe://weir/worker/-w",
                              "spiffe://weir/worker/w w",
                              "spiffe://weir/worker/w?x",
                              "spiffe://weir/worker/\xc3\xa4",
                              "spiffe://weir/client/ann",
                              "spiffe://weir/client/vision/root/ann",
                              "spiffe://weir/client/vision/viewer",
                              "spiffe://weir/client//viewer/ann",
                              "spiffe://other/worker/w",
                              "SPIFFE://weir/worker/w",
                              " spiffe://weir/worker/w",
                              long_name};
  (void)state;
  for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
    struct cert_holder holder;
    struct err err = ERR_NONE;
    if (cert_holder_read(uris[i], &holder, &err) != ERR_INVALID || !strstr(err.text, "names no member"))
      fail_msg("'%s': %s", uris[i], err.text);
  }
  free(long_name);
}

static void the_longest_names_fit(void **state) {
  struct cert_holder holder = {.role = CERT_CLIENT, .access = CERT_SUBMITTER}, read;
  struct err err = ERR_NONE;
  char uri[CERT_TEXT_SIZE], names[CERT_TEXT_SIZE];
  (void)state;
  memset(holder.name, 'n', CERT_WORD_MAX);
  memset(holder.tenant, 't', CERT_WORD_MAX);
  cert_holder_uri(&holder, uri);
  assert_int_equal(cert_holder_read(uri, &read, &err), 0);
  assert_memory_equal(&read, &holder, sizeof read);
  cert_holder_names(&holder, names);
  assert_non_null(strstr(names, ",DNS:client.weir"));
}

static void all_covers_members_and_no_client(void **state) {
  (void)state;
  for (enum cert_role own = 0; own < CERT_ROLES; own++)
    for (enum cert_role wanted = 0; wanted < CERT_ROLES; wanted++)
      assert_int_equal(cert_role_covers(own, wanted),
                       own == wanted || (own == CERT_ALL && wanted != CERT_CLIENT && wanted != CERT_STORE));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_holder_is_what_its_uri_says),    cmocka_unit_test(a_worker_may_be_one_tenants_alone),
      cmocka_unit_test(what_names_no_holder_is_refused),  cmocka_unit_test(the_longest_names_fit),
      cmocka_unit_test(all_covers_members_and_no_client),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
