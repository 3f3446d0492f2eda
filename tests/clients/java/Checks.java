import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

/** The checklist with the Java client. */
public final class Checks {
    private static final Admin ADMIN = Admin.create(plain());
    private static final byte[] BINARY = new byte[256];
    private static final byte[] LARGE = new byte[900 * 1024];

    /** Key, value and headers as one text that can be compared. */
    record Row(byte[] key, byte[] value, List<Header> headers) {
        String text() {
            return Arrays.toString(key) + Arrays.toString(value) + headers;
        }
    }

    public static void main(String[] only) {
        for (int i = 0; i < 256; i++) BINARY[i] = (byte) i;
        for (int i = 0; i < LARGE.length; i++) LARGE[i] = (byte) (i * 31);
        Harness todo = new Harness(only);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) todo.check("codec_" + codec, () -> codec(codec));
        todo.check("append_time", Checks::appendTime);
        todo.check("large_record", Checks::largeRecord);
        todo.check("empty_topic", Checks::emptyTopic);
        todo.check("unknown_topic", Checks::unknownTopic);
        todo.check("offsets", Checks::offsets);
        todo.check("topics_admin", Checks::topicsAdmin);
        todo.check("group_rebalance", () -> group("RangeAssignor"));
        todo.check("group_cooperative", () -> group("CooperativeStickyAssignor"));
        todo.check("consumer_rebalance", () -> group("consumer"));
        todo.check("consumer_resume", () -> commitResume("consumer-resume", "group.protocol", "consumer"));
        todo.check("consumer_static", () -> staticMember("consumer-static", "group.protocol", "consumer"));
        todo.check("share_refused", Checks::shareRefused);
        todo.check("commit_resume", () -> commitResume("resume"));
        todo.check("static_member", () -> staticMember("static"));
        todo.check("static_fence", Checks::staticFence);
        todo.check("groups_admin", Checks::groupsAdmin);
        todo.check("punctuation", Checks::punctuation);
        todo.check("idempotent_cut", Checks::idempotentCut);
        todo.check("txn", Checks::txn);
        todo.check("txn_cut", Checks::txnCut);
        todo.check("txn_open", Checks::txnOpen);
        todo.check("txn_fence", Checks::txnFence);
        todo.check("txn_offsets", Checks::txnOffsets);
        todo.check("punctuation_txn", Checks::punctuationTxn);
        todo.check("sasl_ok", () -> roundTrip("sasl", sasl(Harness.need(Harness.SASL, "SASL listener"), Harness.PASSWORD)));
        todo.check("sasl_wrong", Checks::saslWrong);
        todo.check("sasl_scram", Checks::saslScram);
        todo.check("users_admin", Checks::usersAdmin);
        todo.check("broker_settings", Checks::brokerSettings);
        todo.check("client_metrics", Checks::clientMetrics);
        todo.check("sasl_oauth", Checks::saslOauth);
        todo.check("oauth_renewal", Checks::oauthRenewal);
        todo.check("tls", Checks::tls);
        todo.check("mtls", Checks::mtls);
        todo.end();
    }

    // Clients.

    static Map<String, Object> plain() {
        return new HashMap<>(Map.of("bootstrap.servers", Harness.BOOTSTRAP, "default.api.timeout.ms", (int) Harness.WAIT_MS));
    }

    static Map<String, Object> with(Map<String, Object> base, Object... more) {
        Map<String, Object> conf = new HashMap<>(base);
        for (int i = 0; i < more.length; i += 2) conf.put((String) more[i], more[i + 1]);
        return conf;
    }

    static KafkaProducer<byte[], byte[]> producer(Object... more) {
        Map<String, Object> base = with(plain(), "linger.ms", 20, "max.request.size", 2_000_000, "delivery.timeout.ms", 60_000);
        return new KafkaProducer<>(with(base, more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group, Object... more) {
        Map<String, Object> base = with(plain(), "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 50);
        base.put("max.partition.fetch.bytes", 4_000_000);
        base.put("allow.auto.create.topics", false);
        if (group != null) base.put("group.id", group);
        return new KafkaConsumer<>(with(base, more), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(Harness.WAIT_MS, TimeUnit.MILLISECONDS);
    }

    static String create(String what, int partitions) throws Exception {
        String topic = Harness.name(what);
        get(ADMIN.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all());
        Harness.until("the new topic is listed", () -> get(ADMIN.listTopics().names()).contains(topic));
        return topic;
    }

    static List<Long> produce(KafkaProducer<byte[], byte[]> producer, String topic, List<Row> rows, int spread, Long at) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (producer) {
            for (int n = 0; n < rows.size(); n++) {
                Row row = rows.get(n);
                sent.add(producer.send(new ProducerRecord<>(topic, n % spread, at, row.key, row.value, row.headers)));
            }
            List<Long> acked = new ArrayList<>();
            for (var future : sent) acked.add(future.get().offset());
            return acked;
        }
    }

    static void produce(String topic, List<Row> rows) throws Exception {
        produce(producer(), topic, rows, 1, null);
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String topic, long from, Object... conf) throws Exception {
        var partition = new TopicPartition(topic, 0);
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (var reader = consumer(null, conf)) {
            reader.assign(List.of(partition));
            reader.seek(partition, from);
            long end = reader.endOffsets(List.of(partition)).get(partition);
            Harness.until("end of partition", () -> {
                if (reader.position(partition) < end) reader.poll(Duration.ofMillis(100)).forEach(found::add);
                return reader.position(partition) >= end;
            });
        }
        return found;
    }

    static List<Row> records() {
        List<Row> rows = new ArrayList<>();
        rows.add(new Row("key".getBytes(), "value".getBytes(), List.of(header("h", "1"), header("h", "2"), new RecordHeader("bytes", new byte[] {0, -1}))));
        rows.add(new Row(null, "no key".getBytes(), List.of()));
        rows.add(new Row("tombstone".getBytes(), null, List.of(header("why", "deleted"))));
        rows.add(new Row(new byte[0], new byte[0], List.of(header("empty", ""), new RecordHeader("null", (byte[]) null))));
        rows.add(new Row(BINARY, BINARY, List.of()));
        for (int i = 0; i < 95; i++) rows.add(new Row(("k" + i).getBytes(), ("text that packs well ".repeat(10) + i).getBytes(), List.of()));
        return rows;
    }

    static Header header(String key, String value) {
        return new RecordHeader(key, value.getBytes());
    }

    static List<Row> numbers(int first, int count) {
        return IntStream.range(first, first + count).mapToObj(n -> new Row(null, ("" + n).getBytes(), List.of())).toList();
    }

    static List<String> texts(List<Row> rows) {
        return rows.stream().map(Row::text).toList();
    }

    static List<String> found(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(r -> new Row(r.key(), r.value(), List.of(r.headers().toArray())).text()).toList();
    }

    static List<String> values(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(r -> new String(r.value())).toList();
    }

    // Records there and back.

    static void codec(String codec) throws Exception {
        String topic = create("codec-" + codec, 1);
        produce(producer("compression.type", codec), topic, records(), 1, null);
        var records = read(topic, 0);
        Harness.same(found(records), texts(records()), "records");
        Harness.same(records.stream().map(ConsumerRecord::offset).toList(), LongStream.range(0, 100).boxed().toList(), "offsets");
    }

    static void appendTime() throws Exception {
        String topic = create("time", 1);
        long before = System.currentTimeMillis() - 1000;
        produce(producer(), topic, numbers(0, 10), 1, 1_000_000L);
        for (var record : read(topic, 0)) {
            Harness.same(record.timestampType(), TimestampType.LOG_APPEND_TIME, "timestamp type");
            long at = record.timestamp();
            Harness.hold(before <= at && at <= System.currentTimeMillis() + 1000, "append time " + at);
        }
    }

    static void largeRecord() throws Exception {
        String topic = create("large", 1);
        List<Row> rows = Collections.nCopies(3, new Row(null, LARGE, List.of()));
        produce(topic, rows);
        Harness.same(found(read(topic, 0)), texts(rows), "records");
    }

    static void emptyTopic() throws Exception {
        String topic = create("empty", 1);
        Harness.same(read(topic, 0).size(), 0, "records");
        Harness.same(bounds(topic), List.of(0L, 0L), "beginning and end");
    }

    static List<Long> bounds(String topic) {
        var partition = new TopicPartition(topic, 0);
        try (var reader = consumer(null)) {
            return List.of(reader.beginningOffsets(List.of(partition)).get(partition), reader.endOffsets(List.of(partition)).get(partition));
        }
    }

    static void unknownTopic() throws Exception {
        String gone = Harness.name("nowhere");
        List<String> unknown = List.of("UnknownTopicOrPartitionException");
        Harness.fails("describe", unknown, () -> get(ADMIN.describeTopics(List.of(gone)).allTopicNames()));
        Harness.fails("delete", unknown, () -> get(ADMIN.deleteTopics(List.of(gone)).all()));
        Harness.hold(!get(ADMIN.listTopics().names()).contains(gone), "asking for a topic made it");
    }

    static void offsets() throws Exception {
        String topic = create("offsets", 1);
        var partition = new TopicPartition(topic, 0);
        for (int n = 0; n < 3; n++) {
            Thread.sleep(10);
            produce(topic, numbers(n, 1));
        }
        List<Long> stamps = read(topic, 0).stream().map(ConsumerRecord::timestamp).toList();
        try (var reader = consumer(null)) {
            List<Long> found = new ArrayList<>();
            for (long at : new long[] {0, stamps.get(1), stamps.get(1) + 1, stamps.get(2) + 60_000}) {
                var offset = reader.offsetsForTimes(Map.of(partition, at)).get(partition);
                found.add(offset == null ? -1 : offset.offset());
            }
            Harness.same(found, List.of(0L, 1L, 2L, -1L), "offsets by time");
        }
        Harness.same(bounds(topic), List.of(0L, 3L), "beginning and end");
        Harness.same(values(read(topic, 2)), List.of("2"), "from offset 2");
        var latest = get(ADMIN.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).all()).get(partition);
        Harness.same(latest.offset(), 2L, "offset of the largest timestamp");
    }

    static int partitionCount(String topic) throws Exception {
        return get(ADMIN.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size();
    }

    static void topicsAdmin() throws Exception {
        String topic = create("admin", 3);
        Harness.same(partitionCount(topic), 3, "partitions");
        Harness.fails("create again", List.of("TopicExistsException"), () -> create("admin", 3));
        get(ADMIN.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
        Harness.until("five partitions", () -> partitionCount(topic) == 5);
        Harness.fails("fewer partitions", List.of("InvalidPartitionsException"), () -> get(ADMIN.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all()));
        get(ADMIN.deleteTopics(List.of(topic)).all());
        Harness.until("the topic is gone", () -> !get(ADMIN.listTopics().names()).contains(topic));
    }

    // Groups.

    static Member join(String name, String topic, String group, List<Member.Seen> seen, Object... conf) {
        boolean chooses = !List.of(conf).contains("group.protocol");
        Object[] times = chooses ? new Object[] {"session.timeout.ms", 10_000, "heartbeat.interval.ms", 500} : new Object[0];
        Object[] all = Stream.concat(Stream.of(times), Stream.of(conf)).toArray();
        return new Member(name, topic, consumer(group, all), seen);
    }

    static void checkGroupLog(List<Member.Seen> seen, int total) {
        Map<Integer, List<Member.Seen>> byNumber = seen.stream().collect(Collectors.groupingBy(Member.Seen::number));
        Harness.same(byNumber.size(), total, "records that arrived");
        for (var rows : byNumber.values()) Harness.hold(rows.size() == 1, "delivered twice: " + rows);
    }

    static void send(String topic, int first, int count) throws Exception {
        produce(producer(), topic, numbers(first, count), 4, null);
    }

    static void group(String assignor) throws Exception {
        String topic = create("group-" + assignor, 4);
        String group = Harness.name("group-" + assignor);
        List<Member.Seen> seen = Collections.synchronizedList(new ArrayList<>());
        boolean server = assignor.equals("consumer");
        Object[] conf = server ? new Object[] {"group.protocol", assignor} : new Object[] {"partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor};
        Member first = join("first", topic, group, seen, conf);
        send(topic, 0, 200);
        Harness.until("the first member reads all", () -> seen.size() == 200);
        Member second = join("second", topic, group, seen, conf);
        Harness.until("two partitions each", () -> first.partitions().size() == 2 && second.partitions().size() == 2);
        Set<Integer> both = new TreeSet<>(first.partitions());
        both.addAll(second.partitions());
        Harness.same(both, Set.of(0, 1, 2, 3), "partitions of both");
        send(topic, 200, 200);
        Harness.until("both members read", () -> seen.size() >= 400);
        Harness.hold(second.count.get() > 0, "the second member read nothing");
        first.leave();
        Harness.until("four partitions for the second", () -> second.partitions().size() == 4);
        send(topic, 400, 200);
        Harness.until("the second member reads the rest", () -> seen.size() >= 600);
        second.leave();
        checkGroupLog(seen, 600);
    }

    static void commitResume(String name, Object... conf) throws Exception {
        String topic = create(name, 1);
        produce(topic, numbers(0, 10));
        Harness.same(take(topic, name, 4, conf), List.of("0", "1", "2", "3", "4"), "first records and committed offset");
        Harness.same(take(topic, name, 6, conf), List.of("4", "5", "6", "7", "8", "9", "10"), "the other records and committed offset");
    }

    static List<String> take(String topic, String group, int count, Object... conf) throws Exception {
        var partition = new TopicPartition(topic, 0);
        Object[] all = Stream.concat(Stream.of("max.poll.records", 1), Stream.of(conf)).toArray();
        try (var reader = consumer(Harness.name(group), all)) {
            reader.subscribe(List.of(topic));
            List<String> got = new ArrayList<>();
            Harness.until("records", () -> {
                reader.poll(Duration.ofMillis(100)).forEach(record -> got.add(new String(record.value())));
                return got.size() == count;
            });
            reader.commitSync();
            got.add("" + reader.committed(Set.of(partition)).get(partition).offset());
            return got;
        }
    }

    static void staticMember(String test, Object... conf) throws Exception {
        String topic = create(test, 4);
        String group = Harness.name(test);
        Function<String, Object[]> named = name -> Stream.concat(Stream.of("group.instance.id", name), Stream.of(conf)).toArray();
        List<Member.Seen> seen = Collections.synchronizedList(new ArrayList<>());
        Member stays = join("stays", topic, group, seen, named.apply("stays"));
        Member leaves = join("leaves", topic, group, seen, named.apply("leaves"));
        Harness.until("two partitions each", () -> stays.partitions().size() == 2 && leaves.partitions().size() == 2);
        Set<Integer> had = leaves.partitions();
        int revoked = stays.revoked.get();
        leaves.leave();
        Member back = join("leaves", topic, group, seen, named.apply("leaves"));
        Harness.until("the partitions come back", () -> back.partitions().equals(had));
        send(topic, 0, 100);
        Harness.until("all is read", () -> seen.size() >= 100);
        Harness.same(stays.revoked.get(), revoked, "rebalances seen by the member that stayed");
        stays.leave();
        back.leave();
        checkGroupLog(seen, 100);
    }

    static void staticFence() throws Exception {
        String topic = create("fence", 1);
        String group = Harness.name("fence");
        Member holder = join("a", topic, group, new ArrayList<>(), "group.instance.id", "one");
        produce(topic, numbers(0, 1));
        Harness.until("a record", () -> holder.count.get() == 1);
        Member rival = join("b", topic, group, new ArrayList<>(), "group.instance.id", "one");
        Harness.until("the partition moves", () -> rival.partitions().size() == 1);
        Harness.fails("commit by the first holder", List.of("FencedInstanceIdException"), holder::leave);
        Harness.until("the record was not committed", () -> rival.count.get() == 1);
        rival.leave();
    }

    static String groupState(String group) throws Exception {
        var found = get(ADMIN.describeConsumerGroups(List.of(group)).all()).get(group);
        return found.state() + " " + found.members().size();
    }

    static void groupsAdmin() throws Exception {
        String topic = create("groups", 1);
        String group = Harness.name("groups");
        Member member = join("m", topic, group, new ArrayList<>());
        produce(topic, numbers(0, 1));
        Harness.until("the record", () -> member.count.get() == 1);
        Harness.hold(groupListed(group), "the group is not listed");
        Harness.same(groupState(group), "Stable 1", "state and members");
        Harness.fails("delete a group in use", List.of("GroupNotEmptyException"), () -> get(ADMIN.deleteConsumerGroups(List.of(group)).all()));
        member.leave();
        Harness.same(groupState(group), "Empty 0", "state after the last member left");
        var stored = get(ADMIN.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        Harness.same(stored.get(new TopicPartition(topic, 0)).offset(), 1L, "stored offset");
        get(ADMIN.deleteConsumerGroups(List.of(group)).all());
        Harness.hold(!groupListed(group), "the deleted group is listed");
        Harness.fails("delete it again", List.of("GroupIdNotFoundException"), () -> get(ADMIN.deleteConsumerGroups(List.of(group)).all()));
    }

    static boolean groupListed(String group) throws Exception {
        return get(ADMIN.listConsumerGroups().all()).stream().anyMatch(found -> found.groupId().equals(group));
    }

    /** What the server writes where nothing comes is passed over, in the middle and at the end. */
    static void punctuation() throws Exception {
        Harness.need(Harness.HTTP, "HTTP listener");
        String topic = create("silence", 1);
        for (int first : List.of(0, 3)) {
            produce(topic, numbers(first, 3));
            Harness.punctuate(topic);
            Harness.punctuate(topic);
        }
        Harness.same(bounds(topic), List.of(0L, 10L), "beginning and end");
        for (String level : List.of("read_committed", "read_uncommitted")) {
            var records = read(topic, 0, "isolation.level", level);
            Harness.same(values(records), List.of("0", "1", "2", "3", "4", "5"), level);
            Harness.same(records.stream().map(ConsumerRecord::offset).toList(), List.of(0L, 1L, 2L, 5L, 6L, 7L), "offsets");
            Harness.same(values(read(topic, 4, "isolation.level", level)), List.of("3", "4", "5"), "from 4");
            Harness.same(values(read(topic, 8, "isolation.level", level)), List.of(), "from 8");
        }
        Harness.same(take(topic, "silence", 4), List.of("0", "1", "2", "3", "6"), "first records and committed offset");
        Harness.same(take(topic, "silence", 2).subList(0, 2), List.of("4", "5"), "the other records");
        Harness.punctuate(topic);
        produce(topic, numbers(6, 2));
        Harness.same(take(topic, "silence", 2), List.of("6", "7", "13"), "what came after the silence");
    }

    // Idempotence and transactions.

    static void idempotentCut() throws Exception {
        String proxy = Harness.need(Harness.PROXY, "proxy");
        String topic = create("cut", 1);
        int before = Harness.cuts();
        var writer = producer("bootstrap.servers", proxy, "enable.idempotence", true, "linger.ms", 2, "batch.size", 200);
        List<Long> acked = produce(writer, topic, numbers(0, 500), 1, null);
        Harness.hold(Harness.cuts() > before, "no connection was cut");
        Harness.same(found(read(topic, 0)), texts(numbers(0, 500)), "records");
        Harness.same(acked, LongStream.range(0, 500).boxed().toList(), "acknowledged offsets");
    }

    static KafkaProducer<byte[], byte[]> transactional(String what, Object... more) {
        Object[] base = {"transactional.id", Harness.name(what), "transaction.timeout.ms", 30_000};
        var writer = producer(Stream.concat(Stream.of(base), Stream.of(more)).toArray());
        writer.initTransactions();
        return writer;
    }

    static void send(KafkaProducer<byte[], byte[]> writer, String topic, String... texts) {
        for (String text : texts) writer.send(new ProducerRecord<>(topic, text.getBytes()));
        writer.flush();
    }

    static List<String> committed(String topic) throws Exception {
        return values(read(topic, 0, "isolation.level", "read_committed"));
    }

    static void txn() throws Exception {
        String topic = create("txn", 1);
        try (var writer = transactional("txn")) {
            writer.beginTransaction();
            send(writer, topic, "a", "b");
            writer.commitTransaction();
            writer.beginTransaction();
            send(writer, topic, "x", "y");
            writer.abortTransaction();
            writer.beginTransaction();
            send(writer, topic, "c");
            writer.commitTransaction();
        }
        Harness.same(committed(topic), List.of("a", "b", "c"), "read_committed");
        Harness.same(values(read(topic, 0)), List.of("a", "b", "x", "y", "c"), "read_uncommitted");
    }

    /** Answers to the requests of a transaction are lost; each must still be done exactly once. */
    static void txnCut() throws Exception {
        String proxy = Harness.need(Harness.PROXY, "proxy");
        String topic = create("txn-cut", 1);
        int before = Harness.cuts();
        try (var writer = transactional("txn-cut", "bootstrap.servers", proxy)) {
            for (int n = 0; n < 6; n++) {
                writer.beginTransaction();
                send(writer, topic, "" + n);
                if (n % 2 == 0) writer.commitTransaction();
                else writer.abortTransaction();
            }
        }
        Harness.hold(Harness.cuts() > before, "no connection was cut");
        Harness.same(committed(topic), List.of("0", "2", "4"), "read_committed");
        Harness.same(values(read(topic, 0)), List.of("0", "1", "2", "3", "4", "5"), "read_uncommitted");
    }

    static void txnOpen() throws Exception {
        String topic = create("open", 1);
        try (var writer = transactional("open")) {
            writer.beginTransaction();
            send(writer, topic, "pending");
            produce(topic, List.of(new Row(null, "after".getBytes(), List.of())));
            Harness.same(committed(topic), List.of(), "while the transaction is open");
            writer.commitTransaction();
            Harness.until("both records", () -> committed(topic).equals(List.of("pending", "after")));
        }
    }

    /** A punctuation ends no transaction, neither an open one nor one that will be aborted. */
    static void punctuationTxn() throws Exception {
        Harness.need(Harness.HTTP, "HTTP listener");
        String topic = create("silence-txn", 1);
        try (var writer = transactional("silence-txn")) {
            for (var texts : List.of(List.of("a", "b"), List.of("x", "y"))) {
                writer.beginTransaction();
                for (String text : texts) {
                    send(writer, topic, text);
                    Harness.punctuate(topic);
                }
                if (texts.contains("a")) writer.commitTransaction();
                else writer.abortTransaction();
            }
        }
        Harness.punctuate(topic);
        Harness.same(committed(topic), List.of("a", "b"), "read_committed");
        Harness.same(values(read(topic, 0)), List.of("a", "b", "x", "y"), "read_uncommitted");
    }

    static void txnFence() throws Exception {
        String topic = create("zombie", 1);
        var zombie = transactional("zombie");
        zombie.beginTransaction();
        send(zombie, topic, "from the dead");
        try (var heir = transactional("zombie")) {
            List<String> fenced = List.of("ProducerFencedException", "InvalidProducerEpochException");
            Harness.fails("commit of a fenced producer", fenced, zombie::commitTransaction);
            heir.beginTransaction();
            send(heir, topic, "alive");
            heir.commitTransaction();
        }
        Harness.same(committed(topic), List.of("alive"), "records");
        zombie.close(Duration.ZERO);
    }

    static void txnOffsets() throws Exception {
        String source = create("source", 1);
        String target = create("target", 1);
        var partition = new TopicPartition(source, 0);
        produce(source, numbers(0, 20));
        try (var writer = transactional("offsets");
                var reader = consumer(Harness.name("transform"), "max.poll.records", 1, "isolation.level", "read_committed")) {
            reader.subscribe(List.of(source));
            transform(reader, writer, partition, target, 8, true);
            Harness.same(reader.committed(Set.of(partition)).get(partition).offset(), 8L, "offset after the commit");
            transform(reader, writer, partition, target, 5, false);
            Harness.same(reader.committed(Set.of(partition)).get(partition).offset(), 8L, "offset after the abort");
            reader.seek(partition, 8);
            transform(reader, writer, partition, target, 12, true);
            Harness.same(reader.committed(Set.of(partition)).get(partition).offset(), 20L, "offset at the end");
        }
        Harness.same(committed(target), IntStream.range(0, 20).mapToObj(n -> "" + 2 * n).toList(), "doubled numbers");
    }

    static void transform(KafkaConsumer<byte[], byte[]> reader, KafkaProducer<byte[], byte[]> writer, TopicPartition from, String target, int count, boolean commit) throws Exception {
        int[] done = {0};
        writer.beginTransaction();
        Harness.until("records", () -> {
            for (var record : reader.poll(Duration.ofMillis(100))) {
                done[0]++;
                writer.send(new ProducerRecord<>(target, ("" + 2 * Integer.parseInt(new String(record.value()))).getBytes()));
            }
            return done[0] == count;
        });
        writer.sendOffsetsToTransaction(Map.of(from, new OffsetAndMetadata(reader.position(from))), reader.groupMetadata());
        if (commit) writer.commitTransaction();
        else writer.abortTransaction();
    }

    // Who may come in.

    static Object[] sasl(String bootstrap, String password) {
        return sasl(bootstrap, Harness.USER, password);
    }

    static Object[] sasl(String bootstrap, String user, String password) {
        String module = "org.apache.kafka.common.security.plain.PlainLoginModule";
        String jaas = module + " required username=\"" + user + "\" password=\"" + password + "\";";
        return new Object[] {"bootstrap.servers", bootstrap, "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.jaas.config", jaas};
    }

    static Object[] scram(String bootstrap, String mechanism, String password) {
        return scram(bootstrap, mechanism, Harness.USER, password);
    }

    static Object[] scram(String bootstrap, String mechanism, String user, String password) {
        String module = "org.apache.kafka.common.security.scram.ScramLoginModule";
        String jaas = module + " required username=\"" + user + "\" password=\"" + password + "\";";
        return new Object[] {"bootstrap.servers", bootstrap, "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", mechanism, "sasl.jaas.config", jaas};
    }

    static void roundTrip(String what, Object[] conf) throws Exception {
        String topic = create(what, 1);
        produce(producer(conf), topic, records(), 1, null);
        Harness.same(found(read(topic, 0, conf)), texts(records()), "records");
    }

    /** A share consumer is told that the server has no share groups. Early clients have no such consumer. */
    static void shareRefused() throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.clients.consumer.KafkaShareConsumer");
        } catch (ClassNotFoundException older) {
            throw new Harness.Skip("the client has no share consumers");
        }
        var features = get(ADMIN.describeFeatures().featureMetadata()).finalizedFeatures();
        var share = features.get("share.version");
        if (share != null && share.maxVersionLevel() > 0) throw new Harness.Skip("the server has share groups");
        String topic = create("share", 1);
        Map<String, Object> conf = with(plain(), "group.id", Harness.name("share"));
        var constructor = type.getConstructor(Map.class, Deserializer.class, Deserializer.class);
        Object consumer = constructor.newInstance(conf, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        try {
            type.getMethod("subscribe", Collection.class).invoke(consumer, List.of(topic));
            var poll = type.getMethod("poll", Duration.class);
            Harness.fails("a poll of a share consumer", List.of("UnsupportedVersionException"),
                    () -> Harness.until("an error", () -> poll.invoke(consumer, Duration.ofMillis(100)) == null));
        } finally {
            // Version 3.9 waits for the end of a session that never began.
            type.getMethod("close", Duration.class).invoke(consumer, Duration.ofSeconds(1));
        }
    }

    static void saslWrong() throws Exception {
        refused(sasl(Harness.need(Harness.SASL, "SASL listener"), "wrong"));
    }

    static void saslScram() throws Exception {
        Harness.need(Harness.HTTP, "keys with SCRAM verifiers");
        for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
            String broker = Harness.need(Harness.SASL, "SASL listener");
            roundTrip(mechanism.toLowerCase(), scram(broker, mechanism, Harness.PASSWORD));
            refused(scram(broker, mechanism, "wrong"));
        }
    }

    /** A user is made with a password and rights by the admin client, logs in, and may do what it was given and nothing else. */
    static void usersAdmin() throws Exception {
        Harness.need(Harness.HTTP, "keys with SCRAM verifiers");
        String broker = Harness.need(Harness.SASL, "SASL listener");
        String user = Harness.name("user"), mine = create("users-mine", 1), other = create("users-other", 1);
        var mechanism = ScramMechanism.SCRAM_SHA_256;
        var credential = new ScramCredentialInfo(mechanism, 8192);
        get(ADMIN.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, credential, "pa55word"))).all());
        Harness.same(get(ADMIN.describeUserScramCredentials(List.of(user)).all()).get(user).credentialInfos(), List.of(credential), "credentials");
        Object[] login = scram(broker, "SCRAM-SHA-256", user, "pa55word");
        var topic = new ResourcePattern(ResourceType.TOPIC, mine, PatternType.LITERAL);
        List<AclBinding> acls = new ArrayList<>();
        for (var operation : List.of(AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE))
            acls.add(new AclBinding(topic, new AccessControlEntry("User:" + user, "*", operation, AclPermissionType.ALLOW)));
        Harness.fails("a topic without a right", List.of("TopicAuthorizationException"), () -> read(mine, 0, login));
        get(ADMIN.createAcls(acls).all());
        produce(producer(login), mine, records(), 1, null);
        Harness.same(read(mine, 0, login).size(), records().size(), "records");
        Harness.fails("another topic", List.of("TopicAuthorizationException"), () -> read(other, 0, login));
        // The same password by PLAIN.
        Object[] plainLogin = sasl(broker, user, "pa55word");
        produce(producer(plainLogin), mine, records(), 1, null);
        var quota = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        var rate = new ClientQuotaAlteration(quota, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6)));
        get(ADMIN.alterClientQuotas(List.of(rate)).all());
        var found = get(ADMIN.describeClientQuotas(ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)))).entities());
        Harness.same(found.get(quota), Map.of("producer_byte_rate", 1e6), "quota");
        var deny = new AclBinding(topic, new AccessControlEntry("User:" + user, "*", AclOperation.READ, AclPermissionType.DENY));
        get(ADMIN.createAcls(List.of(deny)).all());
        var denials = new AclBindingFilter(topic.toFilter(), new AccessControlEntryFilter(null, null, AclOperation.ANY, AclPermissionType.DENY));
        Harness.same(List.copyOf(get(ADMIN.describeAcls(denials).values())), List.of(deny), "rules that deny");
        Harness.fails("a right that is denied", List.of("TopicAuthorizationException"), () -> read(mine, 0, login));
        produce(producer(login), mine, records(), 1, null);
        get(ADMIN.deleteAcls(List.of(denials)).all());
        Harness.same(read(mine, 0, login).isEmpty(), false, "a right that is denied no longer");
        everybody(other);
        get(ADMIN.deleteAcls(List.of(new AclBindingFilter(topic.toFilter(), AccessControlEntryFilter.ANY))).all());
        Harness.fails("a right that was taken", List.of("TopicAuthorizationException"), () -> read(mine, 0, login));
        get(ADMIN.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(user, mechanism))).all());
        refused(login);
    }

    /** What is denied to everybody is denied to a client without a login, too, which can still take the rule back. */
    static void everybody(String topic) throws Exception {
        var pattern = new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL);
        var deny = new AclBinding(pattern, new AccessControlEntry("User:*", "*", AclOperation.ALL, AclPermissionType.DENY));
        get(ADMIN.createAcls(List.of(deny)).all());
        Harness.same(List.copyOf(get(ADMIN.describeAcls(deny.toFilter()).values())), List.of(deny), "a rule for everybody");
        Harness.fails("a topic that is denied to everybody", List.of("TopicAuthorizationException"), () -> read(topic, 0));
        Harness.same(List.copyOf(get(ADMIN.deleteAcls(List.of(deny.toFilter())).all())), List.of(deny), "the rule that was taken");
        read(topic, 0);
    }

    /** Sets a setting, or resets it if the value is null. */
    static void alter(ConfigResource resource, String name, String value) throws Exception {
        var type = value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET;
        var op = new AlterConfigOp(new ConfigEntry(name, value), type);
        get(ADMIN.incrementalAlterConfigs(Map.of(resource, List.of(op))).all());
    }

    static ConfigEntry setting(ConfigResource resource, String name) throws Exception {
        return get(ADMIN.describeConfigs(List.of(resource)).all()).get(resource).get(name);
    }

    /** A setting of the broker is changed while it runs, and one of its start is not. */
    static void brokerSettings() throws Exception {
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        String name = "log.cleaner.backoff.ms", value = String.valueOf(20_000 + Math.floorMod(Harness.RUN.hashCode(), 1000));
        // Another client may do the same.
        Harness.until("a changed setting", () -> {
            alter(broker, name, value);
            var found = setting(broker, name);
            return found.value().equals(value) && found.source() == ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG;
        });
        Harness.until("a setting that was reset", () -> {
            alter(broker, name, null);
            return setting(broker, name).source() == ConfigEntry.ConfigSource.DEFAULT_CONFIG;
        });
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, create("defaults", 1));
        var every = new ConfigResource(ConfigResource.Type.BROKER, "");
        Harness.until("a default of topics", () -> {
            alter(every, "log.cleaner.delete.retention.ms", value);
            var found = setting(topic, "delete.retention.ms");
            return found.value().equals(value) && found.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
        });
        alter(topic, "delete.retention.ms", "7");
        Harness.same(setting(topic, "delete.retention.ms").value(), "7", "the topic's own");
        alter(topic, "delete.retention.ms", null);
        Harness.until("a default that was reset", () -> {
            alter(every, "log.cleaner.delete.retention.ms", null);
            return setting(topic, "delete.retention.ms").source() == ConfigEntry.ConfigSource.DEFAULT_CONFIG;
        });
        Harness.fails("a setting of the start", List.of("InvalidRequestException"), () -> alter(broker, "node.id", "5"));
        Harness.fails("a wrong value", List.of("InvalidRequestException"), () -> alter(broker, name, "soon"));
    }

    /** What a subscription asks for is pushed by a producer and on the page of metrics. */
    static void clientMetrics() throws Exception {
        Harness.need(Harness.HTTP, "page of metrics");
        String id = Harness.name("metrics"), topic = create("metrics", 1);
        var subscription = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, id);
        alter(subscription, "interval.ms", "1000");
        alter(subscription, "match", "client_id=" + id);
        alter(subscription, "metrics", "org.apache.kafka.producer.");
        try (var producer = producer("client.id", id)) {
            Harness.until("metrics of the client", () -> {
                producer.send(new ProducerRecord<>(topic, "x".getBytes())).get();
                Thread.sleep(100);
                return Harness.metrics().anyMatch(line -> line.startsWith("highwater_kafka_client_metric{client=\"" + id + "\""));
            });
        }
        for (String name : List.of("interval.ms", "match", "metrics")) alter(subscription, name, null);
    }

    static void refused(Object[] conf) throws Exception {
        try (var admin = Admin.create(with(plain(), conf))) {
            Harness.fails("wrong password", List.of("SaslAuthenticationException"), () -> get(admin.listTopics().names()));
        }
    }

    static Object[] oauth(String bootstrap, String token) {
        String module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
        String jaas = module + " required token=\"" + token + "\";";
        return new Object[] {
            "bootstrap.servers", bootstrap, "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER",
            "sasl.jaas.config", jaas, "sasl.login.callback.handler.class", TokenHandler.class.getName()
        };
    }

    static void saslOauth() throws Exception {
        String broker = Harness.need(Harness.SASL, "SASL listener");
        roundTrip("oauth", oauth(broker, Harness.credential("token")));
        refused(oauth(broker, Harness.credential("token.forged")));
        refused(oauth(broker, Harness.credential("token.expired")));
    }

    /** The client logs in again on its connection before its token expires: nobody is disconnected. */
    static void oauthRenewal() throws Exception {
        String broker = Harness.need(Harness.SASL, "SASL listener");
        Harness.credential("token");
        String topic = create("renewal", 1);
        double expired = Harness.metric("highwater_kafka_sessions_expired_total");
        Object[] early = {"sasl.login.refresh.min.period.seconds", (short) 0, "sasl.login.refresh.buffer.seconds", (short) 0};
        Object[] conf = Stream.concat(Stream.of(oauth(broker, TokenHandler.RENEWED)), Stream.of(early)).toArray();
        try (var producer = producer(conf)) {
            long end = System.currentTimeMillis() + 2500 * TokenHandler.SESSION_S;
            while (System.currentTimeMillis() < end) {
                producer.send(new ProducerRecord<>(topic, "x".getBytes())).get();
                Thread.sleep(100);
            }
            double renewed = producer.metrics().entrySet().stream()
                    .filter(metric -> metric.getKey().name().equals("successful-reauthentication-total"))
                    .mapToDouble(metric -> (double) metric.getValue().metricValue())
                    .max().orElse(0);
            Harness.hold(renewed >= 2, "the client renewed its login " + renewed + " times");
        }
        Harness.same(Harness.metric("highwater_kafka_sessions_expired_total"), expired, "expired sessions");
    }

    static void mtls() throws Exception {
        String broker = Harness.need(Harness.MTLS, "listener that asks for certificates");
        Object[] trust = {"bootstrap.servers", broker, "security.protocol", "SSL", "ssl.truststore.type", "PEM", "ssl.truststore.location", Harness.CA};
        roundTrip("mtls", Stream.concat(Stream.of(trust), Stream.of(certificate("client"))).toArray());
        for (Object[] own : List.of(certificate("other"), new Object[0])) {
            try (var admin = Admin.create(with(with(plain(), trust), own))) {
                Harness.fails("without a certificate of the authority", List.of("SslAuthenticationException"), () -> get(admin.listTopics().names()));
            }
        }
    }

    static Object[] certificate(String name) throws Exception {
        return new Object[] {
            "ssl.keystore.type", "PEM", "ssl.keystore.certificate.chain", Harness.credential(name + ".pem"),
            "ssl.keystore.key", Harness.credential(name + ".key")
        };
    }

    static void tls() throws Exception {
        Object[] login = sasl(Harness.need(Harness.TLS, "TLS listener"), Harness.PASSWORD);
        Object[] trust = {"security.protocol", "SASL_SSL", "ssl.truststore.type", "PEM", "ssl.truststore.location", Harness.CA};
        roundTrip("tls", Stream.concat(Stream.of(login), Stream.of(trust)).toArray());
        try (var admin = Admin.create(with(with(plain(), login), "security.protocol", "SASL_SSL"))) {
            Harness.fails("without the authority", List.of("SslAuthenticationException"), () -> get(admin.listTopics().names()));
        }
    }
}
