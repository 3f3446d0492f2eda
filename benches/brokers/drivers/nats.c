// Drives NATS JetStream over its text protocol: publish with an inbox for the acknowledgement, push consumer to read.
//   nats HOST PORT MODE SECONDS STREAM LIMIT [window=N]
#include "bench.h"

static struct wire wire;
static const char *stream;
static char value[VALUE_BYTES + 2];
// Subjects of this process alone: consumers of earlier ones may still be there.
static char inbox[32], deliver[32];

// Reads up to and including the next message: the subscription it came for, its body skipped. Sees to pings.
static int next_message(char *body, size_t room) {
    for (;;) {
        char *line = wire_line(&wire);
        if (!strncmp(line, "PING", 4)) {
            wire_printf(&wire, "PONG\r\n");
            wire_flush(&wire);
        } else if (!strncmp(line, "-ERR", 4)) {
            die("nats: %s", line);
        } else if (!strncmp(line, "MSG ", 4) || !strncmp(line, "HMSG ", 5)) {
            char *sid = strchr(strchr(line, ' ') + 1, ' ') + 1;
            int subscription = atoi(sid);
            size_t bytes = strtoul(strrchr(line, ' ') + 1, NULL, 10);
            while (wire.in_end - wire.in_start < bytes + 2) wire_fill(&wire);
            if (body) {
                size_t copied = bytes < room - 1 ? bytes : room - 1;
                memcpy(body, wire.in + wire.in_start, copied);
                body[copied] = 0;
            }
            wire_skip(&wire, bytes + 2);
            return subscription;
        }
    }
}

static void ask(const char *subject, const char *json) {
    char body[4096];
    wire_printf(&wire, "PUB %s %s %zu\r\n%s\r\n", subject, inbox, strlen(json), json);
    wire_flush(&wire);
    if (next_message(body, sizeof body) != 1 || strstr(body, "\"error\"")) die("%s: %s", subject, body);
}

static void publish(void) {
    wire_printf(&wire, "PUB %s %s %d\r\n", stream, inbox, VALUE_BYTES);
    wire_put(&wire, value, VALUE_BYTES + 2);
}

static void acknowledged(void) {
    char body[512];
    if (next_message(body, sizeof body) != 1 || !strstr(body, "\"seq\"")) die("not acknowledged: %s", body);
}

static void produce(double seconds, int window) {
    uint64_t sent = 0, acked = 0;
    double start = now();
    while (now() - start < seconds) {
        while (sent - acked < (uint64_t)window) publish(), sent++;
        wire_flush(&wire);
        for (int i = 0; i < window / 2; i++) acknowledged(), acked++;
    }
    while (acked < sent) acknowledged(), acked++;
    report(acked, now() - start, NULL);
}

static void subscribe(const char *policy) {
    char subject[256], json[512];
    wire_printf(&wire, "SUB %s 2\r\n", deliver);
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.CREATE.%s", stream);
    snprintf(json, sizeof json, "{\"stream_name\":\"%s\",\"config\":{\"deliver_subject\":\"%s\",\"deliver_policy\":\"%s\",\"ack_policy\":\"none\"}}", stream, deliver, policy);
    // Messages may come before the answer; they count from the first on.
    wire_printf(&wire, "PUB %s %s %zu\r\n%s\r\n", subject, inbox, strlen(json), json);
    wire_flush(&wire);
}

static void consume(double seconds, uint64_t limit) {
    uint64_t seen = 0;
    double start = now();
    subscribe("all");
    while (seen < limit && now() - start < seconds) seen += next_message(NULL, 0) == 2;
    report(seen, now() - start, NULL);
}

static void one_at_a_time(double seconds, int delivered) {
    struct latencies all = {0};
    if (delivered) {
        subscribe("new");
        if (next_message(NULL, 0) != 1) die("no consumer");
    }
    double start = now();
    while (now() - start < seconds) {
        double sent = now(), done = 0;
        int left = delivered ? 2 : 1;
        publish();
        wire_flush(&wire);
        for (; left; left--)
            if (next_message(NULL, 0) == (delivered ? 2 : 1)) done = now();
        add_latency(&all, done - sent);
    }
    report(all.count, now() - start, &all);
}

int main(int argc, char **argv) {
    if (argc < 7) die("nats HOST PORT MODE SECONDS STREAM LIMIT [window=N]");
    const char *mode = argv[3];
    double seconds = atof(argv[4]);
    stream = argv[5];
    int window = argc > 7 ? atoi(strchr(argv[7], '=') + 1) : 100;
    fill(value);
    memcpy(value + VALUE_BYTES, "\r\n", 2);
    snprintf(inbox, sizeof inbox, "inbox.%d", getpid());
    snprintf(deliver, sizeof deliver, "deliver.%d", getpid());
    wire_open(&wire, argv[1], argv[2]);
    wire_line(&wire);
    wire_printf(&wire, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\nSUB %s 1\r\n", inbox);
    char subject[256], json[512];
    if (!strcmp(mode, "create")) {
        snprintf(subject, sizeof subject, "$JS.API.STREAM.CREATE.%s", stream);
        snprintf(json, sizeof json, "{\"name\":\"%s\",\"subjects\":[\"%s\"],\"storage\":\"file\",\"num_replicas\":1}", stream, stream);
        ask(subject, json);
    } else if (!strcmp(mode, "delete")) {
        snprintf(subject, sizeof subject, "$JS.API.STREAM.DELETE.%s", stream);
        ask(subject, "");
    } else if (!strcmp(mode, "produce")) produce(seconds, window);
    else if (!strcmp(mode, "consume")) consume(seconds, strtoull(argv[6], NULL, 10));
    else if (!strcmp(mode, "sync")) one_at_a_time(seconds, 0);
    else if (!strcmp(mode, "e2e")) one_at_a_time(seconds, 1);
    else die("no mode %s", mode);
    return 0;
}
