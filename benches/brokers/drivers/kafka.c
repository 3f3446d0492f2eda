// Drives a Kafka-compatible broker through librdkafka.
//   kafka HOST PORT MODE SECONDS TOPIC LIMIT [name=value..]
// MODE: create | produce | consume (up to LIMIT messages) | sync (one at a time) | e2e (one at a time, send to receive,
// on a topic of its own)
#include "bench.h"
#include <librdkafka/rdkafka.h>

static uint64_t acked, refused;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) refused++;
    else acked++;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error)) die("%s=%s: %s", name, value, error);
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *address, char **options, int count) {
    char error[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", address);
    if (type == RD_KAFKA_PRODUCER) {
        set(conf, "acks", "all");
        set(conf, "queue.buffering.max.messages", "200000");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    } else {
        set(conf, "queued.min.messages", "1000000");
    }
    for (int i = 0; i < count; i++) {
        char *split = strchr(options[i], '=');
        if (!split) die("not name=value: %s", options[i]);
        *split = 0;
        set(conf, options[i], split + 1);
        *split = '=';
    }
    rd_kafka_t *made = rd_kafka_new(type, conf, error, sizeof error);
    if (!made) die("%s", error);
    return made;
}

static void create(rd_kafka_t *producer, const char *topic) {
    char error[256];
    rd_kafka_NewTopic_t *new = rd_kafka_NewTopic_new(topic, 1, 1, error, sizeof error);
    rd_kafka_queue_t *answers = rd_kafka_queue_new(producer);
    rd_kafka_CreateTopics(producer, &new, 1, NULL, answers);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, 30000);
    if (!event || rd_kafka_event_error(event)) die("topic not created");
    size_t count;
    const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    if (count != 1 || rd_kafka_topic_result_error(results[0])) die("topic not created");
}

static int send_one(rd_kafka_t *producer, const char *topic, char *value) {
    return rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_VALUE(value, VALUE_BYTES),
                             RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
}

static void produce(rd_kafka_t *producer, rd_kafka_topic_t *topic, double seconds, char *value) {
    double start = now();
    while (now() - start < seconds) {
        for (int i = 0; i < 1000; i++)
            while (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, value, VALUE_BYTES, NULL, 0, NULL)) rd_kafka_poll(producer, 1);
        rd_kafka_poll(producer, 0);
    }
    rd_kafka_flush(producer, 60000);
    report(acked, now() - start, NULL);
}

static void sync_one(rd_kafka_t *producer, const char *topic, double seconds, char *value) {
    struct latencies all = {0};
    double start = now();
    while (now() - start < seconds) {
        double sent = now();
        uint64_t before = acked + refused;
        if (send_one(producer, topic, value)) die("cannot send");
        while (acked + refused == before) rd_kafka_poll(producer, 100);
        add_latency(&all, now() - sent);
    }
    report(acked, now() - start, &all);
}

static void consume(rd_kafka_t *consumer, rd_kafka_topic_t *topic, double seconds, uint64_t limit) {
    static rd_kafka_message_t *batch[10000];
    uint64_t seen = 0;
    if (rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_BEGINNING)) die("cannot consume");
    double start = now();
    while (seen < limit && now() - start < seconds) {
        ssize_t count = rd_kafka_consume_batch(topic, 0, 100, batch, 10000);
        for (ssize_t i = 0; i < count; i++) {
            if (!batch[i]->err) seen++;
            rd_kafka_message_destroy(batch[i]);
        }
    }
    report(seen, now() - start, NULL);
    (void)consumer;
}

static void end_to_end(rd_kafka_t *producer, rd_kafka_topic_t *reader, const char *topic, double seconds, char *value) {
    struct latencies all = {0};
    if (rd_kafka_consume_start(reader, 0, RD_KAFKA_OFFSET_BEGINNING)) die("cannot consume");
    double start = 0;
    for (int warm = 20; !start || now() - start < seconds; warm--) {
        if (warm == 0) start = now();
        double sent = now();
        if (send_one(producer, topic, value)) die("cannot send");
        for (int got = 0; !got;) {
            rd_kafka_message_t *message = rd_kafka_consume(reader, 0, 1000);
            if (message) {
                got = !message->err;
                rd_kafka_message_destroy(message);
            }
        }
        if (start) add_latency(&all, now() - sent);
        rd_kafka_poll(producer, 0);
    }
    report(all.count, now() - start, &all);
}

int main(int argc, char **argv) {
    if (argc < 7) die("kafka HOST PORT MODE SECONDS TOPIC LIMIT [name=value..]");
    char address[256], value[VALUE_BYTES];
    snprintf(address, sizeof address, "%s:%s", argv[1], argv[2]);
    fill(value);
    const char *mode = argv[3], *topic = argv[5];
    double seconds = atof(argv[4]);
    int reads = !strcmp(mode, "consume");
    rd_kafka_t *main_client = client(reads ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER, address, argv + 7, argc - 7);
    if (!strcmp(mode, "create")) {
        create(main_client, topic);
        return 0;
    }
    // The first metadata are no part of any figure.
    rd_kafka_topic_t *handle = rd_kafka_topic_new(main_client, topic, NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(main_client, 0, handle, &metadata, 30000)) die("no metadata");
    if (!strcmp(mode, "produce")) produce(main_client, handle, seconds, value);
    else if (!strcmp(mode, "sync")) sync_one(main_client, topic, seconds, value);
    else if (reads) consume(main_client, handle, seconds, strtoull(argv[6], NULL, 10));
    else if (!strcmp(mode, "e2e")) {
        rd_kafka_t *reader = client(RD_KAFKA_CONSUMER, address, NULL, 0);
        end_to_end(main_client, rd_kafka_topic_new(reader, topic, NULL), topic, seconds, value);
    } else die("no mode %s", mode);
    if (refused) die("%llu messages were refused", (unsigned long long)refused);
    fflush(stdout);
    _exit(0);
}
