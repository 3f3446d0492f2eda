import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.stream.Stream;

/** The servers to talk to and the way to report; the checks themselves are in Checks. */
final class Harness {
    static final String BOOTSTRAP = env("HW_BOOTSTRAP", "127.0.0.1:9092");
    static final String SASL = env("HW_SASL", null);
    static final String TLS = env("HW_TLS", null);
    static final String CA = env("HW_CA", null);
    static final String HTTP = env("HW_HTTP", null);
    static final String MTLS = env("HW_MTLS", null);
    static final String CREDENTIALS = env("HW_CREDENTIALS", null);
    static final String USER = env("HW_USER", "app");
    static final String PASSWORD = env("HW_PASSWORD", "s3cret");
    static final String PROXY = env("HW_PROXY", null);
    static final String PROXY_LOG = env("HW_PROXY_LOG", null);
    static final String RUN = UUID.randomUUID().toString().substring(0, 8);
    static final long WAIT_MS = 30_000;

    static final class Skip extends RuntimeException {
        Skip(String why) {
            super(why);
        }
    }

    interface Act {
        void run() throws Exception;
    }

    private final Set<String> only;
    private int failed;

    Harness(String[] only) {
        this.only = Set.of(only);
    }

    void check(String name, Act act) {
        if (!only.isEmpty() && !only.contains(name)) return;
        long started = System.nanoTime();
        try {
            act.run();
            System.out.printf(Locale.ROOT, "ok %s %.1fs%n", name, (System.nanoTime() - started) / 1e9);
        } catch (Skip skip) {
            System.out.println("skip " + name + " " + skip.getMessage());
        } catch (Throwable error) {
            failed++;
            String text = error.toString().replaceAll("\\s+", " ");
            System.out.println("FAIL " + name + " " + text.substring(0, Math.min(400, text.length())));
            error.printStackTrace();
        }
    }

    void end() {
        System.out.flush();
        Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
    }

    static String name(String what) {
        return "java-" + what + "-" + RUN;
    }

    static String need(String value, String what) {
        if (value == null) throw new Skip("no " + what);
        return value;
    }

    /** A certificate, key or token of the user. */
    static String credential(String name) throws IOException {
        return Files.readString(Path.of(need(CREDENTIALS, "folder of credentials"), name));
    }

    static void same(Object got, Object want, String what) {
        if (!Objects.equals(got, want)) throw new AssertionError(what + ": got " + brief(got) + " want " + brief(want));
    }

    static void hold(boolean truth, String what) {
        if (!truth) throw new AssertionError(what);
    }

    static void until(String what, Callable<Boolean> step) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (System.currentTimeMillis() < end) {
            if (step.call()) return;
            Thread.sleep(10);
        }
        throw new AssertionError(what + ": not within " + WAIT_MS / 1000 + " s");
    }

    /** The act must throw, itself or as a cause, one of the named errors. */
    static void fails(String what, List<String> names, Act act) {
        try {
            act.run();
        } catch (Throwable thrown) {
            for (Throwable t = thrown; t != null; t = t.getCause())
                if (names.contains(t.getClass().getSimpleName())) return;
            throw new AssertionError(what + ": want " + names + ", got " + thrown, thrown);
        }
        throw new AssertionError(what + ": want " + names + ", got no error");
    }

    static int cuts() throws IOException {
        return Files.readAllLines(Path.of(PROXY_LOG)).size();
    }

    /** The metrics of our server, a line each. */
    static Stream<String> metrics() throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(need(HTTP, "HTTP listener") + "/metrics"))
                .header("Authorization", "Bearer " + USER + ":" + PASSWORD)
                .build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        return answer.body().lines();
    }

    static double metric(String name) throws Exception {
        return metrics().filter(line -> line.startsWith(name + " ")).findFirst()
                .map(line -> Double.parseDouble(line.substring(name.length() + 1))).orElseThrow();
    }

    /** Says in partition 0 that nothing came up to now, which takes an offset. */
    static void punctuate(String topic) throws Exception {
        URI url = URI.create(need(HTTP, "HTTP listener") + "/api/hubs/" + topic + "/partitions/0/punctuate");
        HttpRequest request = HttpRequest.newBuilder(url)
                .header("Authorization", "Bearer " + USER + ":" + PASSWORD)
                .POST(HttpRequest.BodyPublishers.noBody())
                .build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        same(answer.statusCode(), 200, "status of a punctuation");
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.substring(0, Math.min(200, text.length()));
    }

    private static String env(String key, String otherwise) {
        String value = System.getenv(key);
        return value == null || value.isEmpty() ? otherwise : value;
    }
}
