/* walshadow filter: the filtered form of WAL segments, offline. */
#pragma once

int cmd_filter(int argc, char **argv); /* argv[0] is the verb; returns the exit code */
