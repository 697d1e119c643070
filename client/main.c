/* weir: the client. */
#include "client/command.h"
#include "common/agree/float_setting.h"
#include "common/manager/standard_files.h"

STANDARD_FILES_OPEN_FIRST;

int main(int argc, char **argv) {
  float_setting_apply();
  return command_main(argc, argv);
}
