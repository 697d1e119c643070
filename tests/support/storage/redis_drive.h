/* A store that lines on stdin drive, for tests/integration/test_store.py; each line gets one line back,
   "ok ..." or the error's name and text:

     put SEED SIZE N                 writes N blocks of SIZE bytes; says how many bytes were written
     check SEED SIZE N               reads them back; says how many are there
     drop SEED SIZE N                deletes them
     crowd SEED SIZE N               eight threads put N blocks and a record each, all at once
     write NAME TEXT [GUARD TEXT|-]  a record, on condition that another holds the text or does not exist
     read NAME                       says the record's text
     delete NAME                     a record
     list PREFIX                     says the names of records
     blocks                          says how many there are, and their bytes */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_REDIS_DRIVE_H
#define WEIR_TESTS_SUPPORT_STORAGE_REDIS_DRIVE_H

#include <stddef.h>

/* Random bytes that follow from the seed, at least `size` of them; freed by the caller. Block i of a line
   above has seed SEED + i. */
char *drive_bytes(unsigned long seed, size_t size);

/* Opens the store, answers for that like for a line, and obeys lines until stdin ends. Returns 0, the
   program's exit status. */
int drive_store(const char *url);

#endif
