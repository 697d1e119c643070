/* What the probe takes for the messages of neighbours, and what it makes of those to them. */
#include "worker/train/executor/edges_probe.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"

/* bf16 is the upper half of f32. */
static void real_write(unsigned char *to, float real, int real_bytes) {
  uint32_t bits;
  memcpy(&bits, &real, sizeof bits);
  if (real_bytes == sizeof bits)
    memcpy(to, &bits, sizeof bits);
  else
    memcpy(to, &(uint16_t){(uint16_t)(bits >> 16)}, sizeof(uint16_t));
}

unsigned char *message_draw(const struct message_layout *layout, const struct backend_message *message,
                            uint64_t key) {
  uint64_t drawn = 0;
  unsigned char *bytes = calloc(1, message_layout_bytes(layout) + 1);
  for (int p = 0; p < message->n && bytes; p++) {
    int each = message->real_bytes[p];
    size_t reals = each ? message->sizes_bytes[p] / (size_t)each : 0;
    for (size_t i = 0; i < reals; i++)
      real_write(bytes + layout->offsets[p] + i * (size_t)each, 2 * random_uniform(key, drawn++) - 1, each);
  }
  return bytes;
}

unsigned char *edges_draw(const struct executor *executor, enum backend_part part) {
  struct backend_message message = {0};
  executor->run->options.backend->message(executor->train, part, false, &message);
  return message_draw(edges_train_layout(executor, part, false), &message,
                      random_key((uint64_t)executor->stage, (uint64_t)part, 0, 0));
}

void edges_look(const struct executor *executor, enum backend_part part, const unsigned char *message,
                const void **pieces) {
  message_look(edges_train_layout(executor, part, false), message, pieces);
}

void edges_hash(const struct executor *executor, enum backend_part part, const void *const *pieces,
                char hex[SHA256_HEX_SIZE]) {
  const struct message_layout *layout = edges_train_layout(executor, part, true);
  unsigned char *message = calloc(1, message_layout_bytes(layout) + 1);
  hex[0] = 0;
  if (!message)
    return;
  message_write(layout, pieces, message);
  sha256_hex(message, message_layout_bytes(layout), hex);
  free(message);
}
