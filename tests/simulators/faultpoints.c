/* Counts the calls by which a process changes the disk, and lets one of them fail.
 *
 * A shared object for LD_PRELOAD, built and controlled by faultpoints.py. Before it is armed, every call succeeds. Then
 * the calls below are numbered from 1, and each writes one line to the log. The mode decides the effect of call `at`:
 *
 *   record   all calls succeed, and only the log is of interest
 *   before   the process is killed (SIGKILL) instead of the call
 *   after    the process is killed after the call
 *   torn     a write writes its first half, then the process is killed
 *   once     the call fails with `error`, and all other calls succeed
 *   full     this call and all later calls that need room on the disk fail with `error`
 *   broken   this call and all later calls fail with `error`
 *
 * Only the armed process is counted, not its children. Starting a child counts as a call. Reads do not count, nor do
 * writes to standard output, a pipe, a socket or a device. tests/hostile/test_crash_matrix.py compares the log with the
 * output of strace, to detect calls that the C library makes by another way.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { RECORD, BEFORE, AFTER, TORN, ONCE, FULL, BROKEN };
enum need { NO_ROOM, ROOM }; /* whether a full disk rejects the call */

static pid_t armed_process;
static enum mode armed_mode;
static long armed_at, count;
static int armed_error, log_descriptor = -1;

void faultpoints_arm(int mode, long at, int error, int descriptor)
{
	armed_mode = mode;
	armed_at = at;
	armed_error = error;
	log_descriptor = descriptor;
	count = 0;
	armed_process = getpid();
}

void faultpoints_disarm(void)
{
	armed_process = 0;
}

/* Records a whole process from its start. */
__attribute__((constructor)) static void arm_by_environment(void)
{
	const char *path = getenv("FAULTPOINTS_RECORD");

	if (path)
		faultpoints_arm(RECORD, 0, 0, (int)syscall(SYS_openat, AT_FDCWD, path,
			O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

static bool armed(void)
{
	return armed_process && armed_process == getpid();
}

static void die(void)
{
	kill(armed_process, SIGKILL);
}

static void note(const char *call, const char *path, enum need need)
{
	char line[4400];
	int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", call, need == ROOM ? "room" : "-", path);

	if (length >= (int)sizeof line)
		length = sizeof line - 1;
	/* By number, because write() itself is counted. */
	syscall(SYS_write, log_descriptor, line, (size_t)length);
}

/* Counts a call. Returns true and sets errno if the call must fail. */
static bool refused(const char *call, const char *path, enum need need)
{
	if (!armed())
		return false;
	count++;
	note(call, path, need);
	if (armed_mode == BEFORE && count == armed_at)
		die();
	if ((armed_mode == ONCE && count == armed_at) || (armed_mode == FULL && count >= armed_at && need == ROOM) ||
	    (armed_mode == BROKEN && count >= armed_at)) {
		errno = armed_error;
		return true;
	}
	return false;
}

static void done(void)
{
	if (armed() && armed_mode == AFTER && count == armed_at)
		die();
}

static const char *path_of(int descriptor)
{
	static char path[4096];
	char link[64];
	ssize_t length;

	snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
	length = readlink(link, path, sizeof path - 1);
	path[length < 0 ? 0 : length] = 0;
	return path;
}

static bool on_disk(int descriptor)
{
	int kept = errno;
	struct stat found;
	bool is = descriptor > 2 && fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode);

	errno = kept;
	return is;
}

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* CALL(returns, name, (parameters), (arguments), its path, its need) */
#define CALL(returns, name, parameters, arguments, path, need) \
	returns name parameters                                \
	{                                                      \
		returns result;                                \
		if (refused(#name, path, need))                \
			return -1;                             \
		result = REAL(name) arguments;                 \
		done();                                        \
		return result;                                 \
	}

/* A call that changes the disk only with some descriptors. */
#define CALL_ON_DISK(returns, name, parameters, arguments, descriptor, need) \
	returns name parameters                                              \
	{                                                                    \
		returns result;                                              \
		if (!on_disk(descriptor))                                    \
			return REAL(name) arguments;                         \
		if (refused(#name, path_of(descriptor), need))               \
			return -1;                                           \
		result = REAL(name) arguments;                               \
		done();                                                      \
		return result;                                               \
	}

/* Names */
CALL(int, rename, (const char *from, const char *to), (from, to), to, ROOM)
CALL(int, renameat, (int d1, const char *from, int d2, const char *to), (d1, from, d2, to), to, ROOM)
CALL(int, renameat2, (int d1, const char *from, int d2, const char *to, unsigned flags), (d1, from, d2, to, flags), to, ROOM)
CALL(int, link, (const char *from, const char *to), (from, to), to, ROOM)
CALL(int, linkat, (int d1, const char *from, int d2, const char *to, int flags), (d1, from, d2, to, flags), to, ROOM)
CALL(int, symlink, (const char *target, const char *path), (target, path), path, ROOM)
CALL(int, symlinkat, (const char *target, int d, const char *path), (target, d, path), path, ROOM)
CALL(int, unlink, (const char *path), (path), path, NO_ROOM)
CALL(int, unlinkat, (int d, const char *path, int flags), (d, path, flags), path, NO_ROOM)
CALL(int, remove, (const char *path), (path), path, NO_ROOM)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), path, ROOM)
CALL(int, mkdirat, (int d, const char *path, mode_t mode), (d, path, mode), path, ROOM)
CALL(int, rmdir, (const char *path), (path), path, NO_ROOM)
CALL(int, mkfifo, (const char *path, mode_t mode), (path, mode), path, ROOM)
CALL(int, mkfifoat, (int d, const char *path, mode_t mode), (d, path, mode), path, ROOM)
CALL(int, mknod, (const char *path, mode_t mode, dev_t dev), (path, mode, dev), path, ROOM)
CALL(int, mknodat, (int d, const char *path, mode_t mode, dev_t dev), (d, path, mode, dev), path, ROOM)

/* Attributes */
CALL(int, chmod, (const char *path, mode_t mode), (path, mode), path, NO_ROOM)
CALL(int, fchmod, (int d, mode_t mode), (d, mode), path_of(d), NO_ROOM)
CALL(int, fchmodat, (int d, const char *path, mode_t mode, int flags), (d, path, mode, flags), path, NO_ROOM)
CALL(int, chown, (const char *path, uid_t uid, gid_t gid), (path, uid, gid), path, NO_ROOM)
CALL(int, lchown, (const char *path, uid_t uid, gid_t gid), (path, uid, gid), path, NO_ROOM)
CALL(int, fchown, (int d, uid_t uid, gid_t gid), (d, uid, gid), path_of(d), NO_ROOM)
CALL(int, fchownat, (int d, const char *path, uid_t uid, gid_t gid, int flags), (d, path, uid, gid, flags), path, NO_ROOM)
CALL(int, utimensat, (int d, const char *path, const struct timespec times[2], int flags), (d, path, times, flags), path, NO_ROOM)
CALL(int, futimens, (int d, const struct timespec times[2]), (d, times), path_of(d), NO_ROOM)
CALL(int, setxattr, (const char *path, const char *name, const void *value, size_t size, int flags), (path, name, value, size, flags), path, ROOM)
CALL(int, lsetxattr, (const char *path, const char *name, const void *value, size_t size, int flags), (path, name, value, size, flags), path, ROOM)
CALL(int, fsetxattr, (int d, const char *name, const void *value, size_t size, int flags), (d, name, value, size, flags), path_of(d), ROOM)
CALL(int, removexattr, (const char *path, const char *name), (path, name), path, NO_ROOM)
CALL(int, lremovexattr, (const char *path, const char *name), (path, name), path, NO_ROOM)
CALL(int, fremovexattr, (int d, const char *name), (d, name), path_of(d), NO_ROOM)

/* Contents */
CALL(int, truncate, (const char *path, off_t length), (path, length), path, ROOM)
CALL(int, truncate64, (const char *path, off64_t length), (path, length), path, ROOM)
CALL(int, ftruncate, (int d, off_t length), (d, length), path_of(d), ROOM)
CALL(int, ftruncate64, (int d, off64_t length), (d, length), path_of(d), ROOM)
CALL(int, fallocate, (int d, int mode, off_t offset, off_t length), (d, mode, offset, length), path_of(d), ROOM)
CALL(int, fallocate64, (int d, int mode, off64_t offset, off64_t length), (d, mode, offset, length), path_of(d), ROOM)
CALL_ON_DISK(ssize_t, pwrite, (int d, const void *data, size_t size, off_t offset), (d, data, size, offset), d, ROOM)
CALL_ON_DISK(ssize_t, pwrite64, (int d, const void *data, size_t size, off64_t offset), (d, data, size, offset), d, ROOM)
CALL_ON_DISK(ssize_t, writev, (int d, const struct iovec *pieces, int n), (d, pieces, n), d, ROOM)
CALL_ON_DISK(ssize_t, pwritev, (int d, const struct iovec *pieces, int n, off_t offset), (d, pieces, n, offset), d, ROOM)
CALL_ON_DISK(ssize_t, pwritev64, (int d, const struct iovec *pieces, int n, off64_t offset), (d, pieces, n, offset), d, ROOM)
CALL_ON_DISK(ssize_t, sendfile, (int d, int from, off_t *offset, size_t size), (d, from, offset, size), d, ROOM)
CALL_ON_DISK(ssize_t, sendfile64, (int d, int from, off64_t *offset, size_t size), (d, from, offset, size), d, ROOM)
CALL_ON_DISK(ssize_t, copy_file_range, (int from, off64_t *o1, int d, off64_t *o2, size_t size, unsigned flags), (from, o1, d, o2, size, flags), d, ROOM)
CALL_ON_DISK(ssize_t, splice, (int from, off64_t *o1, int d, off64_t *o2, size_t size, unsigned flags), (from, o1, d, o2, size, flags), d, ROOM)

ssize_t write(int descriptor, const void *data, size_t size)
{
	ssize_t result;

	if (!on_disk(descriptor))
		return REAL(write)(descriptor, data, size);
	if (refused("write", path_of(descriptor), ROOM))
		return -1;
	if (armed() && armed_mode == TORN && count == armed_at) {
		REAL(write)(descriptor, data, size / 2);
		die();
	}
	result = REAL(write)(descriptor, data, size);
	done();
	return result;
}

/* Durability: a full disk may cause an error only here. */
CALL(int, fsync, (int d), (d), path_of(d), ROOM)
CALL(int, fdatasync, (int d), (d), path_of(d), ROOM)
CALL(int, syncfs, (int d), (d), path_of(d), ROOM)

/* Opening counts if it may create or truncate a file. */
#define CHANGES(flags) ((flags) & (O_CREAT | O_TRUNC) || ((flags) & O_TMPFILE) == O_TMPFILE)

static mode_t mode_argument(int flags, va_list rest)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name, parameters, arguments) \
	int name parameters                              \
	{                                                \
		va_list rest;                            \
		mode_t mode;                             \
		int result;                              \
		va_start(rest, flags);                   \
		mode = mode_argument(flags, rest);       \
		va_end(rest);                            \
		if (!CHANGES(flags))                     \
			return REAL(name) arguments;     \
		if (refused(#name, path, ROOM))          \
			return -1;                       \
		result = REAL(name) arguments;           \
		done();                                  \
		return result;                           \
	}

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int d, const char *path, int flags, ...), (d, path, flags, mode))
OPEN(openat64, (int d, const char *path, int flags, ...), (d, path, flags, mode))
CALL(int, creat, (const char *path, mode_t mode), (path, mode), path, ROOM)
CALL(int, creat64, (const char *path, mode_t mode), (path, mode), path, ROOM)

/* Commands. POSIX allows vfork() to be fork(), and a wrapper that returns cannot call vfork(). */
CALL(pid_t, fork, (void), (), "", NO_ROOM)

pid_t vfork(void)
{
	return fork();
}

/* Starts a program without a copy of this process. Returns the error number instead of -1. */
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	int result;

	if (refused("fork", "", NO_ROOM))
		return errno;
	result = REAL(posix_spawn)(pid, path, actions, attributes, arguments, environment);
	done();
	return result;
}
