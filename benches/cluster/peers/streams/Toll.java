import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * W2 on Kafka Streams: cars, takings and average toll of each booth and minute, rows when a minute is complete.
 *
 * <p>Arguments: servers, topic of the events, topic of the rows, application id, folder of the state, guarantee.
 */
public final class Toll {
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class Entry {
        public int TollId;
        public String EntryTime;
        public double Toll;
    }

    public static final class Row {
        public int TollId;
        public String WindowEnd;
        public long Cars;
        public double Takings;
        public double AverageToll;
    }

    /** Cars and takings so far. */
    record Sum(long cars, double takings) {}

    private static final ObjectMapper JSON = new ObjectMapper();

    private static Entry read(byte[] bytes) {
        try {
            return JSON.readValue(bytes, Entry.class);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static byte[] write(Object value) {
        try {
            return JSON.writeValueAsBytes(value);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Serde<Sum> sums() {
        Serializer<Sum> to = (topic, sum) ->
            ByteBuffer.allocate(16).putLong(sum.cars()).putDouble(sum.takings()).array();
        Deserializer<Sum> from = (topic, bytes) -> {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            return new Sum(buffer.getLong(), buffer.getDouble());
        };
        return Serdes.serdeFrom(to, from);
    }

    private static Row row(int toll, long end, Sum sum) {
        Row row = new Row();
        row.TollId = toll;
        row.WindowEnd = Instant.ofEpochMilli(end).toString();
        row.Cars = sum.cars();
        row.Takings = sum.takings();
        row.AverageToll = sum.takings() / sum.cars();
        return row;
    }

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put("auto.offset.reset", "earliest");
        settings.put(StreamsConfig.producerPrefix("linger.ms"), 20);
        settings.put(StreamsConfig.producerPrefix("batch.size"), 1 << 20);
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 10_000);

        StreamsBuilder builder = new StreamsBuilder();
        Consumed<byte[], byte[]> events = Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())
            .withTimestampExtractor((event, before) ->
                Instant.parse(read((byte[]) event.value()).EntryTime).toEpochMilli());
        builder.stream(args[1], events)
            .map((key, value) -> {
                Entry entry = read(value);
                return KeyValue.pair(entry.TollId, entry.Toll);
            })
            .groupByKey(Grouped.with(Serdes.Integer(), Serdes.Double()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(5)))
            .aggregate(
                () -> new Sum(0, 0),
                (toll, paid, sum) -> new Sum(sum.cars() + 1, sum.takings() + paid),
                Materialized.with(Serdes.Integer(), sums()))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream()
            .map((window, sum) -> KeyValue.pair(window.key(), write(row(window.key(), window.window().end(), sum))))
            .to(args[2], Produced.with(Serdes.Integer(), Serdes.ByteArray()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
