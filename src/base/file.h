/* Files: every durable file is written aside, fsynced, renamed, its directory fsynced. */
#pragma once
#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

enum status file_write_atomic(const char *path, const void *data, size_t len, mode_t mode,
                              struct error *err) CHECKED;
/* A file that is complete and synced takes the place of `to`; on failure it is removed. ERR_RETRY.
 */
enum status file_rename_durable(const char *from, const char *to, struct error *err) CHECKED;
/* Appends the file to ret; ERR_DATA above max_bytes; a missing file is an error with ENOENT. */
enum status file_read_all(const char *path, size_t max_bytes, struct buf *ret,
                          struct error *err) CHECKED;
bool file_exists(const char *path);
enum status file_mkdir_p(const char *path, mode_t mode, struct error *err) CHECKED;
enum status file_fsync_dir(const char *path, struct error *err) CHECKED;
/* Syncs every file and directory below path, and path, but nothing else of its file system, which
 * may have much to write. */
enum status file_sync_tree(const char *path, struct error *err) CHECKED;
/* Removes what is below path, and path itself when `self`; a missing path is fine. */
enum status file_remove_tree(const char *path, bool self, struct error *err) CHECKED;

enum status file_pwrite_all(int fd, const void *data, size_t len, off_t at, const char *name,
                            struct error *err) CHECKED;
enum status file_write_all(int fd, const void *data, size_t len, const char *name,
                           struct error *err) CHECKED;
/* Opens an empty file for reading and writing and takes its name away: close gives the space back,
 * also after a crash. *ret_fd is the caller's. ERR_RETRY names the path. */
enum status file_create_unnamed(const char *path, int *ret_fd, struct error *err) CHECKED;
/* Exactly len bytes, else ERR_DATA ("short read"). */
enum status file_pread_all(int fd, void *data, size_t len, off_t at, const char *name,
                           struct error *err) CHECKED;
