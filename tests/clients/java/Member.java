import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;

/** A member of a group on a thread of its own. It commits what it was given before it gives a partition up. */
final class Member implements ConsumerRebalanceListener {
    record Seen(String member, int partition, long offset, int number) {}

    final AtomicInteger count = new AtomicInteger();
    final AtomicInteger revoked = new AtomicInteger();
    private final Set<Integer> held = Collections.synchronizedSet(new TreeSet<>());
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Thread thread;
    private volatile RuntimeException error;
    private volatile boolean stopping;

    Member(String name, String topic, KafkaConsumer<byte[], byte[]> consumer, List<Seen> seen) {
        this.consumer = consumer;
        this.thread = new Thread(() -> run(name, topic, seen), name);
        thread.start();
    }

    private void run(String name, String topic, List<Seen> seen) {
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            while (!stopping) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    int number = Integer.parseInt(new String(record.value()));
                    seen.add(new Seen(name, record.partition(), record.offset(), number));
                    count.incrementAndGet();
                }
            }
            consumer.commitSync();
        } catch (RuntimeException thrown) {
            error = thrown;
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(p -> held.add(p.partition()));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (partitions.isEmpty()) return;
        consumer.commitSync();
        partitions.forEach(p -> held.remove(p.partition()));
        revoked.incrementAndGet();
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(p -> held.remove(p.partition()));
    }

    Set<Integer> partitions() {
        synchronized (held) {
            return new TreeSet<>(held);
        }
    }

    void leave() throws InterruptedException {
        stopping = true;
        thread.join(Harness.WAIT_MS);
        if (error != null) throw error;
    }
}
