/* How long tests wait for what must happen. A wait that succeeds costs nothing, so it is long: no test
   depends on how fast the machine is. */
#ifndef WEIR_TESTS_PATIENCE_H
#define WEIR_TESTS_PATIENCE_H

#include <stdlib.h>

/* WEIR_TEST_PATIENCE, or 240: as in tests/integration/harness.py. */
int patience_seconds(void);

/* The same as a call's deadline. */
int patience_ms(void);

#endif
