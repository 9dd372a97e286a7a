// Preloaded into a command, it lets one file operation under a folder fail, or kills the process there.
//
// SOAK_ROOT     the folder
// SOAK_COUNTER  a file of 8 bytes that counts the operations, in all processes of the command
// SOAK_AT       the number of the operation to break, from 1; 0 breaks none
// SOAK_ERRNO    the error that it gets; 0 kills the process instead (a write is then done by half)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
enum { FILES = 4096 };

static char root[4096];
static size_t root_length;
static uint64_t* counter;
static uint64_t at;
static int error;
static char ours[FILES];  // file descriptors open for writing under the folder

__attribute__((constructor)) static void start(void) {
  const char *folder = getenv("SOAK_ROOT"), *file = getenv("SOAK_COUNTER");
  if (folder == NULL || file == NULL) return;
  snprintf(root, sizeof root, "%s/", folder);
  const int opened = REAL(open)(file, O_RDWR);
  void* mapped = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (opened < 0 || mapped == MAP_FAILED) abort();
  REAL(close)(opened);
  at = strtoull(getenv("SOAK_AT"), NULL, 10);
  error = atoi(getenv("SOAK_ERRNO"));
  counter = mapped;
  root_length = strlen(root);
}

static int is_below(int folder, const char* path) {
  if (counter == NULL) return 0;
  char whole[2 * sizeof root] = "";
  if (path[0] != '/') {
    char link[64];
    snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
    const ssize_t length = readlink(link, whole, sizeof root - 2);
    if (length < 0) return 0;
    strcpy(whole + length, "/");
  }
  strncat(whole, path, sizeof root - 1);
  return strncmp(whole, root, root_length) == 0;
}

// Counts an operation; whether it is to fail. `half` does half of a write.
static int breaks(void (*half)(void*), void* of) {
  if (__atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST) != at) return 0;
  if (error == 0) {
    if (half != NULL) half(of);
    kill(getpid(), SIGKILL);
  }
  errno = error;
  return 1;
}

static int open_at(int folder, const char* path, int flags, mode_t mode) {
  const int writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  const int counted = writes && is_below(folder, path);
  if (counted && breaks(NULL, NULL)) return -1;
  const int opened = REAL(openat)(folder, path, flags, mode);
  if (opened >= 0 && opened < FILES) ours[opened] = counted;
  return opened;
}

#define MODE(last)                                       \
  mode_t mode = 0;                                       \
  if (last & (O_CREAT | O_TMPFILE)) {                    \
    va_list more;                                        \
    va_start(more, last);                                \
    mode = va_arg(more, mode_t);                         \
    va_end(more);                                        \
  }

int open(const char* path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char* path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }
int openat64(int folder, const char* path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }

int close(int file) {
  if (file >= 0 && file < FILES) ours[file] = 0;
  return REAL(close)(file);
}

struct writing { int file; const void* data; size_t length; };

static void write_half(void* of) {
  const struct writing* one = of;
  if (REAL(write)(one->file, one->data, one->length / 2) < 0) abort();
}

ssize_t write(int file, const void* data, size_t length) {
  struct writing one = {file, data, length};
  if (file >= 0 && file < FILES && ours[file] && breaks(write_half, &one)) return -1;
  return REAL(write)(file, data, length);
}

int fsync(int file) {
  if (file >= 0 && file < FILES && ours[file] && breaks(NULL, NULL)) return -1;
  return REAL(fsync)(file);
}

int ftruncate(int file, off_t length) {
  if (file >= 0 && file < FILES && ours[file] && breaks(NULL, NULL)) return -1;
  return REAL(ftruncate)(file, length);
}

int rename(const char* from, const char* to) {
  if (is_below(AT_FDCWD, to) && breaks(NULL, NULL)) return -1;
  return REAL(rename)(from, to);
}

int renameat(int folder, const char* from, int other, const char* to) {
  if (is_below(other, to) && breaks(NULL, NULL)) return -1;
  return REAL(renameat)(folder, from, other, to);
}

int link(const char* from, const char* to) {
  if (is_below(AT_FDCWD, to) && breaks(NULL, NULL)) return -1;
  return REAL(link)(from, to);
}

int linkat(int folder, const char* from, int other, const char* to, int flags) {
  if (is_below(other, to) && breaks(NULL, NULL)) return -1;
  return REAL(linkat)(folder, from, other, to, flags);
}

int symlink(const char* target, const char* path) {
  if (is_below(AT_FDCWD, path) && breaks(NULL, NULL)) return -1;
  return REAL(symlink)(target, path);
}

int unlink(const char* path) {
  if (is_below(AT_FDCWD, path) && breaks(NULL, NULL)) return -1;
  return REAL(unlink)(path);
}

int unlinkat(int folder, const char* path, int flags) {
  if (is_below(folder, path) && breaks(NULL, NULL)) return -1;
  return REAL(unlinkat)(folder, path, flags);
}

int mkdir(const char* path, mode_t mode) {
  if (is_below(AT_FDCWD, path) && breaks(NULL, NULL)) return -1;
  return REAL(mkdir)(path, mode);
}

int mkdirat(int folder, const char* path, mode_t mode) {
  if (is_below(folder, path) && breaks(NULL, NULL)) return -1;
  return REAL(mkdirat)(folder, path, mode);
}

int rmdir(const char* path) {
  if (is_below(AT_FDCWD, path) && breaks(NULL, NULL)) return -1;
  return REAL(rmdir)(path);
}
