import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

/**
 * Microsoft's azure-messaging-servicebus, unchanged, against a node: ServiceBus AMQP_PORT QUEUE SESSION_QUEUE RESULTS. The queues
 * must be empty; messages of the second belong to sessions. Ends with 1 if a check fails.
 */
public final class ServiceBus {
    private static void expect(boolean holds, String what, Object found) {
        if (!holds) {
            throw new AssertionError(what + ": " + found);
        }
    }

    private static ServiceBusClientBuilder builder(String[] args) {
        return new ServiceBusClientBuilder().connectionString("Endpoint=sb://127.0.0.1:" + args[0]
            + ";SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true;");
    }

    private static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient from, int count) {
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        for (int tries = 0; got.size() < count && tries < 20; tries++) {
            from.receiveMessages(count - got.size(), Duration.ofSeconds(2)).forEach(got::add);
        }
        expect(got.size() == count, "messages", got.size());
        return got;
    }

    private static void queue(String[] args) {
        var queue = args[1];
        try (ServiceBusSenderClient sender = builder(args).sender().queueName(queue).buildClient();
             ServiceBusReceiverClient receiver = builder(args).receiver().queueName(queue).disableAutoComplete()
                 .maxAutoLockRenewDuration(Duration.ZERO).buildClient()) {
            List<ServiceBusMessage> messages = new ArrayList<>();
            for (String body : List.of("complete", "abandon", "defer", "kill")) {
                ServiceBusMessage message = new ServiceBusMessage(body).setSubject("label");
                message.getApplicationProperties().put("count", 7L);
                messages.add(message);
            }
            sender.sendMessages(messages);
            List<ServiceBusReceivedMessage> got = receive(receiver, 4);
            ServiceBusReceivedMessage first = got.get(0);
            expect(first.getBody().toString().equals("complete") && first.getDeliveryCount() == 0, "first", first.getBody());
            expect(first.getSubject().equals("label") && first.getApplicationProperties().get("count").equals(7L), "properties", first);
            expect(receiver.renewMessageLock(first).isAfter(OffsetDateTime.now()), "renewed", first.getLockedUntil());
            receiver.complete(first);
            receiver.abandon(got.get(1));
            receiver.defer(got.get(2));
            receiver.deadLetter(got.get(3), new DeadLetterOptions().setDeadLetterReason("bad").setDeadLetterErrorDescription("very"));
            ServiceBusReceivedMessage again = receive(receiver, 1).get(0);
            expect(again.getBody().toString().equals("abandon") && again.getDeliveryCount() == 1, "abandoned", again.getBody());
            receiver.complete(again);
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.get(2).getSequenceNumber());
            receiver.complete(deferred);
            long number = sender.scheduleMessage(new ServiceBusMessage("later"), OffsetDateTime.now().plusHours(1));
            expect(receiver.peekMessage().getSequenceNumber() == number, "scheduled", number);
            sender.cancelScheduledMessage(number);
            sender.sendMessage(new ServiceBusMessage(BinaryData.fromString("gone")));
        }
        try (ServiceBusReceiverClient dead = builder(args).receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE)
                 .disableAutoComplete().buildClient();
             ServiceBusReceiverClient fast = builder(args).receiver().queueName(queue)
                 .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            ServiceBusReceivedMessage letter = receive(dead, 1).get(0);
            expect(letter.getDeadLetterReason().equals("bad"), "reason", letter.getDeadLetterReason());
            dead.complete(letter);
            expect(receive(fast, 1).get(0).getBody().toString().equals("gone"), "received for good", queue);
        }
    }

    private static void sessions(String[] args) {
        try (ServiceBusSenderClient sender = builder(args).sender().queueName(args[2]).buildClient()) {
            for (String id : List.of("a", "b")) {
                sender.sendMessage(new ServiceBusMessage("in " + id).setSessionId(id));
            }
        }
        try (var client = builder(args).sessionReceiver().queueName(args[2]).disableAutoComplete().buildClient()) {
            try (ServiceBusReceiverClient session = client.acceptSession("a")) {
                session.setSessionState("state".getBytes());
                expect(new String(session.getSessionState()).equals("state"), "state", args[2]);
                expect(session.renewSessionLock().isAfter(OffsetDateTime.now()), "renewed", args[2]);
                ServiceBusReceivedMessage message = receive(session, 1).get(0);
                expect(message.getBody().toString().equals("in a"), "message", message.getBody());
                session.complete(message);
            }
            try (ServiceBusReceiverClient session = client.acceptNextSession()) {
                expect(session.getSessionId().equals("b"), "next session", session.getSessionId());
                session.complete(receive(session, 1).get(0));
            }
        }
    }

    /** Messages are completed and sent in a transaction over two queues, and rolled back. */
    private static void transactions(String[] args) {
        var builder = builder(args).enableCrossEntityTransactions();
        try (ServiceBusReceiverClient receiver = builder.receiver().queueName(args[1]).disableAutoComplete()
                 .maxAutoLockRenewDuration(Duration.ZERO).buildClient();
             ServiceBusSenderClient sender = builder.sender().queueName(args[1]).buildClient();
             ServiceBusSenderClient other = builder.sender().queueName(args[3]).buildClient();
             ServiceBusReceiverClient results = builder(args).receiver().queueName(args[3])
                 .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("work"));
            ServiceBusReceivedMessage work = receive(receiver, 1).get(0);

            ServiceBusTransactionContext undone = sender.createTransaction();
            other.sendMessage(new ServiceBusMessage("never"), undone);
            sender.sendMessage(new ServiceBusMessage("never"), undone);
            sender.rollbackTransaction(undone);

            ServiceBusTransactionContext done = sender.createTransaction();
            receiver.complete(work, new CompleteOptions().setTransactionContext(done));
            other.sendMessage(new ServiceBusMessage("result"), done);
            other.sendMessages(List.of(new ServiceBusMessage("more"), new ServiceBusMessage("and more")), done);
            expect(results.peekMessage() == null, "nothing before the commit", args[3]);
            sender.commitTransaction(done);
            List<String> bodies = receive(results, 3).stream().map(message -> message.getBody().toString()).toList();
            expect(bodies.equals(List.of("result", "more", "and more")), "committed", bodies);
            expect(receiver.peekMessage() == null, "the work is done", args[1]);

            ServiceBusTransactionContext late = sender.createTransaction();
            other.sendMessage(new ServiceBusMessage("never"), late);
            for (int number = 0; number < 100; number++) {
                try {
                    other.sendMessage(new ServiceBusMessage("x"), late);
                } catch (RuntimeException tooMany) {
                    break;
                }
            }
            try {
                sender.commitTransaction(late);
                expect(false, "a transaction of 101 messages", "was committed");
            } catch (RuntimeException refused) {
                expect(results.peekMessage() == null, "nothing of it is done", args[3]);
            }
        }
    }

    public static void main(String[] args) {
        try {
            queue(args);
            sessions(args);
            transactions(args);
            System.out.println("ok    Java, Service Bus");
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
