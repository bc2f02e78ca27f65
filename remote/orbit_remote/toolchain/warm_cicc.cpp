// Loaded into cicc, nvcc's device front end. cicc reads the file of ORBIT_HEAD, which holds a file's headers, and then
// waits. Each connection to the socket of ORBIT_SOCKET is one check: a fork of the waiting process reads the rest of the
// source from the connection, and writes its messages there: first those of what it has read, then, after much more time,
// those that need the whole source, as of templates that are instantiated at its end.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

constexpr rlim_t kSeconds = 10;  // of processor time for one check

int head = -1;
off64_t head_size = 0;
bool checking = false, all_read = false;
std::string rest;

void ended(int status, void *) {
  fflush(nullptr);
  dprintf(1, "\n<exit %d>\n", status);
  _exit(status);  // without freeing what was parsed, page after page
}

int listening() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, getenv("ORBIT_SOCKET"), sizeof address.sun_path - 1);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) _exit(1);
  if (listen(listener, 8) != 0) _exit(1);
  fflush(nullptr);
  dprintf(1, "\n<ready>\n");
  return listener;
}

// Returns in a fork, with the connection that asked for it.
int next_check() {
  signal(SIGCHLD, SIG_IGN);
  int listener = listening();
  for (;;) {
    int connection = accept(listener, nullptr, nullptr);
    if (connection < 0) _exit(1);
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      rlimit processor{kSeconds, kSeconds};
      setrlimit(RLIMIT_CPU, &processor);
      dup2(connection, 1);
      dup2(connection, 2);
      close(listener);
      dprintf(1, "<process %d>\n", getpid());
      on_exit(ended, nullptr);
      return connection;
    }
    close(connection);
  }
}

std::string all_of(int connection) {
  std::string text;
  char part[1 << 16];
  for (ssize_t count; (count = read(connection, part, sizeof part)) > 0;) text.append(part, count);
  return text;
}

// Where a reader of the source is: cicc opens it again for the lines that its messages quote.
struct Reader {
  off64_t position;
};

ssize_t take(void *reader, char *buffer, size_t size) {
  off64_t &position = static_cast<Reader *>(reader)->position;
  ssize_t count = 0;
  if (position < head_size) {
    count = pread(head, buffer, std::min<off64_t>(size, head_size - position), position);
  } else {
    if (!checking) {
      rest = all_of(next_check());
      checking = true;
    }
    count = rest.copy(buffer, size, std::min<off64_t>(position - head_size, rest.size()));
    if (count == 0 && !all_read) {
      all_read = true;
      fflush(nullptr);
      dprintf(1, "\n<read>\n");
    }
  }
  if (count > 0) position += count;
  return count;
}

int closed(void *reader) {
  delete static_cast<Reader *>(reader);
  return 0;
}

int seek(void *reader, off64_t *offset, int whence) {
  off64_t &position = static_cast<Reader *>(reader)->position;
  off64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? position : head_size + static_cast<off64_t>(rest.size());
  if (from + *offset < 0) return -1;
  *offset = position = from + *offset;
  return 0;
}

FILE *opened(const char *path, const char *mode, const char *function) {
  const char *wanted = getenv("ORBIT_HEAD");
  if (wanted && strcmp(path, wanted) == 0) {
    if (head < 0) head = open(path, O_RDONLY | O_CLOEXEC);
    head_size = lseek64(head, 0, SEEK_END);
    return fopencookie(new Reader{0}, "r", cookie_io_functions_t{take, nullptr, seek, closed});
  }
  using Open = FILE *(*)(const char *, const char *);
  return reinterpret_cast<Open>(dlsym(RTLD_NEXT, function))(path, mode);
}

}  // namespace

extern "C" FILE *fopen(const char *path, const char *mode) { return opened(path, mode, "fopen"); }
extern "C" FILE *fopen64(const char *path, const char *mode) { return opened(path, mode, "fopen64"); }
