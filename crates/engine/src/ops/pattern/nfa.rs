//! A pattern as states that take one event each, with their successors in order of preference.
//!
//! The order is that of a backtracking matcher: greedy, left alternative first. The successors depend on the pattern
//! alone and are computed once. A repetition does not repeat after an iteration without an event; otherwise `(A? | B)*`
//! would never end.

use std::collections::BTreeSet;

use highwater_query::plan::Pattern;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nfa {
    /// The variable of each state; `None` for the wildcard.
    pub tests: Vec<Option<usize>>,
    /// The successors of each state.
    pub after: Vec<Follow>,
    pub start: Follow,
}

/// States in order of preference. If `done`, the end of the pattern follows them, and nothing after it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Follow {
    pub states: Vec<u32>,
    pub done: bool,
}

/// One instruction of the backtracking matcher. Unless it jumps, the next one follows.
#[derive(Clone, Copy, Debug)]
enum Instruction {
    /// Takes an event in the state of that number.
    Take(u32),
    /// Tries the first target, then the second.
    Or(usize),
    Jump(usize),
    /// Starts an iteration of the repetition at that depth.
    Round(u32),
    /// Repeats if the iteration took an event; otherwise continues.
    Again {
        depth: u32,
        start: usize,
    },
    Done,
}

impl Nfa {
    pub(super) fn new(pattern: &Pattern) -> Nfa {
        let mut compiler = Compiler::default();
        compiler.compile(pattern, 0);
        compiler.code.push(Instruction::Done);
        let follow = |at: usize, progress: u128| {
            let mut walk = FollowSearch {
                code: &compiler.code,
                visited: BTreeSet::new(),
                follow: Follow::default(),
            };
            walk.from(at, progress);
            walk.follow
        };
        let takes = compiler.code.iter().enumerate();
        let takes = takes.filter(|(_, code)| matches!(code, Instruction::Take(_)));
        Nfa {
            after: takes.map(|(at, _)| follow(at + 1, u128::MAX)).collect(),
            start: follow(0, 0),
            tests: compiler.tests,
        }
    }
}

#[derive(Default)]
struct Compiler {
    code: Vec<Instruction>,
    tests: Vec<Option<usize>>,
}

impl Compiler {
    fn compile(&mut self, pattern: &Pattern, depth: u32) {
        match pattern {
            Pattern::Variable(variable) => self.take(Some(*variable)),
            Pattern::Any => self.take(None),
            Pattern::Sequence(parts) => parts.iter().for_each(|part| self.compile(part, depth)),
            Pattern::Either(branches) => self.either(branches, depth),
            Pattern::Repeat {
                of,
                at_least_one,
                at_most_one,
            } => {
                let skip = (!at_least_one).then(|| self.hole());
                if *at_most_one {
                    self.compile(of, depth);
                } else {
                    let start = self.code.len();
                    self.code.push(Instruction::Round(depth));
                    self.compile(of, depth + 1);
                    self.code.push(Instruction::Again { depth, start });
                }
                if let Some(skip) = skip {
                    self.code[skip] = Instruction::Or(self.code.len());
                }
            }
        }
    }

    fn take(&mut self, test: Option<usize>) {
        self.code.push(Instruction::Take(self.tests.len() as u32));
        self.tests.push(test);
    }

    /// Reserves an instruction that is filled in later.
    fn hole(&mut self) -> usize {
        self.code.push(Instruction::Done);
        self.code.len() - 1
    }

    fn either(&mut self, branches: &[Pattern], depth: u32) {
        let mut ends = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let last = index + 1 == branches.len();
            let or = (!last).then(|| self.hole());
            self.compile(branch, depth);
            if let Some(or) = or {
                ends.push(self.hole());
                self.code[or] = Instruction::Or(self.code.len());
            }
        }
        let end = self.code.len();
        ends.into_iter()
            .for_each(|at| self.code[at] = Instruction::Jump(end));
    }
}

/// Finds successors. `progress` has a bit for each depth: whether the iteration there has taken an event.
struct FollowSearch<'a> {
    code: &'a [Instruction],
    visited: BTreeSet<(usize, u128)>,
    follow: Follow,
}

impl FollowSearch<'_> {
    fn from(&mut self, at: usize, progress: u128) {
        // A second visit is less preferred than the first, and nothing after an end matters.
        if self.follow.done || !self.visited.insert((at, progress)) {
            return;
        }
        match self.code[at] {
            Instruction::Take(state) => {
                if !self.follow.states.contains(&state) {
                    self.follow.states.push(state);
                }
            }
            Instruction::Or(other) => {
                self.from(at + 1, progress);
                self.from(other, progress);
            }
            Instruction::Jump(to) => self.from(to, progress),
            Instruction::Round(depth) => self.from(at + 1, progress & !bit(depth)),
            Instruction::Again { depth, start } => {
                if progress & bit(depth) != 0 {
                    self.from(start, progress);
                }
                self.from(at + 1, progress);
            }
            Instruction::Done => self.follow.done = true,
        }
    }
}

/// Depths beyond 127, which no query reaches, share a bit: a repetition may then end early, but always ends.
fn bit(depth: u32) -> u128 {
    1 << depth.min(127)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn star(of: Pattern) -> Pattern {
        Pattern::Repeat {
            of: Box::new(of),
            at_least_one: false,
            at_most_one: false,
        }
    }

    // proves S1
    #[test]
    fn repetition_is_greedy_and_alternatives_go_left_to_right() {
        let plus = Pattern::Repeat {
            of: Box::new(Pattern::Variable(0)),
            at_least_one: true,
            at_most_one: false,
        };
        let either = Pattern::Either(vec![Pattern::Variable(1), Pattern::Any]);
        let nfa = Nfa::new(&Pattern::Sequence(vec![plus, either]));
        let follow = |states: &[u32], done| Follow {
            states: states.to_vec(),
            done,
        };
        assert_eq!(nfa.tests, [Some(0), Some(1), None]);
        assert_eq!(nfa.start, follow(&[0], false));
        assert_eq!(nfa.after[0], follow(&[0, 1, 2], false));
        assert_eq!(nfa.after[1], follow(&[], true));
    }

    // proves S1
    #[test]
    fn repetitions_of_nothing_end() {
        let nested = star(star(star(Pattern::Variable(0))));
        let nfa = Nfa::new(&nested);
        assert!(nfa.start.done && nfa.start.states == [0]);
        assert_eq!(nfa.after[0].states, [0]);
        // An empty round is preferred to B, and ends the repetition.
        let optional = Pattern::Repeat {
            of: Box::new(Pattern::Variable(0)),
            at_least_one: false,
            at_most_one: true,
        };
        let body = Pattern::Either(vec![optional, Pattern::Variable(1)]);
        let nfa = Nfa::new(&star(body));
        assert_eq!(nfa.start.states, [0]);
        assert!(nfa.start.done);
    }
}
