//! The texts of the demo: running parts, addresses, and things to try.

use std::path::Path;

use super::Demo;
use super::files::{EVENT_HUB, JOBS, PROCESSOR, QUEUE, WORKFLOW};
use super::services::DOWN_FILE;

/// Prints what runs and five things to try.
pub(super) fn print(demo: &Demo, url: &str) {
    let dir = demo.dir.display();
    let command = command();
    let node = match url {
        crate::client::DEFAULT_URL => String::new(),
        other => format!(" --server {other}"),
    };
    eprintln!("Console:  {url}/\n");
    eprintln!(
        "Four toll booths with skewed clocks send events to the hub {EVENT_HUB}, at {} times real speed; some events are late,\n\
         early or out of order. Jobs run queries over the hub:\n",
        demo.speed
    );
    for job in JOBS {
        eprintln!("  {:8}  {}", job.name, job.about);
    }
    eprintln!(
        "\nThe processor {PROCESSOR} hands stolen cars to a service that fails now and then, workers check the takings from\n\
         the queue {QUEUE}, and the workflow {WORKFLOW} tows the cars. Five things to try in another terminal:\n"
    );
    let thing = |number: u32, text: &str, commands: &[String]| {
        eprintln!("  {number}. {text}");
        for line in commands {
            eprintln!("       {line}");
        }
    };
    thing(
        1,
        "Send a late event, and ask what became of it:",
        &[
            format!("curl {url}/hubs/{EVENT_HUB}/partitions/0/messages -H 'content-type: application/json' \\"),
            "  -d '{\"TollId\":1,\"EntryTime\":\"2026-01-01T08:00:00Z\",\"LicensePlate\":\"LATE 1\",\"Toll\":4}'".to_owned(),
            format!("{command} why --job counts Entry/0/OFFSET{node}      # with the offset of the answer"),
        ],
    );
    thing(
        2,
        "Kill the demo and start it again; it resumes where it was:",
        &[format!("kill -9 {}", std::process::id())],
    );
    thing(
        3,
        "Break the handler, see its circuit open, mend it and resume:",
        &[
            format!("touch {dir}/{DOWN_FILE}; sleep 20; {command} circuit list{node}"),
            format!("rm {dir}/{DOWN_FILE}; {command} circuit close {PROCESSOR}{node}"),
        ],
    );
    thing(
        4,
        "Try a query of your own in the playground:",
        &[format!("{url}/console/playground")],
    );
    thing(
        5,
        "Resolve a workflow that could not be undone, after the first minute:",
        &[
            format!("{command} workflow list {WORKFLOW} --state parked{node}"),
            format!("{command} workflow resolve {WORKFLOW} ID --note 'towed by hand'{node}"),
        ],
    );
    eprintln!("\nAll files are in {dir}. Ctrl-C stops the demo.\n");
}

/// Prints the files of a finished demo.
pub(super) fn print_files(replay: &Path, picture: &Path) {
    let (replay, picture, command) = (replay.display(), picture.display(), command());
    eprintln!("Event time against arrival time:          {picture}");
    eprintln!("Why events were adjusted or dropped:      {command} why {replay} --moved");
    eprintln!("The same picture in the terminal:         {command} timeline {replay}");
    eprintln!("Run the query over the recorded events:   {command} run {replay}");
}

/// `highwater` if a shell finds it, otherwise the path of this program.
fn command() -> String {
    let name = "highwater";
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        return name.to_owned();
    }
    let program = std::env::current_exe().unwrap_or_else(|_| name.into());
    let folder = std::env::current_dir().unwrap_or_default();
    let relative = program.strip_prefix(folder).unwrap_or(&program);
    relative.display().to_string()
}
