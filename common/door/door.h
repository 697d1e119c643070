/* The door: connections that others open to this process, before gRPC has them and while it reads them.
   gRPC 1.51 has flaws that its settings do not reach, so our programs define functions that it calls:
   accept4, close, recvmsg and SSL_read. Each does what the one of the same name does, and:
   - accept4 hides failures after which gRPC would never accept again, EMFILE above all: whoever waits then is
     accepted by a descriptor that is kept for that, and hung up on. It hangs up on connections beyond the
     bounds of visitors.h.
   - recvmsg and SSL_read break a connection whose headers do not end (header_watch.h).
   What is refused leaves a line `connection_refused` or `headers_refused` in the log, with the peer; one line
   a second, with how many others there were since. A program has the door if it calls door_open, as every
   server of ours does. */
#ifndef WEIR_COMMON_DOOR_DOOR_H
#define WEIR_COMMON_DOOR_DOOR_H

/* Raises the soft limit of descriptors to the hard one, and keeps one in reserve. Before the process listens;
 * later calls do nothing. */
void door_open(void);

#endif
