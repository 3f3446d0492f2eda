//! `highwater demo`: the whole system on made-up traffic, live.
//!
//! A node is started in this process, booths with skewed clocks report to a hub, four jobs answer queries over it, and their
//! rows are printed as they come. Everything is in one folder: whoever ends the demo in the middle, gently or not, and
//! starts it again sees it go on. At the end the events are there as a job over files, for `why` and `timeline`.

mod files;
mod play;
mod watch;

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
use crate::exit::Ending;
use crate::signals::Signals;
use crate::summary;
use crate::timeline::{draw, write_svg};
use files::JOBS;
use play::{Play, Recorded};
use watch::Watch;

#[derive(clap::Args)]
pub struct Demo {
    /// Where to put everything
    #[arg(long, default_value = "highwater-demo")]
    dir: PathBuf,
    /// How many events to send
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    events: u64,
    /// How many times as fast as in life everything happens: eight minutes pass in one, unless said otherwise
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    speed: u32,
    /// Same seed, same events
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print rows and the summary as JSON
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub fn run(self) -> anyhow::Result<Ending> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let recorded = runtime.block_on(self.play());
        runtime.shutdown_background();
        match recorded? {
            Some(recorded) => self.look_back(&recorded),
            None => Ok(Ending::Well),
        }
    }

    /// Runs the node and the booths; the events that were sent, unless it was told to end before there were any.
    async fn play(&self) -> anyhow::Result<Option<Recorded>> {
        let mut signals = Signals::new()?;
        let passages = tollbooth::passages(self.events as usize, self.seed);
        files::write_node(&self.dir, &stolen(&passages), self.speed)?;
        let clock = Arc::new(RealClock::new());
        let node = Node::start(self.settings()?, clock.clone()).await?;
        let url = node.http_url().unwrap_or_default().to_owned();
        self.welcome(&url);
        let server = Server::at(&url);
        let over = Arc::new(AtomicBool::new(false));
        let mut watches = JoinSet::new();
        for job in JOBS {
            let watch = Watch {
                job: job.name,
                server: server.clone(),
                memory: Watch::memory_of(&self.dir, job.name),
                json: self.json,
                over: over.clone(),
            };
            watches.spawn(watch.run());
        }
        let mut play = Play {
            server: &server,
            clock: &*clock as &dyn Clock,
            passages,
            speed: self.speed,
            recorded: Recorded::default(),
            sent: 0,
        };
        let ended = tokio::select! {
            played = play.run() => Some(played),
            () = signals.next() => None,
        };
        if let Some(played) = ended {
            played?;
            eprintln!(
                "\nAll {} events are sent; now time goes on without them.\n",
                play.sent
            );
            tokio::select! {
                done = self.finish(&server, &clock, &over, &mut watches) => done?,
                () = signals.next() => {}
            }
        }
        watches.abort_all();
        let recorded = play.recorded;
        node.stop().await;
        Ok(Some(recorded).filter(|recorded| recorded.iter().any(|events| !events.is_empty())))
    }

    /// Lets time go on until every row is written and printed.
    async fn finish(
        &self,
        server: &Server,
        clock: &RealClock,
        over: &AtomicBool,
        watches: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let until = clock.unix_nanos() + files::aftermath(self.speed).as_nanos() as i128;
        watch::settled(server, Instant::from_unix_nanos(until)).await?;
        over.store(true, Ordering::Release);
        while let Some(ended) = watches.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// The settings in the demo's folder, with ports that are free.
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
            "Four toll booths report to a hub, some events late, early or out of order; their clocks are off."
        );
        eprintln!(
            "Everything happens {} times as fast as in life. Jobs answer queries over the hub as the events come:
",
            self.speed
        );
        for job in JOBS {
            eprintln!("  {:8} {}", job.name, job.about);
        }
        eprintln!(
            "\nThe node is at {url}, everything it keeps in {dir}. Meanwhile, in another terminal:\n"
        );
        eprintln!("  highwater job list --server {url}");
        eprintln!("  highwater job status counts --server {url}");
        eprintln!(
            "\nEnd it with Ctrl-C, or kill -9 it, and start it again: it goes on where it was.\n"
        );
    }

    /// Runs the first query once more over the events, now at rest, and says what became of them.
    fn look_back(&self, recorded: &Recorded) -> anyhow::Result<Ending> {
        let replay = self.dir.join("replay");
        files::write_replay(&replay, recorded, self.speed)?;
        let job = Job::load(&replay)?;
        let outputs = Outputs::discarded(&job.plan);
        let report = run(&job, outputs, Options::default())?.report;
        let picture = self.dir.join("timeline.svg");
        write_svg(&picture, &draw(&job, None)?)?;
        match self.json {
            true => eprintln!("{}", summary::json(&job, &report)),
            false => {
                let text = summary::text(&job, &report);
                eprintln!("\nWhat happened to the events:\n\n{text}");
                say_next(&replay, &picture);
            }
        }
        Ok(match report.lost_data() {
            true => Ending::LostData,
            false => Ending::Well,
        })
    }
}

/// Every fortieth plate, so that some are found.
fn stolen(passages: &[tollbooth::Passage]) -> String {
    let wanted = passages.iter().step_by(40);
    wanted
        .map(|passage| {
            format!(
                "{{\"LicensePlate\":\"{}\",\"Reported\":\"yesterday\"}}\n",
                passage.plate()
            )
        })
        .collect()
}

fn say_next(replay: &Path, picture: &Path) {
    let replay = replay.display();
    eprintln!("The picture of how time moved: {}", picture.display());
    eprintln!("Why single events were moved or dropped:  highwater why {replay} --moved");
    eprintln!("The picture in the terminal:              highwater timeline {replay}");
    eprintln!("The same query over the same events:      highwater run {replay}");
}
