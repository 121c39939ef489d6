/* walshadow wal: what is in WAL segments. */
#pragma once

int cmd_wal(int argc, char **argv); /* argv[0] is the verb; returns the exit code */
