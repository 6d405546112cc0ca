/* Fail, or die, at the n-th system call on the database of a file storage.
 *
 * Preloaded into a test program, which calls shim_arm(n, action) when its stage is set. Only calls
 * on files whose name holds "toril.db" count. Actions: 0 count only, 1 die, or an errno to fail
 * with. shim_log() tells the calls made since, one letter each: w write, t truncate, s sync; in
 * capitals where they hit the write-ahead log.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int armed, left, action;
static char made[4096];
static int made_count;

void shim_arm(int n, int what) { armed = 1; left = n; action = what; made_count = 0; made[0] = 0; }
void shim_disarm(void) { armed = 0; }
const char *shim_log(void) { return made; }

static int refuse(int fd, char kind) {
    if (!armed) return 0;
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    if (!strstr(path, "toril.db")) return 0;
    int wal = strstr(path, "-wal") != NULL;
    if (made_count < (int)sizeof made - 1) {
        made[made_count++] = wal ? kind - 32 : kind;
        made[made_count] = 0;
    }
    if (--left != 0) return 0;
    if (action == 1) kill(getpid(), SIGKILL);
    if (action > 1) { errno = action; return 1; }
    return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *b, size_t n) { return refuse(fd, 'w') ? -1 : REAL(write)(fd, b, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { return refuse(fd, 'w') ? -1 : REAL(pwrite)(fd, b, n, o); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { return refuse(fd, 'w') ? -1 : REAL(pwrite64)(fd, b, n, o); }
int ftruncate(int fd, off_t n) { return refuse(fd, 't') ? -1 : REAL(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) { return refuse(fd, 't') ? -1 : REAL(ftruncate64)(fd, n); }
int fsync(int fd) { return refuse(fd, 's') ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return refuse(fd, 's') ? -1 : REAL(fdatasync)(fd); }
