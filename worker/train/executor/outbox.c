/* What a stage has sent. */
#include "worker/train/executor/outbox.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "worker/backend/memory.h"

enum { ALIGNMENT = 64 };

void message_layout_init(struct message_layout *layout, const struct backend_message *message) {
  *layout = (struct message_layout){.n = message->n};
  layout->offsets = mem_new(((size_t)message->n + 1) * sizeof *layout->offsets);
  layout->sizes_bytes = mem_new(((size_t)message->n + 1) * sizeof *layout->sizes_bytes);
  for (int p = 0; p < message->n; p++) {
    size_t end = layout->offsets[p] + message->sizes_bytes[p];
    layout->sizes_bytes[p] = message->sizes_bytes[p];
    layout->offsets[p + 1] = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
}

void message_layout_fini(struct message_layout *layout) {
  free(layout->offsets);
  free(layout->sizes_bytes);
  *layout = (struct message_layout){0};
}

size_t message_layout_bytes(const struct message_layout *layout) {
  return layout->offsets ? layout->offsets[layout->n] : 0;
}

void message_write(const struct message_layout *layout, const void *const *pieces, unsigned char *message) {
  for (int p = 0; p < layout->n; p++)
    memcpy(message + layout->offsets[p], pieces[p], layout->sizes_bytes[p]);
}

void message_look(const struct message_layout *layout, const unsigned char *message, const void **pieces) {
  for (int p = 0; p < layout->n; p++)
    pieces[p] = message + layout->offsets[p];
}

/* Pinned where the backend can, so that it copies from there without staging. */
static int bytes_open(struct outbox *outbox, size_t size_bytes, const struct backend_def *backend,
                      struct err *err) {
  outbox->bytes = backend->pin ? backend_pages_new(size_bytes) : backend_memory_new(size_bytes, err);
  if (!outbox->bytes)
    return err->code ? (int)err->code
                     : err_set(err, ERR_NO_MEMORY, "what a stage sends needs %zu bytes", size_bytes);
  if (backend->pin) {
    backend->pin(outbox->bytes, size_bytes);
    outbox->unpin = backend->unpin;
  }
  return ERR_OK;
}

int outbox_open(struct outbox *outbox, const struct backend_message *message, int n_slots,
                const struct backend_def *backend, struct err *err) {
  *outbox = (struct outbox){.bytes = NULL};
  message_layout_init(&outbox->layout, message);
  return bytes_open(outbox, message_layout_bytes(&outbox->layout) * (size_t)n_slots, backend, err);
}

void outbox_close(struct outbox *outbox) {
  if (outbox->unpin)
    outbox->unpin(outbox->bytes);
  message_layout_fini(&outbox->layout);
  free(outbox->bytes);
  *outbox = (struct outbox){0};
}

static unsigned char *slot_at(const struct outbox *outbox, int slot) {
  return outbox->bytes + message_layout_bytes(&outbox->layout) * (size_t)slot;
}

void outbox_put(struct outbox *outbox, int slot, const void *const *pieces) {
  message_write(&outbox->layout, pieces, slot_at(outbox, slot));
}

void outbox_look(const struct outbox *outbox, int slot, const void **pieces) {
  message_look(&outbox->layout, slot_at(outbox, slot), pieces);
}
