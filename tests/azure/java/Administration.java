import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import java.net.URL;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * The administration client of azure-messaging-servicebus, unchanged, against a node, and topics: Administration HTTPS_PORT
 * AMQP_PORT. The client drops the port of its connection string, so that a policy puts it back; javax.net.ssl.trustStore has the
 * authority. Ends with 1 if a check fails.
 */
public final class Administration {
    private static final String KEY = ";SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;";

    private static void expect(boolean holds, String what, Object found) {
        if (!holds) {
            throw new AssertionError(what + ": " + found);
        }
    }

    private static void fails(Runnable act, String what) {
        try {
            act.run();
        } catch (RuntimeException expected) {
            return;
        }
        throw new AssertionError(what + " does not fail");
    }

    private static ServiceBusAdministrationClient client(int port) {
        HttpPipelinePolicy toPort = (context, next) -> {
            URL url = context.getHttpRequest().getUrl();
            try {
                context.getHttpRequest().setUrl(new URL(url.getProtocol(), url.getHost(), port, url.getFile()));
            } catch (java.net.MalformedURLException impossible) {
                throw new IllegalStateException(impossible);
            }
            return next.process();
        };
        return new ServiceBusAdministrationClientBuilder().connectionString("Endpoint=sb://127.0.0.1" + KEY)
            .addPolicy(toPort).buildClient();
    }

    private static void queues(ServiceBusAdministrationClient admin) {
        String name = "java-admin";
        expect(admin.getNamespaceProperties().getName() != null, "namespace", "no name");
        expect(!admin.getQueueExists(name), "queue", "exists");
        QueueProperties made = admin.createQueue(name,
            new CreateQueueOptions().setLockDuration(Duration.ofSeconds(30)).setMaxDeliveryCount(7));
        expect(made.getLockDuration().equals(Duration.ofSeconds(30)), "lock", made.getLockDuration());
        fails(() -> admin.createQueue(name), "a second queue");
        QueueProperties queue = admin.getQueue(name).setLockDuration(Duration.ofMinutes(2));
        QueueProperties changed = admin.updateQueue(queue);
        expect(changed.getLockDuration().equals(Duration.ofMinutes(2)), "changed lock", changed.getLockDuration());
        expect(changed.getMaxDeliveryCount() == 7, "deliveries", changed.getMaxDeliveryCount());
        expect(admin.getQueueRuntimeProperties(name).getActiveMessageCount() == 0, "count", name);
        expect(admin.listQueues().stream().anyMatch(of -> of.getName().equals(name)), "list", name);
        admin.deleteQueue(name);
        expect(!admin.getQueueExists(name), "deleted queue", "exists");
    }

    private static List<String> take(ServiceBusClientBuilder builder, String topic, String subscription, int count) {
        List<String> got = new ArrayList<>();
        try (ServiceBusReceiverClient receiver = builder.receiver().topicName(topic).subscriptionName(subscription)
                 .disableAutoComplete().buildClient()) {
            for (int tries = 0; got.size() < count && tries < 20; tries++) {
                for (ServiceBusReceivedMessage message : receiver.receiveMessages(count - got.size(), Duration.ofSeconds(2))) {
                    got.add(message.getBody().toString() + " " + message.getApplicationProperties().get("grams"));
                    receiver.complete(message);
                }
            }
        }
        return got;
    }

    private static void topics(ServiceBusAdministrationClient admin, ServiceBusClientBuilder builder) {
        String topic = "java-topic";
        admin.createTopic(topic);
        admin.createSubscription(topic, "all", new CreateSubscriptionOptions().setMaxDeliveryCount(3));
        admin.createSubscription(topic, "red", "red", new CreateSubscriptionOptions(), new CreateRuleOptions(
            new SqlRuleFilter("colour = 'red' AND grams > 100")).setAction(new SqlRuleAction("SET grams = grams + 1")));
        CorrelationRuleFilter special = new CorrelationRuleFilter().setLabel("special");
        // The client sends values of filters as texts, whatever their type.
        special.getProperties().put("origin", "ES");
        admin.createRule(topic, "special", "red", new CreateRuleOptions(special));
        expect(admin.listRules(topic, "red").stream().count() == 2, "rules", topic);
        CorrelationRuleFilter found = (CorrelationRuleFilter) admin.getRule(topic, "red", "special").getFilter();
        expect(found.getLabel().equals("special"), "filter", found);
        try (ServiceBusSenderClient sender = builder.sender().topicName(topic).buildClient()) {
            List<ServiceBusMessage> messages = new ArrayList<>();
            for (String apple : List.of("heavy red 150", "light red 50", "green green 150")) {
                String[] parts = apple.split(" ");
                ServiceBusMessage message = new ServiceBusMessage(parts[0]);
                message.getApplicationProperties().put("colour", parts[1]);
                message.getApplicationProperties().put("grams", Integer.valueOf(parts[2]));
                messages.add(message);
            }
            sender.sendMessages(messages);
            ServiceBusMessage message = new ServiceBusMessage("special").setSubject("special");
            message.getApplicationProperties().put("origin", "ES");
            sender.sendMessage(message);
        }
        List<String> all = take(builder, topic, "all", 4);
        expect(all.equals(List.of("heavy 150", "light 50", "green 150", "special null")), "all", all);
        List<String> red = take(builder, topic, "red", 2);
        expect(red.equals(List.of("heavy 151", "special null")), "red", red);
        expect(admin.getTopicRuntimeProperties(topic).getSubscriptionCount() == 2, "subscriptions", topic);
        admin.deleteTopic(topic);
        expect(!admin.getTopicExists(topic), "deleted topic", "exists");
    }

    public static void main(String[] args) {
        try {
            ServiceBusAdministrationClient admin = client(Integer.parseInt(args[0]));
            queues(admin);
            System.out.println("ok    Java, administration");
            topics(admin, new ServiceBusClientBuilder().connectionString(
                "Endpoint=sb://127.0.0.1:" + args[1] + KEY + "UseDevelopmentEmulator=true;"));
            System.out.println("ok    Java, topics");
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
