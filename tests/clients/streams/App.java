import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Counts clicks by user and minute, and joins each click with the name of its user, exactly once. Runs until it is killed, or ends
 * with 1 after an error, which is on its standard error. The fourth argument is the group protocol.
 */
public class App {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], run = args[1], state = args[2];
        String protocol = args.length > 3 ? args[3] : "classic";
        Properties settings = new Properties();
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + run);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // With the streams protocol the server says it.
        if (protocol.equals("classic")) settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 6000);

        StreamsBuilder builder = new StreamsBuilder();
        var strings = Serdes.String();
        var clicks = builder.stream("clicks-" + run, Consumed.with(strings, strings));
        var names = builder.table("names-" + run, Consumed.with(strings, strings));
        clicks.join(names, (click, name) -> name + " " + click).to("joined-" + run, Produced.with(strings, strings));
        clicks.groupByKey()
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .count()
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(count -> count.toString())
            .to("counts-" + run, Produced.with(strings, strings));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        var failed = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) failed.countDown();
        });
        streams.start();
        failed.await();
        Runtime.getRuntime().halt(1);
    }
}
