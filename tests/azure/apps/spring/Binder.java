package checks;

import com.azure.spring.messaging.servicebus.support.ServiceBusMessageHeaders;
import com.azure.spring.messaging.checkpoint.Checkpointer;
import com.azure.spring.messaging.AzureHeaders;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/**
 * Spring Cloud Azure's binder for Service Bus, unchanged, against a node: Binder AMQP_PORT QUEUE TOPIC SUBSCRIPTION
 * Sends to a queue and a topic with StreamBridge and consumes both with functions; a consumer that fails once gets its message again. Ends with 1
 * if a message is missing.
 */
@SpringBootApplication
public class Binder {
    static final int COUNT = 20;
    static final Map<String, Set<String>> GOT = Map.of("queue", ConcurrentHashMap.newKeySet(), "topic", ConcurrentHashMap.newKeySet());
    static final CountDownLatch ALL = new CountDownLatch(2 * COUNT);
    static final Set<String> FAILED = ConcurrentHashMap.newKeySet();

    static void take(String from, Message<String> message) {
        String body = message.getPayload();
        if (!"north".equals(message.getHeaders().get("shop"))) {
            throw new IllegalStateException("the property is missing in " + message);
        }
        Checkpointer checkpointer = message.getHeaders().get(AzureHeaders.CHECKPOINTER, Checkpointer.class);
        if (body.endsWith("-7") && FAILED.add(from + body)) {
            checkpointer.failure().block();
            return;
        }
        checkpointer.success().block();
        if (GOT.get(from).add(body)) {
            ALL.countDown();
        }
    }

    @Bean
    Consumer<Message<String>> queue() {
        return message -> take("queue", message);
    }

    @Bean
    Consumer<Message<String>> topic() {
        return message -> take("topic", message);
    }

    public static void main(String[] args) throws Exception {
        String binding = "spring.cloud.stream.bindings.", azure = "spring.cloud.stream.servicebus.bindings.";
        Map<String, Object> settings = new java.util.HashMap<>();
        settings.put("spring.cloud.azure.servicebus.connection-string", "Endpoint=sb://localhost:" + args[0]
            + ";SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true;");
        settings.put("spring.cloud.function.definition", "queue;topic");
        for (String kind : new String[] {"queue", "topic"}) {
            String entity = kind.equals("queue") ? args[1] : args[2];
            settings.put(binding + kind + "-in-0.destination", entity);
            settings.put(azure + kind + "-in-0.consumer.entity-type", kind);
            settings.put(azure + kind + "-in-0.consumer.auto-complete", "false");
            settings.put(binding + kind + "-out.destination", entity);
            settings.put(azure + kind + "-out.producer.entity-type", kind);
        }
        settings.put(binding + "topic-in-0.group", args[3]);
        settings.put("logging.level.root", "ERROR");
        var context = new SpringApplicationBuilder(Binder.class).web(WebApplicationType.NONE).bannerMode(org.springframework.boot.Banner.Mode.OFF)
            .properties(settings).run();
        StreamBridge bridge = context.getBean(StreamBridge.class);
        for (String kind : new String[] {"queue", "topic"}) {
            for (int at = 0; at < COUNT; at++) {
                var message = MessageBuilder.withPayload(kind + "-" + at).setHeader("shop", "north")
                    .setHeader(ServiceBusMessageHeaders.MESSAGE_ID, kind + "-id-" + at).build();
                if (!bridge.send(kind + "-out", message)) {
                    throw new IllegalStateException("not sent");
                }
            }
        }
        boolean all = ALL.await(120, TimeUnit.SECONDS) && FAILED.size() == 2;
        System.out.println(all ? "ok    Spring Cloud Azure's binder for Service Bus"
            : "FAIL  Spring Cloud Azure's binder: got " + GOT);
        System.exit(all ? 0 : 1);
    }
}
