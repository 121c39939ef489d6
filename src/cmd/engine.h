#pragma once

/* `walshadow engine …`; argv starts at the verb. Does not return once the engine has started. */
int cmd_engine(int argc, char **argv);
