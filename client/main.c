/* weir: the client. */
#include "client/command.h"

int main(int argc, char **argv) {
  return command_main(argc, argv);
}
