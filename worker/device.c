/* Choosing devices. */
#include "worker/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static bool text_names_gpus(const char *text, int *indices, int *n, struct err *err);
static int choose_gpus(struct device_choice *choice, bool is_each, struct err *err);
static int check_indices(const struct device_choice *choice, int n_devices, struct err *err);
static void choice_name(struct device_choice *choice, const struct plugin_device *devices);

int device_choose(const char *text, const struct backend_def *cpu, struct device_choice *out,
                  struct err *err) {
  bool is_auto = strcmp(text, "auto") == 0;
  *out = (struct device_choice){.backend = cpu, .name = "cpu"};
  if (strcmp(text, "cpu") == 0)
    return ERR_OK;
  if (!is_auto && !text_names_gpus(text, out->indices, &out->n, err))
    return err->code;
  if (choose_gpus(out, is_auto, err) && is_auto) {
    log_event(LOG_INFO, "worker", "device", "chosen=cpu why=\"%s\"", err->text);
    *err = ERR_NONE;
    *out = (struct device_choice){.backend = cpu, .name = "cpu"};
  }
  return err->code;
}

/* "cuda" or "cuda:0,1". */
static bool text_names_gpus(const char *text, int *indices, int *n, struct err *err) {
  static const char prefix[] = PLUGIN_BACKEND ":";
  const char *at = text + strlen(prefix);
  *n = 0;
  if (strcmp(text, PLUGIN_BACKEND) == 0) {
    indices[(*n)++] = 0;
    return true;
  }
  if (strncmp(text, prefix, strlen(prefix)) != 0)
    goto wrong;
  do {
    int length = 0;
    if (*n == PLUGIN_DEVICES_MAX || sscanf(at, "%3[0-9]%n", (char[4]){0}, &length) != 1)
      goto wrong;
    indices[(*n)++] = atoi(at);
    at += length;
  } while (*at++ == ',');
  if (at[-1] == '\0')
    return true;
wrong:
  err_set(err, ERR_INVALID, "a device is cpu, cuda, cuda:N, cuda:N,N... or auto, not '%s'", text);
  return false;
}

static int choose_gpus(struct device_choice *choice, bool is_each, struct err *err) {
  struct plugin_device devices[PLUGIN_DEVICES_MAX];
  const struct plugin *plugin = plugin_load(err);
  int n = plugin ? plugin->devices(devices, PLUGIN_DEVICES_MAX, err) : -1;
  if (n < 0)
    return err->code;
  n = n < PLUGIN_DEVICES_MAX ? n : PLUGIN_DEVICES_MAX;
  for (int i = 0; is_each && i < n; i++)
    choice->indices[choice->n++] = i;
  if (check_indices(choice, n, err))
    return err->code;
  choice->backend = plugin->backend;
  for (int i = 0; i < choice->n; i++)
    choice->memory_bytes[i] = devices[choice->indices[i]].memory_bytes;
  choice_name(choice, devices);
  return ERR_OK;
}

/* Those that there are, each once. */
static int check_indices(const struct device_choice *choice, int n_devices, struct err *err) {
  for (int i = 0; i < choice->n; i++) {
    int index = choice->indices[i];
    for (int j = 0; j < i; j++)
      if (choice->indices[j] == index)
        return err_set(err, ERR_INVALID, "GPU %d is named twice", index);
    if (index < n_devices)
      continue;
    err_set(err, ERR_INVALID, "there is no GPU %d: this machine has %d GPU%s: 0", index, n_devices,
            n_devices == 1 ? "" : "s");
    if (n_devices == 2)
      err_append(err, " and 1");
    if (n_devices > 2)
      err_append(err, " to %d", n_devices - 1);
    return err->code;
  }
  return ERR_OK;
}

static void text_append(char *text, size_t size, const char *more) {
  strncat(text, more, size - 1 - strlen(text));
}

/* Whether GPU i of the choice is of the kind of one before it. */
static bool is_named(const struct device_choice *choice, const struct plugin_device *devices, int i) {
  for (int j = 0; j < i; j++)
    if (strcmp(devices[choice->indices[j]].name, devices[choice->indices[i]].name) == 0)
      return true;
  return false;
}

static void choice_name(struct device_choice *choice, const struct plugin_device *devices) {
  snprintf(choice->name, sizeof choice->name, "%s", PLUGIN_BACKEND);
  for (int i = 0; i < choice->n; i++) {
    char number[16];
    snprintf(number, sizeof number, "%c%d", i == 0 ? ':' : ',', choice->indices[i]);
    text_append(choice->name, sizeof choice->name, number);
    if (is_named(choice, devices, i))
      continue;
    text_append(choice->kind, sizeof choice->kind, i > 0 ? ", " : "");
    text_append(choice->kind, sizeof choice->kind, devices[choice->indices[i]].name);
  }
}
