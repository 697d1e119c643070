/* Chrome's trace events ("Trace Event Format"), as chrome://tracing and ui.perfetto.dev read them: complete
   events ("X") on numbered rows ("tid"), whose names are metadata ("M"). Spans of one row must lie within
   each other or apart. */
#include "common/trace/trace_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/memory.h"

enum { KEPT_MAX = 99, LANES_MAX = 4096, LANES_FIRST = 100000, ESCAPED_SIZE = 6 * TRACE_NAME_SIZE };

/* Rows of one kind that all threads share; lane l is row LANES_FIRST * kind + l. */
struct lanes {
  uint64_t *busy_until_ns; /* [LANES_MAX], owned; NULL before the first span */
  int n;                   /* that have a name in the file */
};

struct trace_file {
  FILE *stream;
  char *path; /* NULL: it is in memory: */
  char *text;
  size_t size, bytes_max;
  bool is_broken; /* logged: nothing is written any more */
  uint64_t spans, dropped;
  struct lanes lanes[TRACE_DOWN + 1]; /* of each kind */
};

static const char *const lane_names[] = {[TRACE_SENDS] = "sending",
                                         [TRACE_WAITS] = "waiting for the server",
                                         [TRACE_COMPUTE] = "GPU kernels",
                                         [TRACE_UP] = "copies to GPU",
                                         [TRACE_DOWN] = "copies from GPU"};

static void keep_former(const char *path);
static void write_name(struct trace_file *file, const char *what, int row, const char *name);
static int lane_take(struct trace_file *file, const struct trace_record *span);
static const char *json_escape(const char *text, char *out);

struct trace_file *trace_file_open(const char *path, struct err *err) {
  FILE *stream;
  struct trace_file *file;
  char name[TRACE_NAME_SIZE];
  keep_former(path);
  if (!(stream = fopen(path, "we"))) {
    err_errno(err, errno, "cannot write the timeline '%s'", path);
    return NULL;
  }
  file = mem_new(sizeof *file);
  file->stream = stream;
  file->path = mem_strdup(path);
  fputs("[\n", stream);
  snprintf(name, sizeof name, "weir-worker %d", (int)getpid());
  write_name(file, "process_name", 0, name);
  return file;
}

struct trace_file *trace_file_open_memory(size_t bytes_max) {
  struct trace_file *file = mem_new(sizeof *file);
  file->bytes_max = bytes_max;
  file->stream = open_memstream(&file->text, &file->size);
  CHECK(file->stream);
  return file;
}

static void file_free(struct trace_file *file) {
  for (size_t i = 0; i < sizeof file->lanes / sizeof *file->lanes; i++)
    free(file->lanes[i].busy_until_ns);
  free(file->path);
  free(file);
}

char *trace_file_take(struct trace_file *file, size_t *size) {
  char *text;
  fclose(file->stream);
  text = file->text;
  *size = file->size;
  file_free(file);
  return text;
}

/* What a worker did before it died is wanted most when it has been started again. Links are left alone:
   one is /dev/stdout. */
static void keep_former(const char *path) {
  struct stat former;
  if (lstat(path, &former) || !S_ISREG(former.st_mode) || former.st_size == 0)
    return;
  for (int n = 1; n <= KEPT_MAX; n++) {
    char *kept = mem_printf("%s.%d", path, n);
    bool is_free = n == KEPT_MAX || access(kept, F_OK);
    if (is_free && rename(path, kept) == 0)
      log_event(LOG_INFO, "worker", "trace_kept", "file=\"%s\"", kept);
    free(kept);
    if (is_free)
      return;
  }
}

void trace_file_row(struct trace_file *file, int row, const char *name) {
  write_name(file, "thread_name", row, name);
}

/* Times are in microseconds, on the clock that all processes of a machine share. */
void trace_file_span(struct trace_file *file, int row, const struct trace_record *span) {
  char name[ESCAPED_SIZE];
  int on = span->row == TRACE_THREAD ? row : lane_take(file, span);
  uint64_t nanoseconds = span->end_ns > span->begin_ns ? span->end_ns - span->begin_ns : 0;
  if (on < 0 || file->is_broken || (!file->path && (size_t)ftell(file->stream) > file->bytes_max)) {
    file->dropped++;
    return;
  }
  file->spans++;
  fprintf(
      file->stream,
      "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"cat\":\"%s\",\"name\":\"%s\",\"ts\":%llu.%03d,\"dur\":%llu.%03d,"
      "\"args\":{\"step\":%llu",
      (int)getpid(), on, span->category, json_escape(span->name, name),
      (unsigned long long)(span->begin_ns / 1000), (int)(span->begin_ns % 1000),
      (unsigned long long)(nanoseconds / 1000), (int)(nanoseconds % 1000), (unsigned long long)span->step);
  if (span->index >= 0)
    fprintf(file->stream, ",\"index\":%lld", (long long)span->index);
  fputs("}},\n", file->stream);
}

void trace_file_flush(struct trace_file *file) {
  if (file->is_broken || (fflush(file->stream) == 0 && !ferror(file->stream)))
    return;
  file->is_broken = true;
  log_event(LOG_WARN, "worker", "trace_failed", "file=\"%s\" error=\"%s\"", file->path, strerror(errno));
}

/* The array ends with an event that says nothing new, for after it there must be no comma. */
void trace_file_close(struct trace_file *file) {
  fprintf(file->stream,
          "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":0}}\n]\n",
          (int)getpid());
  trace_file_flush(file);
  if (!file->is_broken)
    log_event(LOG_INFO, "worker", "traced", "file=\"%s\" spans=%llu dropped=%llu", file->path,
              (unsigned long long)file->spans, (unsigned long long)file->dropped);
  fclose(file->stream);
  file_free(file);
}

static void write_name(struct trace_file *file, const char *what, int row, const char *name) {
  char escaped[ESCAPED_SIZE];
  fprintf(file->stream, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}},\n",
          (int)getpid(), row, what, json_escape(name, escaped));
}

/* The row of the first lane on which nothing overlaps the span; -1: there is none. */
static int lane_take(struct trace_file *file, const struct trace_record *span) {
  struct lanes *lanes = &file->lanes[span->row];
  int lane = 0, row;
  char name[TRACE_NAME_SIZE];
  if (!lanes->busy_until_ns)
    lanes->busy_until_ns = mem_new(LANES_MAX * sizeof *lanes->busy_until_ns);
  while (lane < LANES_MAX && lanes->busy_until_ns[lane] > span->begin_ns)
    lane++;
  if (lane == LANES_MAX)
    return -1;
  lanes->busy_until_ns[lane] = span->end_ns;
  row = LANES_FIRST * (int)span->row + lane;
  if (lane == lanes->n) {
    snprintf(name, sizeof name, "%s %d", lane_names[span->row], ++lanes->n);
    trace_file_row(file, row, name);
  }
  return row;
}

/* Bytes of the UTF-8 character at text (RFC 3629); 0: it is none. */
static int utf8_length(const unsigned char *text) {
  static const struct {
    unsigned char first_least, first_most, second_least, second_most;
    int bytes;
  } forms[] = {{0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
               {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
               {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    bool is_form = text[0] >= forms[f].first_least && text[0] <= forms[f].first_most &&
                   text[1] >= forms[f].second_least && text[1] <= forms[f].second_most;
    for (int i = 2; is_form && i < forms[f].bytes; i++)
      is_form = (text[i] & 0xc0) == 0x80;
    if (is_form)
      return forms[f].bytes;
  }
  return 0;
}

/* Of JSON: what is no UTF-8 (a name from a file, or one that was cut) becomes a question mark. */
static const char *json_escape(const char *text, char *out) {
  char *to = out;
  while (*text) {
    unsigned char c = (unsigned char)*text;
    int length = utf8_length((const unsigned char *)text);
    if (length > 1) {
      memcpy(to, text, (size_t)length);
      to += length;
    } else if (length == 0)
      *to++ = '?';
    else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
      to += sprintf(to, "\\u%04x", c);
    else
      *to++ = (char)c;
    text += length > 0 ? length : 1;
  }
  *to = '\0';
  return out;
}
