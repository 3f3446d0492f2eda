import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.*;
import javax.security.auth.callback.*;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.*;

/** Gives the client the token of its JAAS configuration, or a new one each time that it asks. */
public final class TokenHandler implements AuthenticateCallbackHandler {
    /** The token that stands for new ones. */
    static final String RENEWED = "renewed";

    /** How long a login with a new token lasts. */
    static final int SESSION_S = 5;

    /** The server accepts a token this long after its end, because clocks differ. */
    private static final int CLOCK_SKEW_S = 60;

    private String token;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        token = (String) entries.get(0).getOptions().get("token");
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerTokenCallback wanted) wanted.token(token());
        }
    }

    private Token token() throws IOException {
        long now = System.currentTimeMillis();
        if (!token.equals(RENEWED)) return new Token(token, now + 3_600_000);
        String seconds = String.valueOf(SESSION_S - CLOCK_SKEW_S);
        Process mint = new ProcessBuilder(System.getenv("HW_TOKENS"), "renew", Harness.CREDENTIALS, seconds).start();
        String renewed = new String(mint.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
        return new Token(renewed, now + 1000 * SESSION_S);
    }

    @Override
    public void close() {}

    /** The client asks for the next one before its end. */
    private record Token(String value, long lifetimeMs) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public String principalName() {
            return Harness.USER;
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }
}
