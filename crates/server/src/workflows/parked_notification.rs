//! The notification about a parked workflow instance, which waits for a person's decision.

use highwater_log::{BoxFuture, EnqueueTime};
use highwater_workflow::OperatorNotifier;
use highwater_workflow::View;
use serde_json::json;

use crate::processors::notify::{Notification, Notifier};
use crate::text::time_text;

/// Columns of the drawing in a mail.
const WIDTH: usize = 100;

impl OperatorNotifier for Notifier {
    fn notify_parked(&self, parked: View) -> BoxFuture<()> {
        let notifier = self.clone();
        Box::pin(async move {
            let base = notifier.options.public_url.clone().unwrap_or_default();
            notifier
                .notify(|| notification(&base, &parked), || true)
                .await;
        })
    }
}

fn notification(base: &str, parked: &View) -> Notification {
    let (workflow, id) = (&parked.workflow, &parked.id);
    let why = parked.attempts.last().map_or("", |last| &last.reason);
    let address = format!(
        "{}/api/workflows/{workflow}/{id}",
        base.trim_end_matches('/')
    );
    let command = |verb: &str| format!("highwater workflow {verb} {workflow} {id}");
    Notification {
        event: json!({
            "event": "workflow.parked", "workflow": workflow, "id": id, "why": why,
            "at": time_text(EnqueueTime(parked.changed_ms)), "instance": address,
        }),
        subject: format!("Highwater: {workflow} {id} waits for a person"),
        text: format!(
            "A step of {workflow} {id} could not be undone:\n\n    {why}\n\n{}\n\
             It stays parked until a person decides:\n\n    {}\n    {}\n    {}\n\n\
             The first retries the undo, the second skips the step and undoes the others, the third marks the instance as \
             resolved.\n\nDetails: {address}\n",
            parked.draw(WIDTH),
            command("retry"),
            command("skip") + " --step STEP",
            command("resolve"),
        ),
        id: format!("workflow-{workflow}-{id}-{}", parked.changed_ms),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use highwater_env::{EgressPolicy, SimClock};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::processors::notify::{Email, Options, Tls};

    fn parked() -> View {
        let step = json!({
            "name": "drone", "state": "done", "tries": 1,
            "undo": {"state": "parked", "tries": 2},
        });
        let attempt = json!({
            "step": "drone", "undo": true, "number": 2, "begun_ms": 5, "ended_ms": 6,
            "reason": "500 Internal Server Error: stuck",
        });
        let view = json!({
            "workflow": "delivery", "version": "1", "id": "d-1", "state": "parked",
            "started_ms": 0, "changed_ms": 1000, "input": {}, "steps": [step], "attempts": [attempt],
        });
        serde_json::from_str(&view.to_string()).unwrap()
    }

    /// Accepts one mail, and answers with what the client sent.
    async fn mail_server(listener: TcpListener) -> String {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut received = String::new();
        for answer in ["220", "250", "250", "250", "354", "250", "221"] {
            stream
                .write_all(format!("{answer} ok\r\n").as_bytes())
                .await
                .unwrap();
            loop {
                let mut line = String::new();
                let read = stream.read_line(&mut line).await.unwrap();
                received.push_str(&line);
                if read == 0 || answer != "354" || line == ".\r\n" {
                    break;
                }
            }
        }
        received
    }

    // proves W4
    #[tokio::test]
    async fn the_mail_about_a_parked_instance_has_the_reason_and_the_commands() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options {
            email: Some(Email {
                server: listener.local_addr().unwrap().to_string(),
                tls: Tls::Off,
                login: None,
                from: "highwater@example.org".into(),
                to: vec!["desk@example.org".into()],
            }),
            public_url: Some("https://hub.example.org/".into()),
            ..Options::default()
        };
        let notifier = Notifier::new(
            options,
            EgressPolicy::default(),
            Arc::new(SimClock::at_unix_nanos(0)),
        )
        .unwrap();
        let ((), received) = tokio::join!(notifier.notify_parked(parked()), mail_server(listener));
        assert!(
            received.contains("RCPT TO:<desk@example.org>"),
            "{received}"
        );
        assert!(received.contains("Subject: Highwater: delivery d-1 waits for a person"));
        let (_, body) = received.split_once("\r\n\r\n").unwrap();
        let (body, _) = body.split_once("\r\n.\r\n").unwrap();
        let body = STANDARD.decode(body.replace("\r\n", "")).unwrap();
        let body = String::from_utf8(body).unwrap();
        for part in [
            "500 Internal Server Error: stuck",
            "undo drone",
            "highwater workflow retry delivery d-1",
            "highwater workflow skip delivery d-1 --step STEP",
            "https://hub.example.org/api/workflows/delivery/d-1",
        ] {
            assert!(body.contains(part), "no `{part}` in {body}");
        }
    }
}
