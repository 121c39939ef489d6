/* Named fault points, compiled out of release builds. WALSHADOW_TEST_FAULT=name[:n] kills the
 * process with SIGKILL the n-th time (default first) it passes the point of that name; with
 * WALSHADOW_TEST_FAULT=@FILE that is read from FILE at each point, so that a test can choose the
 * point while the process runs. */
#pragma once

#ifdef WALSHADOW_FAULT_POINTS
void fault_point(const char *name);
#define FAULT_POINT(name) fault_point(name)
#else
#define FAULT_POINT(name) ((void)0)
#endif
