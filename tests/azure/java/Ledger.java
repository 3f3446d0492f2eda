import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/** azure-messaging-eventhubs and azure-messaging-servicebus for python/ledger.py, which says what is printed: Ledger AMQP_PORT. */
public final class Ledger {
    private static final int BATCH = 10;
    /** Messages that may wait in the queue. */
    private static final int AHEAD_MAX = 200;
    private static final AmqpRetryOptions NO_RETRY = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(5));

    private static final AtomicInteger AHEAD = new AtomicInteger();

    private static volatile boolean sends = true;
    private static String connection;

    /** Works until it fails or has nothing more to do. */
    private interface Work {
        void run() throws Exception;
    }

    private static synchronized void say(String what, List<String> names) {
        names.forEach(name -> System.out.println(what + " " + name));
    }

    private static List<String> numbered(String kind, int from) {
        return IntStream.range(from, from + BATCH).mapToObj(number -> kind + "-" + number).toList();
    }

    /** Runs the work again and again, while there is something to do. */
    private static void repeat(boolean whileSending, Work work) {
        Thread thread = new Thread(() -> {
            while (sends || !whileSending) {
                try {
                    work.run();
                } catch (Exception gone) {
                    pause();
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static ServiceBusClientBuilder bus() {
        return new ServiceBusClientBuilder().connectionString(connection).retryOptions(NO_RETRY);
    }

    private static void sendEvents(int[] at) {
        try (EventHubProducerClient producer = new EventHubClientBuilder().connectionString(connection, "ledger").retryOptions(NO_RETRY)
                .buildProducerClient()) {
            while (sends) {
                List<String> names = numbered("e", at[0]);
                List<EventData> events = names.stream().map(EventData::new).toList();
                producer.send(events, new SendOptions().setPartitionId(String.valueOf(at[0] / BATCH % 2)));
                say("event", names);
                at[0] += BATCH;
            }
        }
    }

    private static void sendMessages(int[] at) {
        try (ServiceBusSenderClient sender = bus().sender().queueName("ledger").buildClient()) {
            while (sends) {
                if (AHEAD.get() > AHEAD_MAX) {
                    pause();
                    continue;
                }
                List<String> names = numbered("m", at[0]);
                List<ServiceBusMessage> messages = new ArrayList<>();
                names.forEach(name -> messages.add(new ServiceBusMessage(name).setMessageId(name)));
                sender.sendMessages(messages);
                say("sent", names);
                at[0] += BATCH;
                AHEAD.addAndGet(BATCH);
            }
        }
    }

    private static void receive() {
        try (ServiceBusReceiverClient receiver = bus().receiver().queueName("ledger").disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient()) {
            while (true) {
                for (ServiceBusReceivedMessage message : receiver.receiveMessages(5, Duration.ofSeconds(1))) {
                    List<String> name = List.of(message.getMessageId());
                    say("received", name);
                    receiver.complete(message);
                    say("completed", name);
                    AHEAD.decrementAndGet();
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        connection = "Endpoint=sb://127.0.0.1:" + args[0] + ";SharedAccessKeyName=k;SharedAccessKey=s;UseDevelopmentEmulator=true;";
        int[] events = {0};
        int[] messages = {0};
        repeat(true, () -> sendEvents(events));
        repeat(true, () -> sendMessages(messages));
        repeat(false, Ledger::receive);
        while (System.in.read() >= 0) {
            sends = false;
        }
        System.exit(0);
    }
}
