// Drives Redis streams: XADD in a pipeline, XREAD to read.
//   redis HOST PORT MODE SECONDS STREAM LIMIT [window=N]
#include "bench.h"

static struct wire writer, reader;
static const char *stream;
static char value[VALUE_BYTES + 2];

static void put_words(struct wire *wire, int count, ...) {
    va_list words;
    va_start(words, count);
    wire_printf(wire, "*%d\r\n", count);
    for (int i = 0; i < count; i++) {
        const char *word = va_arg(words, const char *);
        wire_printf(wire, "$%zu\r\n%s\r\n", strlen(word), word);
    }
    va_end(words);
}

static void add(void) {
    wire_printf(&writer, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nd\r\n$%d\r\n", strlen(stream), stream, VALUE_BYTES);
    wire_put(&writer, value, VALUE_BYTES + 2);
}

// Reads one answer of any shape. `id` takes the last bulk string that looks like the id of an entry.
static uint64_t answer(struct wire *wire, char *id) {
    char *line = wire_line(wire);
    uint64_t strings = 0;
    long count = atol(line + 1);
    switch (line[0]) {
    case '-':
        die("redis: %s", line);
    case '$':
        if (count < 0) return 0;
        while (wire->in_end - wire->in_start < (size_t)count + 2) wire_fill(wire);
        if (id && count < 40 && memchr(wire->in + wire->in_start, '-', count)) {
            memcpy(id, wire->in + wire->in_start, count);
            id[count] = 0;
        }
        strings = count == VALUE_BYTES;
        wire_skip(wire, count + 2);
        return strings;
    case '*':
        for (long i = 0; i < count; i++) strings += answer(wire, id);
        return strings;
    }
    return 0;
}

static void produce(double seconds, int window) {
    uint64_t sent = 0, acked = 0;
    double start = now();
    while (now() - start < seconds) {
        while (sent - acked < (uint64_t)window) add(), sent++;
        wire_flush(&writer);
        for (int i = 0; i < window / 2; i++) answer(&writer, NULL), acked++;
    }
    while (acked < sent) answer(&writer, NULL), acked++;
    report(acked, now() - start, NULL);
}

static void consume(double seconds, uint64_t limit) {
    char last[64] = "0-0";
    uint64_t seen = 0;
    double start = now();
    while (seen < limit && now() - start < seconds) {
        put_words(&reader, 6, "XREAD", "COUNT", "1000", "STREAMS", stream, last);
        wire_flush(&reader);
        seen += answer(&reader, last);
    }
    report(seen, now() - start, NULL);
}

static void one_at_a_time(double seconds, int delivered) {
    struct latencies all = {0};
    char last[64] = "$";
    if (delivered) {
        add();
        wire_flush(&writer);
        answer(&writer, last);
    }
    double start = now();
    while (now() - start < seconds) {
        if (delivered) {
            put_words(&reader, 6, "XREAD", "BLOCK", "1000", "STREAMS", stream, last);
            wire_flush(&reader);
        }
        double sent = now();
        add();
        wire_flush(&writer);
        if (delivered) answer(&reader, last);
        else answer(&writer, NULL);
        add_latency(&all, now() - sent);
        if (delivered) answer(&writer, NULL);
    }
    report(all.count, now() - start, &all);
}

int main(int argc, char **argv) {
    if (argc < 7) die("redis HOST PORT MODE SECONDS STREAM LIMIT [window=N]");
    const char *mode = argv[3];
    double seconds = atof(argv[4]);
    stream = argv[5];
    int window = argc > 7 ? atoi(strchr(argv[7], '=') + 1) : 100;
    fill(value);
    memcpy(value + VALUE_BYTES, "\r\n", 2);
    wire_open(&writer, argv[1], argv[2]);
    wire_open(&reader, argv[1], argv[2]);
    if (!strcmp(mode, "create")) return 0; // the first XADD makes the stream
    if (!strcmp(mode, "delete")) {
        put_words(&writer, 2, "DEL", stream);
        wire_flush(&writer);
        answer(&writer, NULL);
    } else if (!strcmp(mode, "produce")) produce(seconds, window);
    else if (!strcmp(mode, "consume")) consume(seconds, strtoull(argv[6], NULL, 10));
    else if (!strcmp(mode, "sync")) one_at_a_time(seconds, 0);
    else if (!strcmp(mode, "e2e")) one_at_a_time(seconds, 1);
    else die("no mode %s", mode);
    return 0;
}
