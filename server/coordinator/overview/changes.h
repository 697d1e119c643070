/* A table of rows, each with a number that grows when the row changes: who has seen the rows up to a number
   asks for those behind it. Several tables may take their numbers from one counter. */
#ifndef WEIR_SERVER_COORDINATOR_OVERVIEW_CHANGES_H
#define WEIR_SERVER_COORDINATOR_OVERVIEW_CHANGES_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

struct changes;

/* A row that has changed, or is gone. */
struct change {
  uint64_t number;
  char *key;
  ProtobufCMessage *message; /* NULL: it is gone */
};

/* counter: the last number that was given; outlives the table. */
struct changes *changes_new(uint64_t *counter);
void changes_free(struct changes *changes); /* NULL is ignored */

/* A new state of the table: begin, put each row once, end. What is not put is gone. Rows keep their order
   from one state to the next, but for new ones. message: copied if it is not as it was. */
void changes_begin(struct changes *changes);
void changes_put(struct changes *changes, const char *key, const ProtobufCMessage *message);
void changes_end(struct changes *changes);

/* Whether what has changed since that number is still known; else the client begins with all rows. */
bool changes_reach(const struct changes *changes, uint64_t since);
int changes_max(const struct changes *changes); /* room for changes_list */
/* The changes behind `since`, in no order; 0: all rows. They are good until the next changes_begin. Returns
   how many there are. */
int changes_list(const struct changes *changes, uint64_t since, struct change *list);

#endif
