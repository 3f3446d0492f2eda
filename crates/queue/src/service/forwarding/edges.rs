//! The graph of forwarding: a queue or subscription leads to its targets, a topic to its subscriptions.

use std::collections::BTreeMap;

use crate::journal::subscription_path;
use crate::service::error::ForwardError;

/// How many times a message may be forwarded, as in Service Bus.
const STEPS_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Edges {
    targets: BTreeMap<String, Vec<String>>,
}

impl Edges {
    /// Sets the target of a queue, unless a message could then be forwarded too often.
    pub(super) fn set_checked(
        &mut self,
        name: &str,
        targets: Vec<String>,
    ) -> Result<(), ForwardError> {
        let target = targets.first().cloned();
        let before = self.set(name, targets);
        let too_far = self
            .targets
            .keys()
            .any(|from| !self.is_within(from, STEPS_MAX));
        match target.filter(|_| too_far) {
            None => Ok(()),
            Some(target) => {
                self.set(name, before);
                let max = STEPS_MAX;
                Err(ForwardError::TooFar { target, max })
            }
        }
    }

    /// Sets the target of a queue, and returns the previous one.
    pub(super) fn set(&mut self, name: &str, targets: Vec<String>) -> Vec<String> {
        let before = match targets.is_empty() {
            true => self.targets.remove(name),
            false => self.targets.insert(name.to_owned(), targets),
        };
        before.unwrap_or_default()
    }

    /// Whether every path from a queue or topic has at most this many steps. A circle has more than any number.
    fn is_within(&self, from: &str, steps: usize) -> bool {
        if let Some(targets) = self.targets.get(from) {
            let next = |to: &String| steps > 0 && self.is_within(to, steps - 1);
            return targets.iter().all(next);
        }
        let prefix = subscription_path(from, "");
        let subscriptions = self.targets.range(prefix.clone()..);
        let mut subscriptions = subscriptions.take_while(|(name, _)| name.starts_with(&prefix));
        subscriptions.all(|(name, _)| self.is_within(name, steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(all: &[(&str, &str)]) -> Edges {
        let mut edges = Edges::default();
        for (from, to) in all {
            edges.set(from, vec![(*to).to_owned()]);
        }
        edges
    }

    // proves A3
    #[test]
    fn circles_and_long_chains_are_refused_also_through_topics() {
        let mut chain = edges(&[("b", "c"), ("c", "t"), ("t/Subscriptions/s", "e")]);
        let to = |name: &str| vec![name.to_owned()];
        assert_eq!(chain.set_checked("a", to("b")), Ok(()), "four steps");
        for (from, target) in [
            ("z", "a"),
            ("e", "f"),
            ("e", "a"),
            ("e", "e"),
            ("t/Subscriptions/other", "b"),
        ] {
            assert!(chain.set_checked(from, to(target)).is_err(), "{from}");
        }
        assert_eq!(chain.set_checked("a", Vec::new()), Ok(()));
        assert_eq!(
            chain.set_checked("e", to("f")),
            Ok(()),
            "there is room again"
        );
    }
}
