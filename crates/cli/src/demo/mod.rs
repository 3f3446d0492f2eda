//! `highwater demo`: the whole system on generated events, live.
//!
//! The demo starts a node in this process and sends the events of toll booths with skewed clocks to a hub. Four jobs run
//! queries over it, and the demo prints their rows. All files are in one folder: a demo that was interrupted or killed
//! resumes when it is started again. At the end the events are also stored as a job over files, for `why` and `timeline`.

mod files;
mod row_printer;
mod traffic_sender;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use highwater_devtools::tollbooth;
use highwater_env::{Clock, RealClock};
use highwater_job::{Job, Options, Outputs, run};
use highwater_server::config::Sources;
use highwater_server::node::Node;
use highwater_time::Instant;
use tokio::task::JoinSet;

use crate::client::Server;
use crate::exit::ExitStatus;
use crate::signals::ShutdownSignals;
use crate::summary;
use crate::timeline::{draw, write_svg};
use files::JOBS;
use row_printer::RowPrinter;
use traffic_sender::{SentEvents, TrafficSender};

#[derive(clap::Args)]
pub(crate) struct Demo {
    /// The folder for all files of the demo
    #[arg(long, default_value = "highwater-demo")]
    dir: PathBuf,
    /// Number of events to send
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    events: u64,
    /// Speed relative to real time; with 8, eight minutes of traffic take one
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    speed: u32,
    /// Seed of the event generator
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print rows and the summary as JSON
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let sent = runtime.block_on(self.run_node());
        runtime.shutdown_background();
        match sent? {
            Some(sent) => self.summarize(&sent),
            None => Ok(ExitStatus::Success),
        }
    }

    /// Runs the node and sends the events. Returns the sent events, or `None` after a signal before the first one.
    async fn run_node(&self) -> anyhow::Result<Option<SentEvents>> {
        let mut signals = ShutdownSignals::new()?;
        let passages = tollbooth::passages(self.events as usize, self.seed);
        files::write_node(&self.dir, &stolen_plates(&passages), self.speed)?;
        let clock = Arc::new(RealClock::new());
        let node = Node::start(self.settings()?, clock.clone()).await?;
        let url = node.http_url().unwrap_or_default().to_owned();
        self.welcome(&url);
        let server = Server::at(&url);
        let complete = Arc::new(AtomicBool::new(false));
        let mut printers = JoinSet::new();
        for job in JOBS {
            let printer = RowPrinter {
                job: job.name,
                server: server.clone(),
                position_file: RowPrinter::position_file(&self.dir, job.name),
                json: self.json,
                complete: complete.clone(),
            };
            printers.spawn(printer.run());
        }
        let mut sender = TrafficSender {
            server: &server,
            clock: &*clock as &dyn Clock,
            passages,
            speed: self.speed,
            events: SentEvents::default(),
            count: 0,
        };
        let sent = tokio::select! {
            sent = sender.run() => Some(sent),
            () = signals.next() => None,
        };
        if let Some(sent) = sent {
            sent?;
            eprintln!(
                "\nAll {} events are sent; waiting for the last windows to close.\n",
                sender.count
            );
            tokio::select! {
                finished = self.finish(&server, &clock, &complete, &mut printers) => finished?,
                () = signals.next() => {}
            }
        }
        printers.abort_all();
        let sent = sender.events;
        node.stop().await;
        Ok(Some(sent).filter(|sent| sent.iter().any(|events| !events.is_empty())))
    }

    /// Waits until every row is written and printed.
    async fn finish(
        &self,
        server: &Server,
        clock: &RealClock,
        complete: &AtomicBool,
        printers: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let until = clock.unix_nanos() + files::completion_time(self.speed).as_nanos() as i128;
        row_printer::wait_until_written(server, Instant::from_unix_nanos(until)).await?;
        complete.store(true, Ordering::Release);
        while let Some(printed) = printers.join_next().await {
            printed??;
        }
        Ok(())
    }

    /// The settings in the demo's folder, with free ports.
    fn settings(&self) -> anyhow::Result<highwater_server::config::Config> {
        let free = |wanted: u16| {
            let taken = TcpListener::bind(("127.0.0.1", wanted)).is_err();
            format!("127.0.0.1:{}", if taken { 0 } else { wanted })
        };
        let sources = Sources {
            file: Some(self.dir.join("highwater.toml")),
            variables: Vec::new(),
            flags: vec![
                ("http.listen".into(), free(8080)),
                ("kafka.listen".into(), free(9092)),
            ],
        };
        Ok(sources.load()?.config)
    }

    fn welcome(&self, url: &str) {
        let dir = self.dir.display();
        eprintln!(
            "Four toll booths with skewed clocks send events to a hub; some are late, early or out of order."
        );
        eprintln!(
            "The demo runs at {} times real speed. Jobs run queries over the hub:
",
            self.speed
        );
        for job in JOBS {
            eprintln!("  {:8} {}", job.name, job.about);
        }
        eprintln!("\nThe node is at {url}, its files are in {dir}. In another terminal, try:\n");
        eprintln!("  highwater job list --server {url}");
        eprintln!("  highwater job status counts --server {url}");
        eprintln!("\nStop the demo with Ctrl-C, or kill -9 it, and start it again: it resumes.\n");
    }

    /// Runs the first query over the recorded events and prints a summary.
    fn summarize(&self, sent: &SentEvents) -> anyhow::Result<ExitStatus> {
        let replay = self.dir.join("replay");
        files::write_replay(&replay, sent, self.speed)?;
        let job = Job::load(&replay)?;
        let outputs = Outputs::discarded(&job.plan);
        let report = run(&job, outputs, Options::default())?.report;
        let picture = self.dir.join("timeline.svg");
        write_svg(&picture, &draw(&job, None)?)?;
        match self.json {
            true => eprintln!("{}", summary::json(&job, &report)),
            false => {
                let text = summary::text(&job, &report);
                eprintln!("\nSummary:\n\n{text}");
                print_next_steps(&replay, &picture);
            }
        }
        Ok(match report.lost_data() {
            true => ExitStatus::DataLoss,
            false => ExitStatus::Success,
        })
    }
}

/// Reference data with every fortieth plate, so that the query finds some.
fn stolen_plates(passages: &[tollbooth::Passage]) -> String {
    let stolen = passages.iter().step_by(40);
    stolen
        .map(|passage| {
            format!(
                "{{\"LicensePlate\":\"{}\",\"Reported\":\"yesterday\"}}\n",
                passage.plate()
            )
        })
        .collect()
}

fn print_next_steps(replay: &Path, picture: &Path) {
    let replay = replay.display();
    eprintln!(
        "Event time against arrival time:          {}",
        picture.display()
    );
    eprintln!("Why events were adjusted or dropped:      highwater why {replay} --moved");
    eprintln!("The same picture in the terminal:         highwater timeline {replay}");
    eprintln!("Run the query over the recorded events:   highwater run {replay}");
}
