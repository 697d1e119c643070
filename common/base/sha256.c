/* SHA-256: one message through OpenSSL; several, two at a time by the CPU's instructions for it. A round
   waits for the one before it, so that one message leaves these instructions idle half of the time; the
   second one's rounds stand in between. */
#include "common/base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/err.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* The messages that no lane has taken. */
struct queue {
  const struct sha256_message *next, *end;
};

static bool cpu_has_sha256(void);
static void hash_by_lanes(struct queue *queue);

struct sha256 *sha256_new(void) {
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  CHECK(context && EVP_DigestInit_ex(context, EVP_sha256(), NULL));
  return (struct sha256 *)context;
}

void sha256_update(struct sha256 *sha, const void *data, size_t size) {
  CHECK(EVP_DigestUpdate((EVP_MD_CTX *)sha, data, size));
}

void sha256_finish(struct sha256 *sha, char hex[SHA256_HEX_SIZE]) {
  unsigned char digest[SHA256_SIZE];
  CHECK(EVP_DigestFinal_ex((EVP_MD_CTX *)sha, digest, NULL));
  EVP_MD_CTX_free((EVP_MD_CTX *)sha);
  sha256_to_hex(digest, hex);
}

void sha256_hex(const void *data, size_t size, char hex[SHA256_HEX_SIZE]) {
  struct sha256 *sha = sha256_new();
  sha256_update(sha, data, size);
  sha256_finish(sha, hex);
}

void sha256_many(const struct sha256_message *messages, int n) {
  if (n > 1 && cpu_has_sha256()) {
    hash_by_lanes(&(struct queue){messages, messages + n});
    return;
  }
  for (int i = 0; i < n; i++) {
    struct sha256 *sha = sha256_new();
    for (int p = 0; p < messages[i].n_parts; p++)
      sha256_update(sha, messages[i].parts[p].iov_base, messages[i].parts[p].iov_len);
    sha256_finish(sha, messages[i].hex);
  }
}

void sha256_to_hex(const unsigned char digest[SHA256_SIZE], char hex[SHA256_HEX_SIZE]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < SHA256_SIZE; i++) {
    hex[2 * i] = digits[digest[i] >> 4];
    hex[2 * i + 1] = digits[digest[i] & 15];
  }
  hex[SHA256_HEX_SIZE - 1] = 0;
}

const char *sha256_library_version(void) {
  return OpenSSL_version(OPENSSL_VERSION_STRING);
}

#if defined(__x86_64__)

#define TARGET __attribute__((target("sha,sse4.1")))
#define INLINE static inline __attribute__((always_inline))

enum { CHUNK = 64, LANES = 2, GROUPS = 16, CPUID_SHA = 1 << 29 };

/* FIPS 180-4, 4.2.2. */
static const uint32_t round_constants[4 * GROUPS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* FIPS 180-4, 5.3.3, as the instructions keep a state: words A, B, E, F, then C, D, G, H, the last letter in
   the lowest place. */
static const uint32_t first_state[8] = {0x9b05688c, 0x510e527f, 0xbb67ae85, 0x6a09e667,
                                        0x5be0cd19, 0x1f83d9ab, 0xa54ff53a, 0x3c6ef372};

/* A message on its way. */
struct lane {
  const struct sha256_message *message; /* NULL: none is left */
  __m128i state[2];
  int part;
  size_t part_at; /* bytes of the part that are taken */
  uint64_t size;  /* bytes of the message that are taken */
  bool is_padded;
  const unsigned char *chunks; /* the next ones, in a part or in `own` */
  size_t n_chunks;
  unsigned char own[2 * CHUNK]; /* a chunk that lies in several parts, or what ends the message */
};

/* n chunks of each of n_lanes lanes. Inlined with constants: the lanes' instructions alternate. */
TARGET INLINE void lanes_step(struct lane *lanes, int n_lanes, size_t n) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i state[LANES][2], words[LANES][4], sum;
  for (int l = 0; l < n_lanes; l++)
    memcpy(state[l], lanes[l].state, sizeof state[l]);
  for (size_t c = 0; c < n; c++) {
    __m128i before[LANES][2];
    memcpy(before, state, sizeof before);
#pragma GCC unroll 16
    for (int g = 0; g < GROUPS; g++) {
      const __m128i constants = _mm_loadu_si128((const __m128i *)&round_constants[4 * g]);
#pragma GCC unroll 2
      for (int l = 0; l < n_lanes; l++) {
        __m128i *w = words[l], *now = &w[g % 4], *next = &w[(g + 1) % 4], *last = &w[(g + 3) % 4];
        if (g < 4)
          *now = _mm_shuffle_epi8(
              _mm_loadu_si128((const __m128i *)(lanes[l].chunks + c * CHUNK + (size_t)g * 16)), swap);
        sum = _mm_add_epi32(*now, constants);
        state[l][1] = _mm_sha256rnds2_epu32(state[l][1], state[l][0], sum);
        if (g >= 3 && g < GROUPS - 1)
          *next = _mm_sha256msg2_epu32(_mm_add_epi32(*next, _mm_alignr_epi8(*now, *last, 4)), *now);
        state[l][0] = _mm_sha256rnds2_epu32(state[l][0], state[l][1], _mm_shuffle_epi32(sum, 0x0e));
        if (g >= 1 && g < GROUPS - 3)
          *last = _mm_sha256msg1_epu32(*last, *now);
      }
    }
    for (int l = 0; l < n_lanes; l++)
      for (int half = 0; half < 2; half++)
        state[l][half] = _mm_add_epi32(state[l][half], before[l][half]);
  }
  for (int l = 0; l < n_lanes; l++)
    memcpy(lanes[l].state, state[l], sizeof state[l]);
}

TARGET static void one_lane_step(struct lane *lane, size_t n) {
  lanes_step(lane, 1, n);
}

TARGET static void two_lanes_step(struct lane *lanes, size_t n) {
  lanes_step(lanes, 2, n);
}

/* FIPS 180-4, 5.1.1: a one, zeros, and the message's length in bits at the end of a chunk; behind the bytes
   of the message that are in `own`. */
static void lane_pad(struct lane *lane, size_t own) {
  size_t end = own < CHUNK - 8 ? CHUNK : 2 * CHUNK;
  uint64_t bits = lane->size * 8;
  memset(lane->own + own, 0, end - own);
  lane->own[own] = 0x80;
  for (size_t i = 1; i <= 8; i++, bits >>= 8)
    lane->own[end - i] = (unsigned char)bits;
  lane->chunks = lane->own;
  lane->n_chunks = end / CHUNK;
  lane->is_padded = true;
}

/* The next chunks; false: there were no more. */
static bool lane_feed(struct lane *lane) {
  size_t own = 0;
  while (lane->part < lane->message->n_parts) {
    const struct iovec *part = &lane->message->parts[lane->part];
    const unsigned char *at = (const unsigned char *)part->iov_base + lane->part_at;
    size_t taken = part->iov_len - lane->part_at;
    lane->n_chunks = own == 0 ? taken / CHUNK : 0;
    if (lane->n_chunks > 0) {
      taken = lane->n_chunks * CHUNK;
      lane->chunks = at;
    } else if (taken > 0) {
      taken = taken < CHUNK - own ? taken : CHUNK - own;
      memcpy(lane->own + own, at, taken);
      own += taken;
      lane->n_chunks = own / CHUNK;
      lane->chunks = lane->own;
    }
    lane->size += taken;
    lane->part_at += taken;
    if (lane->part_at == part->iov_len) {
      lane->part++;
      lane->part_at = 0;
    }
    if (lane->n_chunks > 0)
      return true;
  }
  if (lane->is_padded)
    return false;
  lane_pad(lane, own);
  return true;
}

static void lane_take(struct lane *lane, struct queue *queue) {
  *lane = (struct lane){0};
  if (queue->next == queue->end)
    return;
  lane->message = queue->next++;
  memcpy(lane->state, first_state, sizeof first_state);
  lane_feed(lane);
}

static void lane_end(const struct lane *lane) {
  static const int order[8] = {3, 2, 7, 6, 1, 0, 5, 4}; /* where A to H are */
  uint32_t words[8];
  unsigned char digest[SHA256_SIZE];
  memcpy(words, lane->state, sizeof words);
  for (int i = 0; i < SHA256_SIZE; i++)
    digest[i] = (unsigned char)(words[order[i / 4]] >> (24 - 8 * (i % 4)));
  sha256_to_hex(digest, lane->message->hex);
}

/* n of its chunks are done. */
static void lane_pass(struct lane *lane, size_t n, struct queue *queue) {
  lane->chunks += n * CHUNK;
  lane->n_chunks -= n;
  if (lane->n_chunks > 0 || lane_feed(lane))
    return;
  lane_end(lane);
  lane_take(lane, queue);
}

static bool cpu_has_sha256(void) {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & CPUID_SHA);
}

static void hash_by_lanes(struct queue *queue) {
  struct lane lanes[LANES];
  for (int l = 0; l < LANES; l++)
    lane_take(&lanes[l], queue);
  while (lanes[0].message && lanes[1].message) {
    size_t n = lanes[0].n_chunks < lanes[1].n_chunks ? lanes[0].n_chunks : lanes[1].n_chunks;
    two_lanes_step(lanes, n);
    for (int l = 0; l < LANES; l++)
      lane_pass(&lanes[l], n, queue);
  }
  for (int l = 0; l < LANES; l++)
    while (lanes[l].message) {
      size_t n = lanes[l].n_chunks;
      one_lane_step(&lanes[l], n);
      lane_pass(&lanes[l], n, queue);
    }
}

#else

static bool cpu_has_sha256(void) {
  return false;
}

static void hash_by_lanes(struct queue *queue) {
  (void)queue;
}

#endif
