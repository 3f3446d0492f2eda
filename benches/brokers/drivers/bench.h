// What the drivers share: a clock, latencies, a socket with buffers, and the line they print.
#ifndef BENCH_H
#define BENCH_H

#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VALUE_BYTES 200

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noreturn)) static inline void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

// Text that does not pack to nothing, should a broker compress.
static inline void fill(char *value) {
    uint32_t state = 12345;
    for (int i = 0; i < VALUE_BYTES; i++) {
        state = state * 1664525 + 1013904223;
        value[i] = 'a' + (state >> 24) % 26;
    }
}

struct latencies {
    double *seconds;
    size_t count, room;
};

static inline void add_latency(struct latencies *all, double seconds) {
    if (all->count == all->room) {
        all->room = all->room ? 2 * all->room : 1 << 16;
        all->seconds = realloc(all->seconds, all->room * sizeof(double));
        if (!all->seconds) die("out of memory");
    }
    all->seconds[all->count++] = seconds;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// "messages seconds p50_us p99_us"; the last two are 0 where single messages are not timed.
static inline void report(uint64_t messages, double seconds, struct latencies *all) {
    double p50 = 0, p99 = 0;
    if (all && all->count) {
        qsort(all->seconds, all->count, sizeof(double), by_size);
        p50 = all->seconds[all->count / 2];
        p99 = all->seconds[all->count * 99 / 100];
    }
    printf("%llu %.4f %.1f %.1f\n", (unsigned long long)messages, seconds, p50 * 1e6, p99 * 1e6);
}

// A socket that writes when told to and is read by lines and blocks.
struct wire {
    int fd;
    char *in, *out;
    size_t in_start, in_end, out_end;
};
#define WIRE_BYTES (4 << 20)

static inline void wire_open(struct wire *wire, const char *host, const char *port) {
    struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, port, &hints, &found)) die("no address %s:%s", host, port);
    wire->fd = socket(found->ai_family, found->ai_socktype, 0);
    if (connect(wire->fd, found->ai_addr, found->ai_addrlen)) die("cannot connect to %s:%s", host, port);
    int on = 1;
    setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    wire->in = malloc(WIRE_BYTES);
    wire->out = malloc(WIRE_BYTES);
    wire->in_start = wire->in_end = wire->out_end = 0;
}

static inline void wire_flush(struct wire *wire) {
    for (size_t done = 0; done < wire->out_end;) {
        ssize_t n = write(wire->fd, wire->out + done, wire->out_end - done);
        if (n <= 0) die("write failed");
        done += n;
    }
    wire->out_end = 0;
}

static inline void wire_put(struct wire *wire, const char *bytes, size_t count) {
    if (wire->out_end + count > WIRE_BYTES) wire_flush(wire);
    memcpy(wire->out + wire->out_end, bytes, count);
    wire->out_end += count;
}

static inline void wire_printf(struct wire *wire, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    wire_put(wire, line, n);
}

static inline void wire_fill(struct wire *wire) {
    if (wire->in_start > WIRE_BYTES / 2) {
        memmove(wire->in, wire->in + wire->in_start, wire->in_end - wire->in_start);
        wire->in_end -= wire->in_start;
        wire->in_start = 0;
    }
    ssize_t n = read(wire->fd, wire->in + wire->in_end, WIRE_BYTES - wire->in_end);
    if (n <= 0) die("the server closed the connection");
    wire->in_end += n;
}

// The next line without its CR LF; valid until the next call.
static inline char *wire_line(struct wire *wire) {
    size_t from = wire->in_start;
    for (;;) {
        char *end = memchr(wire->in + from, '\n', wire->in_end - from);
        if (end) {
            char *line = wire->in + wire->in_start;
            end[end > line && end[-1] == '\r' ? -1 : 0] = 0;
            wire->in_start = end + 1 - wire->in;
            return line;
        }
        size_t seen = wire->in_end - wire->in_start;
        wire_fill(wire);
        from = wire->in_start + seen;
    }
}

static inline void wire_skip(struct wire *wire, size_t count) {
    while (wire->in_end - wire->in_start < count) wire_fill(wire);
    wire->in_start += count;
}

#endif
