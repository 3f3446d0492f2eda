//! The circuit beside one that keeps every outcome in a list and counts it anew each time.

use proptest::prelude::*;

use super::window::slot_ms;
use super::*;

struct Naive {
    rule: Rule,
    /// Since the circuit closed last.
    outcomes: Vec<(i64, bool)>,
    mode: Mode,
}

enum Mode {
    Closed,
    /// The end, if it is timed.
    Open(Option<i64>),
    HalfOpen(u32),
}

impl Naive {
    fn state(&self, now: i64) -> &'static str {
        match self.mode {
            Mode::Closed => "closed",
            Mode::Open(until) if until.is_none_or(|until| now < until) => "open",
            _ => "half-open",
        }
    }

    fn outcome(&mut self, now: i64, ok: bool) {
        if matches!(self.mode, Mode::Open(_)) && self.state(now) == "half-open" {
            self.mode = Mode::HalfOpen(0);
        }
        let open_for = self.rule.open_for.map(|wait| now + wait.as_millis() as i64);
        match &mut self.mode {
            Mode::Open(_) => {}
            Mode::HalfOpen(_) if !ok => self.mode = Mode::Open(open_for),
            Mode::HalfOpen(successes) => {
                *successes += 1;
                if *successes >= self.rule.successes {
                    self.close();
                }
            }
            Mode::Closed => {
                self.outcomes.push((now, ok));
                if self.is_broken(now) {
                    self.mode = Mode::Open(open_for);
                }
            }
        }
    }

    fn trip(&mut self, now: i64) {
        if self.state(now) != "open" {
            self.mode = Mode::Open(self.rule.open_for.map(|wait| now + wait.as_millis() as i64));
        }
    }

    fn is_broken(&self, now: i64) -> bool {
        let slot_ms = slot_ms(self.rule.window);
        let slot = |at: i64| at.div_euclid(slot_ms);
        let recent = |at: i64| slot(now) - slot(at) <= i64::from(SLOTS);
        let recent: Vec<bool> = (self.outcomes.iter())
            .filter(|(at, _)| recent(*at))
            .map(|(_, ok)| *ok)
            .collect();
        let failed = recent.iter().filter(|ok| !**ok).count();
        failed > self.rule.failures_max as usize
            && self.rule.share.is_none_or(|share| {
                recent.len() >= share.outcomes_min as usize
                    && failed * 100 >= recent.len() * usize::from(share.percent)
            })
    }

    fn close(&mut self) {
        self.mode = Mode::Closed;
        self.outcomes.clear();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(i64),
    Outcome(bool),
    Trip,
    Open,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4000i64).prop_map(Step::Pass),
        12 => any::<bool>().prop_map(Step::Outcome),
        1 => Just(Step::Trip),
        1 => Just(Step::Open),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..200)
}

fn rules() -> impl Strategy<Value = Rule> {
    let share = (0..=100u8, 0..10u32).prop_map(|(percent, outcomes_min)| FailureShare {
        percent,
        outcomes_min,
    });
    let open_for = prop::option::of((0..8000u64).prop_map(Duration::from_millis));
    let numbers = (1..10_000u64, 0..8u32, 1..4u32, 1..4u32);
    (numbers, prop::option::of(share), open_for).prop_map(
        |((window, failures_max, probes, successes), share, open_for)| Rule {
            window: Duration::from_millis(window),
            failures_max,
            share,
            open_for,
            probes,
            successes,
        },
    )
}

fn name(state: CircuitState) -> &'static str {
    match state {
        CircuitState::Closed => "closed",
        CircuitState::HalfOpen { .. } => "half-open",
        CircuitState::Open { .. } => "open",
    }
}

proptest! {
    #[test]
    fn a_circuit_does_what_a_list_of_outcomes_says(rule in rules(), steps in steps()) {
        let mut naive = Naive { rule: rule.clone(), outcomes: Vec::new(), mode: Mode::Closed };
        let mut circuit = Circuit::new(rule.clone());
        let mut written = Vec::new();
        let mut now = 0;
        for step in steps {
            let event = match step {
                Step::Pass(ms) => {
                    now += ms;
                    prop_assert_eq!(name(circuit.state(EnqueueTime(now))), naive.state(now));
                    continue;
                }
                Step::Outcome(ok) => {
                    naive.outcome(now, ok);
                    let (ok, failed) = (u32::from(ok), u32::from(!ok));
                    CircuitEvent::Outcomes(OutcomeCounts { ok, failed })
                }
                Step::Trip => {
                    naive.trip(now);
                    CircuitEvent::Tripped { why: "nothing works".into() }
                }
                Step::Open => {
                    naive.mode = Mode::Open(None);
                    CircuitEvent::Opened { why: "by hand".into() }
                }
                Step::Close => {
                    naive.close();
                    CircuitEvent::Closed
                }
            };
            let before = name(circuit.state(EnqueueTime(now)));
            let change = circuit.apply(EnqueueTime(now), &event);
            let after = name(circuit.state(EnqueueTime(now)));
            prop_assert_eq!(after, naive.state(now));
            match change {
                Some(Transition::Opened { .. }) => prop_assert_ne!(before, "open"),
                Some(Transition::Closed) => prop_assert!(before != "closed" && after == "closed"),
                None => prop_assert!(before == after || before == "open"),
            }
            written.push((EnqueueTime(now), event.to_string()));
        }
        let mut replayed = Circuit::new(rule);
        for (at, line) in written {
            replayed.apply(at, &line.parse().unwrap());
        }
        prop_assert_eq!(replayed, circuit);
    }
}
