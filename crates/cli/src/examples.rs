//! An example for each command, shown at the end of its `--help` and in the man page.
//!
//! One table: a test parses every line with the commands that it describes.

use clap::{Command, CommandFactory, FromArgMatches};

use crate::Arguments;

/// The words of a command, and an example of its arguments.
const EXAMPLES: &[(&str, &str)] = &[
    ("demo", "demo --once --events 200 --speed 100"),
    ("up", "up -c highwater.toml"),
    ("init", "init my-project"),
    ("hub create", "hub create orders --partitions 4"),
    ("hub list", "hub list"),
    ("hub describe", "hub describe orders"),
    ("hub send", "hub send orders '{\"order\":1}'"),
    ("hub tail", "hub tail orders --from earliest -f"),
    ("hub grow", "hub grow orders 8"),
    ("hub set", "hub set orders --retention 7d"),
    (
        "hub trim",
        "hub trim orders 0 --before 2026-01-01T00:00:00Z",
    ),
    ("hub delete", "hub delete orders"),
    ("hub groups", "hub groups billing"),
    ("job list", "job list"),
    ("job start", "job start jobs/averages"),
    ("job stop", "job stop averages"),
    ("job status", "job status averages"),
    ("job logs", "job logs averages"),
    ("job delete", "job delete averages"),
    (
        "key add",
        "key add billing --right listen --hub 'orders' --hub 'billing-*'",
    ),
    ("key list", "key list"),
    ("key rotate", "key rotate billing"),
    ("key revoke", "key revoke billing"),
    ("cluster", "cluster"),
    ("queue create", "queue create emails --lock 30s"),
    ("queue list", "queue list"),
    ("queue describe", "queue describe emails"),
    ("queue set", "queue set emails --lock 60s"),
    (
        "queue send",
        "queue send emails '{\"to\":\"a@example.org\"}'",
    ),
    ("queue receive", "queue receive emails --wait 30s"),
    ("queue peek", "queue peek emails"),
    ("queue deferred", "queue deferred emails 17"),
    ("queue complete", "queue complete emails 1-9c41d07f"),
    ("queue abandon", "queue abandon emails 1-9c41d07f"),
    ("queue defer", "queue defer emails 1-9c41d07f"),
    ("queue renew", "queue renew emails 1-9c41d07f"),
    (
        "queue dead-letter",
        "queue dead-letter emails 1-9c41d07f --reason 'no such address'",
    ),
    ("queue resubmit", "queue resubmit emails 17"),
    ("queue cancel", "queue cancel emails 17"),
    ("queue purge", "queue purge emails"),
    ("queue delete", "queue delete emails"),
    ("topic create", "topic create prices --time-to-live 7d"),
    ("topic list", "topic list"),
    ("topic describe", "topic describe prices"),
    ("topic set", "topic set prices --duplicates-within 10m"),
    ("topic delete", "topic delete prices"),
    (
        "topic subscribe",
        "topic subscribe prices heavy --sql 'grams > 100'",
    ),
    (
        "topic set-subscription",
        "topic set-subscription prices heavy --lock 30s",
    ),
    ("topic unsubscribe", "topic unsubscribe prices heavy"),
    (
        "topic add-rule",
        "topic add-rule prices heavy red --property colour=red --action 'REMOVE colour'",
    ),
    ("topic remove-rule", "topic remove-rule prices heavy red"),
    ("processor list", "processor list"),
    ("processor status", "processor status billing"),
    ("circuit list", "circuit list"),
    (
        "circuit open",
        "circuit open billing --why 'release of the billing service'",
    ),
    ("circuit close", "circuit close billing"),
    ("dlq list", "dlq list billing --reason 'status 422'"),
    ("dlq show", "dlq show billing orders/2@417"),
    (
        "dlq replay",
        "dlq replay billing --reason timeout --dry-run",
    ),
    (
        "dlq purge",
        "dlq purge billing --until 2026-01-01T00:00:00Z",
    ),
    (
        "workflow start",
        "workflow start delivery d-4711 '{\"ownerId\":\"o-1\"}'",
    ),
    ("workflow list", "workflow list delivery --state parked"),
    ("workflow show", "workflow show delivery d-4711"),
    ("workflow cancel", "workflow cancel delivery d-4711"),
    ("workflow retry", "workflow retry delivery d-4711"),
    (
        "workflow skip",
        "workflow skip delivery d-4711 --step drone --note 'the drone is lost'",
    ),
    (
        "workflow resolve",
        "workflow resolve delivery d-4711 --note 'delivered by hand'",
    ),
    ("workflow supervise", "workflow supervise delivery"),
    ("workflow check", "workflow check delivery.toml"),
    ("config show", "config show -c highwater.toml"),
    ("run", "run cases/averages"),
    ("test", "test cases"),
    ("check", "check jobs/averages"),
    ("explain", "explain jobs/averages"),
    ("why", "why cases/averages --moved"),
    ("timeline", "timeline cases/averages"),
    ("manual", "manual DATEDIFF"),
    (
        "completions",
        "completions bash > ~/.local/share/bash-completion/completions/highwater",
    ),
    ("man", "man > ~/.local/share/man/man1/highwater.1"),
    ("bench run", "bench run cases/averages"),
    ("bench generate", "bench generate events.jsonl"),
    ("bench http", "bench http --rate 1000"),
    ("bench queue", "bench queue"),
    ("bench job", "bench job --events 1000000"),
    ("bench latency", "bench latency"),
    ("bench webhook", "bench webhook --events 10000"),
];

/// The arguments of this process. Wrong ones end it with a message.
pub(crate) fn parse_arguments() -> Arguments {
    let matches = command().get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command with its examples.
pub(crate) fn command() -> Command {
    EXAMPLES
        .iter()
        .fold(Arguments::command(), |command, (path, example)| {
            let words: Vec<&str> = path.split(' ').collect();
            with_example(command, &words, example)
        })
}

fn with_example(command: Command, path: &[&str], example: &str) -> Command {
    match path {
        [] => command.after_help(format!("Example:\n  highwater {example}")),
        [name, rest @ ..] => {
            let name = (*name).to_owned();
            command.mut_subcommand(name, |inner| with_example(inner, rest, example))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a shell command: separated by spaces, except within single quotes, up to a redirection.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap_or(line);
        let pieces = line.split('\'').enumerate();
        pieces
            .flat_map(|(index, piece)| match index % 2 {
                1 => vec![piece.to_owned()],
                _ => piece.split_whitespace().map(str::to_owned).collect(),
            })
            .collect()
    }

    fn leaves(command: &Command, path: &str, out: &mut Vec<String>) {
        for inner in command.get_subcommands() {
            let path = format!("{path} {}", inner.get_name());
            match inner.has_subcommands() {
                true => leaves(inner, &path, out),
                false => out.push(path.trim().to_owned()),
            }
        }
    }

    #[test]
    fn every_command_has_an_example_that_it_accepts() {
        let mut commands = Vec::new();
        leaves(&Arguments::command(), "", &mut commands);
        let mut described: Vec<String> = EXAMPLES.iter().map(|(path, _)| (*path).into()).collect();
        commands.sort();
        described.sort();
        assert_eq!(commands, described);
        for (path, example) in EXAMPLES {
            assert!(example.starts_with(path), "{path}: {example}");
            let line = std::iter::once("highwater".to_owned()).chain(words(example));
            if let Err(error) = command().try_get_matches_from(line) {
                panic!("{example}: {error}");
            }
        }
    }
}
