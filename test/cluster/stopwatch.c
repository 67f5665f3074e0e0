/*
 * How long does each plugin take that a runtime starts?
 *
 * Under the name of a plugin, it starts the one of that name in the directory to which the link CALLED leads, with that directory as CNI_PATH, so
 * that what the plugin starts is not timed again. Then it appends a line to the file LOG: verb, container, plugin, start and end on the
 * monotonic clock, processor time of the plugin and of what it waited for; nanoseconds. stopwatch.ts reads them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long long now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static long long of(struct timeval at) { return at.tv_sec * 1000000000LL + at.tv_usec * 1000LL; }

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : "-";
}

int main(int argc, char **argv) {
  char plugins[2048] = "", path[4096], line[1024];
  const char *plugin = basename(argv[0]);
  if (readlink(CALLED, plugins, sizeof plugins - 1) < 0) {
    fprintf(stderr, "Cannot read the link \"%s\": %s\n", CALLED, strerror(errno));
    return 127;
  }
  snprintf(path, sizeof path, "%s/%s", plugins, plugin);
  setenv("CNI_PATH", plugins, 1);
  argv[0] = path;

  long long start = now();
  pid_t child;
  int problem = posix_spawn(&child, path, NULL, NULL, argv, environ);
  if (problem != 0) {
    fprintf(stderr, "Cannot start \"%s\": %s\n", path, strerror(problem));
    return 127;
  }
  int status = 0;
  struct rusage used;
  while (wait4(child, &status, 0, &used) < 0 && errno == EINTR) {
  }
  long long end = now();

  int length = snprintf(line, sizeof line, "%s %s %s %lld %lld %lld\n", variable("CNI_COMMAND"),
                        variable("CNI_CONTAINERID"), plugin, start, end, of(used.ru_utime) + of(used.ru_stime));
  int log = open(LOG, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (log >= 0) {
    ssize_t written = write(log, line, length);
    (void)written;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
