/* Several hashes at a time: the same as one by one through OpenSSL, however long the messages are and
   wherever their parts end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/base/memory.h"
#include "common/base/sha256.h"

enum { BYTES = 4096, LENGTHS = 4 * 64 + 1, MESSAGES_MAX = 7, PARTS_MAX = 4 };

static unsigned char bytes[BYTES];

static void assert_hash(const unsigned char *data, size_t size, const char *found) {
  char expected[SHA256_HEX_SIZE];
  sha256_hex(data, size, expected);
  assert_string_equal(found, expected);
}

/* FIPS 180-4's examples, beside a third that is longer than both. */
static void known_texts_have_their_published_hashes(void **state) {
  static const char longer[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  char hex[3][SHA256_HEX_SIZE] = {{0}};
  struct iovec parts[3] = {{(void *)"abc", 3}, {bytes, BYTES}, {(void *)longer, strlen(longer)}};
  struct sha256_message messages[3];
  (void)state;
  for (int i = 0; i < 3; i++)
    messages[i] = (struct sha256_message){&parts[i], 1, hex[i]};
  sha256_many(messages, 3);
  assert_string_equal(hex[0], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert_hash(bytes, BYTES, hex[1]);
  assert_string_equal(hex[2], "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* Each length of up to some chunks in two parts, cut everywhere, beside a message of another length. */
static void a_message_may_be_cut_anywhere(void **state) {
  (void)state;
  for (size_t length = 0; length < LENGTHS; length++)
    for (size_t cut = 0; cut <= length; cut++) {
      char hex[2][SHA256_HEX_SIZE];
      struct iovec parts[3] = {{bytes + 3, cut}, {bytes + 3 + cut, length - cut}, {bytes, LENGTHS - length}};
      struct sha256_message messages[2] = {{parts, 2, hex[0]}, {parts + 2, 1, hex[1]}};
      sha256_many(messages, 2);
      assert_hash(bytes + 3, length, hex[0]);
      if (cut == 0)
        assert_hash(bytes, LENGTHS - length, hex[1]);
    }
}

/* A message of up to four parts, some of them empty, some without memory; returns its length. */
static size_t draw_message(uint64_t seed, uint64_t index, struct iovec parts[PARTS_MAX], int *n_parts) {
  size_t at = random_key(seed, index, 0, 0) % 64, begin = at;
  *n_parts = (int)(random_key(seed, index, 1, 0) % (PARTS_MAX + 1));
  for (int p = 0; p < *n_parts; p++) {
    size_t room = random_key(seed, index, 2, (uint64_t)p) % 4 ? 200 : (BYTES - at) / 2;
    size_t size =
        random_key(seed, index, 3, (uint64_t)p) % 3 ? random_key(seed, index, 4, (uint64_t)p) % room : 0;
    parts[p] = (struct iovec){size ? bytes + at : NULL, size};
    at += size;
  }
  return at - begin;
}

static void any_number_of_messages_has_the_hashes_of_each(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 2000; seed++) {
    struct iovec parts[MESSAGES_MAX][PARTS_MAX];
    struct sha256_message messages[MESSAGES_MAX];
    char hex[MESSAGES_MAX][SHA256_HEX_SIZE] = {{0}};
    size_t lengths[MESSAGES_MAX];
    int n = (int)(seed % (MESSAGES_MAX + 1));
    for (int i = 0; i < n; i++) {
      messages[i] = (struct sha256_message){parts[i], 0, hex[i]};
      lengths[i] = draw_message(seed, (uint64_t)i, parts[i], &messages[i].n_parts);
    }
    sha256_many(messages, n);
    for (int i = 0; i < n; i++)
      assert_hash(bytes + random_key(seed, (uint64_t)i, 0, 0) % 64, lengths[i], hex[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_texts_have_their_published_hashes),
      cmocka_unit_test(a_message_may_be_cut_anywhere),
      cmocka_unit_test(any_number_of_messages_has_the_hashes_of_each),
  };
  for (int i = 0; i < BYTES; i++)
    bytes[i] = (unsigned char)random_key(1, (uint64_t)i, 0, 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
