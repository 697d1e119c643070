/* What a process tells the service manager that started it, as systemd's units with Type=notify want it
   (sd_notify(3)): datagrams to the socket that NOTIFY_SOCKET names. */
#ifndef WEIR_COMMON_MANAGER_NOTIFY_H
#define WEIR_COMMON_MANAGER_NOTIFY_H

/* "READY=1": the process does what it is there for; "STOPPING=1"; "STATUS=...": one line for people. Several
   with line ends between them. Any thread; never blocks for long, and nothing fails: where nobody wants to
   know, nothing is sent. */
void notify_manager(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
