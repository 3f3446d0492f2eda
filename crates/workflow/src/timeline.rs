//! Draws an instance as text: the times and attempts of each step and compensation.
//!
//! ```text
//! drone      ░··░····██              done at the third try in 12 ms: 200
//! ```
//!
//! `█` is a successful attempt, `░` a failed one, `·` the delay between two.

use std::fmt::Write;

use highwater_time::Instant;

use crate::machine::{AttemptView, Times, View};

/// Minimum width of the bars.
const BARS_MIN: usize = 10;

/// A row of the drawing.
struct Row<'v> {
    name: String,
    step: &'v str,
    undo: bool,
    state: &'v str,
    times: &'v Times,
    in_doubt: bool,
}

impl View {
    /// Draws it, no wider than `width` if possible.
    pub fn draw(&self, width: usize) -> String {
        let rows = self.rows();
        let named = rows.iter().map(|row| row.name.chars().count()).max();
        let named = named.unwrap_or_default();
        let texts: Vec<String> = rows.iter().map(Row::text).collect();
        let longest = texts.iter().map(|text| text.chars().count()).max();
        let bars = width
            .saturating_sub(named + longest.unwrap_or_default() + 6)
            .clamp(BARS_MIN, 60);
        let scale = Scale {
            from_ms: self.started_ms,
            span_ms: (self.changed_ms - self.started_ms).max(1),
            columns: bars,
        };
        let mut out = self.head();
        for (row, text) in rows.iter().zip(&texts) {
            let attempts = self.attempts_of(row);
            let bar = scale.bar(row.times, row.state, &attempts);
            line(&mut out, &format!("  {:named$}  {bar}  {text}", row.name));
            for attempt in attempts {
                let AttemptView { number, reason, .. } = attempt;
                let indent = named + 4;
                line(&mut out, &format!("{:indent$}{number}. {reason}", ""));
            }
        }
        for note in self.notes.iter().filter(|note| !note.is_empty()) {
            line(&mut out, &format!("  note: {note}"));
        }
        out
    }

    fn head(&self) -> String {
        let mut out = format!("{} {}: {}", self.workflow, self.id, self.state);
        if let Some(reason) = &self.reason {
            let _ = write!(out, ", {reason}");
        }
        if let Some(step) = &self.blame {
            let _ = write!(out, " ({step})");
        }
        let started = Instant::from_unix_millis(self.started_ms);
        let lasted = lasted(self.changed_ms - self.started_ms);
        let version = &self.version;
        let _ = write!(out, "\nstarted {started}, {lasted}, version {version}\n\n");
        out
    }

    /// Steps in order, then compensations in their order.
    fn rows(&self) -> Vec<Row<'_>> {
        let steps = self.steps.iter().map(|step| Row {
            name: step.name.clone(),
            step: &step.name,
            undo: false,
            state: &step.state,
            times: &step.times,
            in_doubt: step.in_doubt,
        });
        let undone = self.steps.iter().rev().filter_map(|step| {
            let undo = step.undo.as_ref()?;
            Some(Row {
                name: format!("undo {}", step.name),
                step: &step.name,
                undo: true,
                state: &undo.state,
                times: &undo.times,
                in_doubt: false,
            })
        });
        steps.chain(undone).collect()
    }

    fn attempts_of(&self, row: &Row<'_>) -> Vec<&AttemptView> {
        let of_row = |attempt: &&AttemptView| attempt.step == row.step && attempt.undo == row.undo;
        self.attempts.iter().filter(of_row).collect()
    }
}

impl Row<'_> {
    fn text(&self) -> String {
        let mut text = self.state.to_owned();
        let times = self.times;
        if times.tries > 1 {
            let _ = write!(text, " after {} tries", times.tries);
        }
        if let (Some(begun), Some(ended)) = (times.begun_ms, times.ended_ms) {
            let _ = write!(text, " in {}", lasted(ended - begun));
        }
        if let Some(status) = times.status {
            let _ = write!(text, ": {status}");
        }
        if self.in_doubt {
            text.push_str(", in doubt");
        }
        text
    }
}

struct Scale {
    from_ms: i64,
    span_ms: i64,
    columns: usize,
}

impl Scale {
    fn column(&self, at_ms: i64) -> usize {
        let since = (at_ms - self.from_ms).clamp(0, self.span_ms) as u128;
        let column = since * self.columns as u128 / self.span_ms as u128;
        (column as usize).min(self.columns - 1)
    }

    fn bar(&self, times: &Times, state: &str, attempts: &[&AttemptView]) -> String {
        let mut bar = vec![' '; self.columns];
        let mut fill = |from_ms, to_ms, with| {
            bar[self.column(from_ms)..=self.column(to_ms)].fill(with);
        };
        if let (Some(begun), Some(ended)) = (times.begun_ms, times.ended_ms) {
            fill(begun, ended.max(begun), '·');
            if matches!(state, "done" | "undone") {
                // The begin of the last attempt is not stored.
                let one_column = self.span_ms / self.columns as i64;
                let from = if attempts.is_empty() {
                    begun
                } else {
                    ended - one_column
                };
                fill(from.max(begun), ended, '█');
            }
        }
        for attempt in attempts {
            fill(attempt.begun_ms, attempt.ended_ms, '░');
        }
        bar.into_iter().collect()
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn lasted(ms: i64) -> String {
    match ms {
        ..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{:03} s", ms / 1000, ms % 1000),
        _ => highwater_time::Duration::from_millis(ms / 1000 * 1000).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use expect_test::expect;

    use crate::definition::{Builder, StepBuilder, Version};
    use crate::machine::{Answer, AttemptSpan, Event, FailureKind, Instance};

    fn instance() -> Instance {
        let url = "http://s/{{id}}";
        let step = |name| StepBuilder::call(name, "PUT", url).undo("DELETE", url);
        let definition = Builder::new("delivery")
            .step(step("package"))
            .step(step("drone"))
            .step(step("delivery"))
            .build();
        let definition = Arc::new(definition.unwrap());
        let (id, input, at_ms) = (Arc::from("d-4711"), Bytes::from_static(b"{}"), START);
        Instance::started(id, definition, Version(0x17), input, at_ms)
    }

    const START: i64 = 1_767_225_600_000;

    fn attempt(step: u16, undo: bool, begun: i64, ended: i64) -> AttemptSpan {
        AttemptSpan {
            step,
            undo,
            begun_ms: START + begun,
            at_ms: START + ended,
        }
    }

    fn succeeded(step: u16, undo: bool, begun: i64, ended: i64, status: u16) -> Event {
        Event::Succeeded {
            attempt: attempt(step, undo, begun, ended),
            answer: Answer {
                status,
                body: Bytes::new(),
            },
        }
    }

    fn failed(
        step: u16,
        undo: bool,
        begun: i64,
        ended: i64,
        kind: FailureKind,
        why: &str,
    ) -> Event {
        Event::Failed {
            attempt: attempt(step, undo, begun, ended),
            kind,
            in_doubt: why.starts_with("no answer"),
            reason: why.to_owned(),
        }
    }

    #[test]
    fn a_transaction_that_was_undone_is_drawn() {
        let mut instance = instance();
        let again = |due| FailureKind::Retry {
            due_ms: START + due,
        };
        for event in [
            succeeded(0, false, 2, 100, 201),
            failed(1, false, 100, 300, again(500), "no answer within 200ms"),
            failed(
                1,
                false,
                500,
                520,
                FailureKind::Refused,
                "409 Conflict: no drone",
            ),
            Event::UndoStarted {
                at_ms: START + 520,
                doubtful: 0,
            },
            failed(1, true, 530, 560, again(900), "503 Service Unavailable"),
            succeeded(1, true, 900, 920, 204),
            succeeded(0, true, 930, 1000, 200),
        ] {
            instance.apply(event);
        }
        expect![[r#"
            delivery d-4711: refused, 409 Conflict: no drone (drone)
            started 2026-01-01T00:00:00.0000000Z, 1.000 s, version 0000000000000017

              package       █████                                       done in 98 ms: 201
              drone             ░░░░░░░░░········░                      failed after 2 tries in 420 ms, in doubt
                            1. no answer within 200ms
                            2. 409 Conflict: no drone
              delivery                                                  waiting
              undo drone                          ░░·············██     undone after 2 tries in 390 ms: 204
                            1. 503 Service Unavailable
              undo package                                         ███  undone in 70 ms: 200
        "#]]
        .assert_eq(&instance.view().draw(100));
    }

    #[test]
    fn one_that_is_under_way_is_drawn_as_far_as_it_is() {
        let mut instance = instance();
        instance.apply(succeeded(0, false, 0, 4000, 201));
        expect![[r#"
            delivery d-4711: running
            started 2026-01-01T00:00:00.0000000Z, 4.000 s, version 0000000000000017

              package   ██████████████████████████  done in 4.000 s: 201
              drone                                 running
              delivery                              waiting
        "#]]
        .assert_eq(&instance.view().draw(60));
    }
}
