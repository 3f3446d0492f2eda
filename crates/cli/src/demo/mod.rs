//! `highwater demo`: the whole system on generated events, live.
//!
//! The demo starts a node in this process and sends the events of toll booths with skewed clocks to a hub, until
//! Ctrl-C. Four jobs run queries over it; a processor, a queue and a workflow work on their rows. All files are in one
//! folder: a demo that was interrupted or killed resumes when it is started again. With `--once` the demo sends the
//! events once, prints every row, and stores the events as a job over files, for `why` and `timeline`.

mod auditors;
mod files;
mod guide;
mod progress;
mod row_printer;
mod services;
mod traffic_sender;

use std::net::TcpListener;
use std::path::PathBuf;
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
use crate::runtime::block_on_node;
use crate::signals::ShutdownSignals;
use crate::summary;
use crate::timeline::{draw, write_svg};
use files::{DemoJob, JOBS};
use row_printer::RowPrinter;
use services::Services;
use traffic_sender::{SentEvents, TrafficSender};

/// Receivers of the queue.
const AUDITORS: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Demo {
    /// The folder for all files of the demo
    #[arg(long, default_value = "highwater-demo")]
    dir: PathBuf,
    /// Number of events in a round
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    events: u64,
    /// Send one round of events, print every row and end
    #[arg(long)]
    once: bool,
    /// Speed relative to real time; with 10, ten minutes of traffic take one
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=200))]
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
        match block_on_node(self.run_node())? {
            Some(sent) => self.summarize(&sent),
            None => Ok(ExitStatus::Success),
        }
    }

    /// Runs the node and sends the events. Returns the sent events of `--once`, if any were sent.
    async fn run_node(&self) -> anyhow::Result<Option<SentEvents>> {
        let mut signals = ShutdownSignals::new()?;
        let passages = tollbooth::passages(self.events as usize, self.seed);
        let services = Services::bind(&self.dir).await?;
        let stolen = stolen_plates(&passages);
        files::write_node(&self.dir, &stolen, self.speed, services.address()?)?;
        let clock = Arc::new(RealClock::new());
        let node = Node::start(self.settings()?, clock.clone()).await?;
        let url = node.http_url().unwrap_or_default().to_owned();
        guide::print(self, &url);
        let server = Server::at(&url);
        let mut workers = JoinSet::new();
        workers.spawn(services.run());
        for _ in 0..AUDITORS {
            workers.spawn(auditors::run(server.clone()));
        }
        let mut sender = TrafficSender {
            server: &server,
            clock: &*clock as &dyn Clock,
            passages: &passages,
            speed: self.speed,
            events: SentEvents::default(),
            count: 0,
        };
        let outcome = tokio::select! {
            outcome = self.send(&mut sender, &server, &clock) => outcome,
            () = signals.next() => Ok(()),
        };
        workers.abort_all();
        node.stop().await;
        outcome?;
        let sent = Some(sender.events).filter(|_| self.once);
        Ok(sent.filter(|sent| sent.iter().any(|events| !events.is_empty())))
    }

    async fn send(
        &self,
        sender: &mut TrafficSender<'_>,
        server: &Server,
        clock: &RealClock,
    ) -> anyhow::Result<()> {
        let complete = Arc::new(AtomicBool::new(false));
        let mut printers = self.start_printers(server, &complete);
        if !self.once {
            return tokio::try_join!(
                sender.run_forever(),
                progress::run(server, printers, self.json)
            )
            .map(drop);
        }
        sender.run().await?;
        eprintln!(
            "\nAll {} events are sent; waiting for the last windows to close.\n",
            sender.count
        );
        self.finish(server, clock, &complete, &mut printers).await
    }

    fn start_printers(
        &self,
        server: &Server,
        complete: &Arc<AtomicBool>,
    ) -> JoinSet<anyhow::Result<()>> {
        let printer = |job: &DemoJob| RowPrinter {
            job: job.name,
            server: server.clone(),
            position_file: (self.once).then(|| RowPrinter::position_file(&self.dir, job.name)),
            json: self.json,
            complete: complete.clone(),
        };
        JOBS.iter().map(|job| printer(job).run()).collect()
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
                guide::print_files(&replay, &picture);
            }
        }
        Ok(ExitStatus::data_loss_if(report.lost_data()))
    }
}

/// Reference data with every twentieth plate, so that the query finds some.
fn stolen_plates(passages: &[tollbooth::Passage]) -> String {
    let stolen = passages.iter().step_by(20);
    stolen
        .map(|passage| {
            format!(
                "{{\"LicensePlate\":\"{}\",\"Reported\":\"yesterday\"}}\n",
                passage.plate()
            )
        })
        .collect()
}
