/* How long a test waits for what must happen before it fails. A wait that succeeds ends at once, so the
   time is long: no test depends on how fast the machine is. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_PATIENCE_H
#define WEIR_TESTS_SUPPORT_COMMON_PATIENCE_H

/* The environment's WEIR_TEST_PATIENCE, or 240, as in tests/integration/harness.py. */
int patience_seconds(void);

/* The same in milliseconds, for the deadlines of calls. */
int patience_ms(void);

/* The limit of a wait that only what is tested may end: a test whose wait is ended by its limit never ends.
 */
enum { WEEK_MS = 7 * 24 * 3600 * 1000 };

/* Around a call that has no limit, or WEEK_MS, and must return: the program dies of SIGALRM where it does not
   return in patience_seconds(). */
void patience_begin(void);
void patience_end(void);

#endif
