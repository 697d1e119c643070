/* Replies that no Redis gives, for every reader of replies to refuse. */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_REDIS_NONSENSE_H
#define WEIR_TESTS_SUPPORT_STORAGE_REDIS_NONSENSE_H

enum { REDIS_NONSENSE = 31 };
extern const char *const redis_nonsense[REDIS_NONSENSE];

#endif
