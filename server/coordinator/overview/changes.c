/* Rows, and which of them have changed. */
#include "server/coordinator/overview/changes.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/message.h"

enum { GONE_KEPT = 1024, ROTATION = 617 };

struct row {
  char *key;
  uint64_t number;
  ProtobufCMessage *message;
  uint8_t *packed; /* the same */
  size_t packed_bytes;
  bool is_put, is_changed;
};

struct changes {
  uint64_t *counter;
  struct row *rows;
  int n_rows, rows_capacity;
  int at;                        /* where the next row is looked for */
  uint64_t forgotten;            /* the newest number of a row that is gone and no longer known */
  struct change gone[GONE_KEPT]; /* a ring */
  int n_gone;
  uint64_t states; /* so far */
  uint8_t *scratch;
  size_t scratch_bytes;
};

struct changes *changes_new(uint64_t *counter) {
  struct changes *changes = mem_new(sizeof *changes);
  changes->counter = counter;
  changes->forgotten = *counter; /* who saw anything before did not see it here */
  return changes;
}

static void row_fini(struct row *row) {
  free(row->key);
  free(row->packed);
  message_free(row->message);
}

void changes_free(struct changes *changes) {
  if (!changes)
    return;
  for (int i = 0; i < changes->n_rows; i++)
    row_fini(&changes->rows[i]);
  for (int i = 0; i < changes->n_gone && i < GONE_KEPT; i++)
    free(changes->gone[i].key);
  free(changes->rows);
  free(changes->scratch);
  free(changes);
}

void changes_begin(struct changes *changes) {
  changes->at = 0;
  changes->states++;
  for (int i = 0; i < changes->n_rows; i++)
    changes->rows[i].is_put = changes->rows[i].is_changed = false;
}

/* Those in between are gone, or come later. A new row comes where it was looked for. */
static struct row *find_row(struct changes *changes, const char *key) {
  int at = changes->at, i = at;
  while (i < changes->n_rows && strcmp(changes->rows[i].key, key) != 0)
    i++;
  if (i < changes->n_rows) {
    changes->at = i + 1;
    return &changes->rows[i];
  }
  array_reserve((void **)&changes->rows, &changes->rows_capacity, changes->n_rows, sizeof *changes->rows);
  memmove(changes->rows + at + 1, changes->rows + at, (size_t)(changes->n_rows - at) * sizeof *changes->rows);
  changes->rows[at] = (struct row){.key = mem_strdup(key), .is_changed = true};
  changes->n_rows++;
  changes->at = at + 1;
  return &changes->rows[at];
}

void changes_put(struct changes *changes, const char *key, const ProtobufCMessage *message) {
  struct row *row = find_row(changes, key);
  size_t bytes = protobuf_c_message_get_packed_size(message);
  row->is_put = true;
  if (bytes > changes->scratch_bytes) {
    changes->scratch_bytes = 2 * bytes;
    changes->scratch = mem_resize(changes->scratch, changes->scratch_bytes);
  }
  protobuf_c_message_pack(message, changes->scratch);
  if (row->message && row->packed_bytes == bytes && memcmp(row->packed, changes->scratch, bytes) == 0)
    return;
  row->is_changed = true;
  message_free(row->message);
  row->message = message_copy(message);
  row->packed = mem_resize(row->packed, bytes + 1);
  row->packed_bytes = bytes;
  memcpy(row->packed, changes->scratch, bytes);
}

static void forget_row(struct changes *changes, struct row *row) {
  struct change *gone = &changes->gone[changes->n_gone % GONE_KEPT];
  if (changes->n_gone >= GONE_KEPT) {
    changes->forgotten = gone->number;
    free(gone->key);
  }
  *gone = (struct change){.number = ++*changes->counter, .key = row->key};
  changes->n_gone++;
  row->key = NULL;
  row_fini(row);
}

/* Who takes few rows at a time gets those with the lowest numbers. Where all change all the time, numbers
   begin at another row each time, so that each row is among them now and then. */
static void number_rows(struct changes *changes) {
  int first = changes->n_rows ? (int)(changes->states * ROTATION % (uint64_t)changes->n_rows) : 0;
  for (int i = 0; i < changes->n_rows; i++) {
    struct row *row = &changes->rows[(first + i) % changes->n_rows];
    if (row->is_changed)
      row->number = ++*changes->counter;
  }
}

void changes_end(struct changes *changes) {
  int kept = 0;
  for (int i = 0; i < changes->n_rows; i++)
    if (changes->rows[i].is_put)
      changes->rows[kept++] = changes->rows[i];
    else
      forget_row(changes, &changes->rows[i]);
  changes->n_rows = kept;
  number_rows(changes);
}

bool changes_reach(const struct changes *changes, uint64_t since) {
  return since >= changes->forgotten;
}

int changes_max(const struct changes *changes) {
  return changes->n_rows + GONE_KEPT;
}

int changes_list(const struct changes *changes, uint64_t since, struct change *list) {
  int n = 0, n_gone = changes->n_gone < GONE_KEPT ? changes->n_gone : GONE_KEPT;
  for (int i = 0; i < changes->n_rows; i++) {
    const struct row *row = &changes->rows[i];
    if (row->number > since)
      list[n++] = (struct change){row->number, row->key, row->message};
  }
  for (int i = 0; i < n_gone && since > 0; i++)
    if (changes->gone[i].number > since)
      list[n++] = changes->gone[i];
  return n;
}
