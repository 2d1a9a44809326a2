// A workload that the fault tests lead step by step: each argument is one step, done in order. Its probes count what it did.
//
//	add:N        adds 1 to the counter and records into the histogram, N times
//	lines:N      prints N numbered lines, each in a write of its own, and counts them
//	touch:FILE   makes FILE
//	await:FILE   waits until FILE is there
//	children:N,M,FILE runs N programs at a time that add M each, wait for FILE, and add M again; a third of them forks in
//	             between, a third fails
//	brief:N,M    runs N programs, one after another, that add M and end at once; each is the grandchild of this one and outlives
//	             its parent
//	close:FD     closes FD and all above it
//	private      is no longer dumpable: its files in /proc are root's
//	alone        ends the way of a process that must not wait: _exit
//	exit:N       ends with status N
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <graphsignal/probe.h>

static const char* self;

static void nap() { usleep(5000); }

static bool is(const char* step, const char* verb, const char** rest) {
  const size_t n = strlen(verb);
  if (strncmp(step, verb, n) != 0) return false;
  *rest = step + n;
  return true;
}

static void add(long n) {
  graphsignal_probe_entry* steps = graphsignal_probe_register("fault_steps", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0);
  graphsignal_probe_entry* sizes = graphsignal_probe_register("fault_sizes", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0);
  for (long i = 0; i < n; i++) {
    graphsignal_add(steps, 1);
    graphsignal_record(sizes, static_cast<uint64_t>(i));
  }
}

static void lines(long n) {
  graphsignal_probe_entry* printed = graphsignal_probe_register("fault_lines", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0);
  for (long i = 0; i < n; i++) {
    char line[64];
    const int length = snprintf(line, sizeof(line), "line %ld of many\n", i);
    for (int done = 0; done < length;) {
      const ssize_t got = write(STDOUT_FILENO, line + done, static_cast<size_t>(length - done));
      if (got < 0) exit(99);
      done += static_cast<int>(got);
    }
    graphsignal_add(printed, 1);
  }
}

static void children(const char* argument) {
  char each[32], file[4096];
  char* rest;
  const long n = strtol(argument, &rest, 10), m = strtol(rest + 1, &rest, 10);
  snprintf(each, sizeof(each), "add:%ld", m);
  snprintf(file, sizeof(file), "await:%s", rest + 1);
  for (long i = 0; i < n; i++) {
    if (fork() != 0) continue;
    execl(self, self, each, file, i % 3 == 1 ? "fork" : "add:0", each, i % 3 == 2 ? "exit:7" : "exit:0", nullptr);
    _exit(98);
  }
  int status;
  while (wait(&status) > 0) {
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 7)) exit(97);
  }
}

static void brief(const char* argument) {
  char each[32];
  char* rest;
  const long n = strtol(argument, &rest, 10);
  snprintf(each, sizeof(each), "add:%ld", strtol(rest + 1, nullptr, 10));
  for (long i = 0; i < n; i++) {
    // The grandchild holds the pipe's other end until it is gone.
    int ends[2];
    if (pipe(ends) != 0) _exit(93);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      if (fork() != 0) _exit(0);
      execl(self, self, each, nullptr);
      _exit(92);
    }
    close(ends[1]);
    char end;
    if (waitpid(child, nullptr, 0) != child || read(ends[0], &end, 1) != 0) _exit(91);
    close(ends[0]);
  }
}

int main(int argc, char** argv) {
  self = argv[0];
  for (int i = 1; i < argc; i++) {
    const char* rest;
    if (is(argv[i], "add:", &rest)) {
      add(atol(rest));
    } else if (is(argv[i], "lines:", &rest)) {
      lines(atol(rest));
    } else if (is(argv[i], "touch:", &rest)) {
      const int fd = open(rest, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      if (fd < 0) return 96;
      close(fd);
    } else if (is(argv[i], "await:", &rest)) {
      while (access(rest, F_OK) != 0) nap();
    } else if (is(argv[i], "children:", &rest)) {
      children(rest);
    } else if (is(argv[i], "brief:", &rest)) {
      brief(rest);
    } else if (is(argv[i], "fork", &rest)) {
      // The child has the probes' memory and nobody who publishes it; it counts in vain and ends.
      const pid_t child = fork();
      if (child == 0) {
        add(1000000);
        _exit(0);
      }
      if (waitpid(child, nullptr, 0) != child) return 95;
    } else if (is(argv[i], "close:", &rest)) {
      for (int fd = atoi(rest); fd < 1024; fd++) close(fd);
    } else if (is(argv[i], "private", &rest)) {
      if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return 94;
    } else if (is(argv[i], "alone", &rest)) {
      _exit(0);
    } else if (is(argv[i], "exit:", &rest)) {
      return atoi(rest);
    } else {
      fprintf(stderr, "%s: unknown step %s\n", self, argv[i]);
      return 2;
    }
  }
  return 0;
}
