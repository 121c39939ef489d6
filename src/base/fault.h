/* Named fault points, compiled out of release builds. WALSHADOW_TEST_FAULT=name[:n] kills the
 * process with SIGKILL the n-th time (default first) it passes the point of that name. */
#pragma once

#ifdef WALSHADOW_FAULT_POINTS
void fault_point(const char *name);
#define FAULT_POINT(name) fault_point(name)
#else
#define FAULT_POINT(name) ((void)0)
#endif
