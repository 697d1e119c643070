/* Ports for what listens, ends and listens again: that no other program is given meanwhile. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_OWN_PORT_H
#define WEIR_TESTS_SUPPORT_COMMON_OWN_PORT_H

/* A free port of 127.0.0.1, below those that the system gives to whoever asks for any, and of this process
   alone among the tests, in C and in Python (reserve_port in tests/integration/harness.py), while it lives.
 */
int own_port(void);

#endif
