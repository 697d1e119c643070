/* What a stage has sent. */
#include "worker/train/executor/outbox.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "worker/backend/memory.h"

enum { ALIGNMENT = 64 };

int outbox_open(struct outbox *outbox, const struct backend_message *message, int n_slots, struct err *err) {
  *outbox = (struct outbox){.n = message->n};
  outbox->offsets = mem_new(((size_t)message->n + 1) * sizeof *outbox->offsets);
  outbox->sizes_bytes = mem_new(((size_t)message->n + 1) * sizeof *outbox->sizes_bytes);
  for (int p = 0; p < message->n; p++) {
    size_t end = outbox->offsets[p] + message->sizes_bytes[p];
    outbox->sizes_bytes[p] = message->sizes_bytes[p];
    outbox->offsets[p + 1] = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  outbox->bytes = backend_memory_new(outbox->offsets[message->n] * (size_t)n_slots, err);
  return outbox->bytes ? ERR_OK : err->code;
}

void outbox_close(struct outbox *outbox) {
  free(outbox->offsets);
  free(outbox->sizes_bytes);
  free(outbox->bytes);
  *outbox = (struct outbox){0};
}

static unsigned char *piece_at(const struct outbox *outbox, int slot, int piece) {
  return outbox->bytes + outbox->offsets[outbox->n] * (size_t)slot + outbox->offsets[piece];
}

void outbox_put(struct outbox *outbox, int slot, const void *const *pieces) {
  for (int p = 0; p < outbox->n; p++)
    memcpy(piece_at(outbox, slot, p), pieces[p], outbox->sizes_bytes[p]);
}

void outbox_look(const struct outbox *outbox, int slot, const void **pieces) {
  for (int p = 0; p < outbox->n; p++)
    pieces[p] = piece_at(outbox, slot, p);
}
