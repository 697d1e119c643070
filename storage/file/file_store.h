/* The directory of the file: store and durable names in it, for the files that implement the store. */
#ifndef WEIR_STORAGE_FILE_FILE_STORE_H
#define WEIR_STORAGE_FILE_FILE_STORE_H

#include <pthread.h>
#include <sys/types.h>

#include "storage/store.h"

/* A folder below the directory whose own name we know to be durable. */
struct file_synced {
  char *path;
  ino_t inode;
};

struct file_store {
  struct store base;
  char *dir; /* absolute, without a slash at the end */
  char *temporary;
  pthread_mutex_t lock; /* what follows */
  struct file_synced *synced;
  int n_synced, synced_capacity;
};

/* Makes the directory, or what is missing of it. */
int file_store_make(const struct file_store *store, struct err *err);

/* Makes durable what was renamed to path, and the folders on the way there. That a folder exists is not
   enough: the process that made it may have died before it synced the folder's name. */
int file_store_sync(struct file_store *store, const char *path, struct err *err);

/* Whether a file store is in this directory, whose processes have written records. */
bool file_store_is_at(const char *directory);

/* Of struct store_def (storage/file/file_records.c). */
int file_write_record(struct store *base, const struct store_record *record, struct err *err);
int file_get_record(struct store *base, const char *name, void **data, size_t *size, struct err *err);
int file_list_records(struct store *base, const char *prefix, struct store_names *names, struct err *err);
int file_sweep(struct store *base, int age_s, struct err *err);

#endif
