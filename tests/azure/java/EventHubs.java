import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.SendOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Microsoft's azure-messaging-eventhubs, unchanged, against a node: EventHubs AMQP_PORT HUB. The hub must have one partition and
 * be empty. Ends with 1 if a check fails.
 */
public final class EventHubs {
    private static void expect(boolean holds, String what, Object found) {
        if (!holds) {
            throw new AssertionError(what + ": " + found);
        }
    }

    private static EventHubClientBuilder builder(String[] args) {
        String text = "Endpoint=sb://127.0.0.1:" + args[0]
            + ";SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true;";
        return new EventHubClientBuilder().connectionString(text, args[1]);
    }

    private static List<PartitionEvent> receive(EventHubConsumerClient consumer, int count, EventPosition from) {
        List<PartitionEvent> events = new ArrayList<>();
        consumer.receiveFromPartition("0", count, from, Duration.ofSeconds(20)).forEach(events::add);
        return events;
    }

    private static void run(String[] args) {
        try (EventHubProducerClient producer = builder(args).buildProducerClient()) {
            expect(producer.getEventHubProperties().getPartitionIds().stream().count() == 1, "partitions", args[1]);
            EventData single = new EventData("single").setContentType("text/plain").setMessageId("m");
            single.getProperties().put("count", 7);
            single.getProperties().put("text", "ümlaut");
            producer.send(List.of(single), new SendOptions().setPartitionKey("one key"));
            var batch = producer.createBatch(new CreateBatchOptions().setPartitionId("0"));
            for (int number = 0; number < 10; number++) {
                expect(batch.tryAdd(new EventData("event " + number)), "room in the batch", number);
            }
            producer.send(batch);
            var partition = producer.getPartitionProperties("0");
            expect(partition.getLastEnqueuedSequenceNumber() == 10, "last number", partition.getLastEnqueuedSequenceNumber());
        }
        try (EventHubConsumerClient consumer = builder(args).consumerGroup("$Default").buildConsumerClient()) {
            List<PartitionEvent> events = receive(consumer, 11, EventPosition.earliest());
            expect(events.size() == 11, "events", events.size());
            EventData first = events.get(0).getData();
            expect(first.getBodyAsString().equals("single") && first.getPartitionKey().equals("one key"), "body and key", first);
            expect(first.getContentType().equals("text/plain") && first.getMessageId().equals("m"), "properties", first);
            expect(first.getProperties().get("count").equals(7), "type of a property", first.getProperties());
            expect(first.getProperties().get("text").equals("ümlaut"), "text", first.getProperties());
            var rest = receive(consumer, 3, EventPosition.fromSequenceNumber(7));
            expect(rest.size() == 3 && rest.get(0).getData().getBodyAsString().equals("event 7"), "after a number", rest.size());
        }
    }

    public static void main(String[] args) {
        try {
            run(args);
            System.out.println("ok    Java");
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
