/* weir: the client. */
#include "client/command.h"
#include "common/agree/float_setting.h"

int main(int argc, char **argv) {
  float_setting_apply();
  return command_main(argc, argv);
}
