/* Replies that no Redis gives. */
#ifndef WEIR_TESTS_REDIS_NONSENSE_H
#define WEIR_TESTS_REDIS_NONSENSE_H

static const char *const redis_nonsense[] = {
    "garbage\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "\r\n",
    "+OK\n",
    "\x15\x03\x03\x00\x02\x02\x46",
    "$999999999999\r\nx",
    "$9223372036854775807\r\nx",
    "$99999999999999999999999999\r\nx",
    "$18446744073709551615\r\nx",
    "$-2\r\n",
    "$\r\n",
    "$+5\r\nhello\r\n",
    "$ 5\r\nhello\r\n",
    "$0x5\r\nhello\r\n",
    "$5\r\nhelloworld\r\n",
    "$5\r\nhello\r\r\n",
    "$0\r\nx\r\n",
    "*2147483647\r\n",
    "*4294967296\r\n",
    "*1000000000000000000\r\n",
    "*-2\r\n",
    "*-5\r\n",
    "*9223372036854775807\r\n",
    "*18446744073709551616\r\n",
    "*1\r\n$9223372036854775807\r\nx",
    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    ":\r\n",
    ":-\r\n",
    ":12a\r\n",
    ":99999999999999999999\r\n",
    "*3\r\n:1\r\n%1\r\n",
};
enum { REDIS_NONSENSE = sizeof redis_nonsense / sizeof *redis_nonsense };

#endif
