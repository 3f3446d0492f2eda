//! `highwater demo`: toll-booth traffic with late, early and disordered events, and what becomes of it.

use std::io::Write;
use std::path::{Path, PathBuf};

use highwater_env::disk;
use highwater_job::{Job, Options, Outputs, run, tollbooth};

use crate::exit::Ending;
use crate::summary;
use crate::timeline::{draw, write_svg};

#[derive(clap::Args)]
pub struct Demo {
    /// Where to put the job, its events and the picture
    #[arg(long, default_value = "highwater-demo")]
    dir: PathBuf,
    /// How many events to make
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    events: u64,
    /// Same seed, same events
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub fn run(self) -> anyhow::Result<Ending> {
        let mut events = Vec::new();
        tollbooth::generate(self.events as usize, self.seed, &mut events);
        write(&self.dir.join(tollbooth::EVENTS_PATH), &events)?;
        write(
            &self.dir.join(tollbooth::QUERY_PATH),
            tollbooth::QUERY.as_bytes(),
        )?;
        write(&self.dir.join("job.toml"), tollbooth::JOB.as_bytes())?;

        let job = Job::load(&self.dir)?;
        eprintln!(
            "{} events at four toll booths, some of them late, early or out of order.",
            self.events
        );
        eprintln!("The query:\n");
        job.query.lines().for_each(|line| eprintln!("    {line}"));
        eprintln!("\nIts result:\n");
        let outputs = Outputs::declared(&job.file, &job.plan)?;
        let report = run(&job, outputs, Options::default())?.report;
        std::io::stdout().flush()?;

        let picture = self.dir.join("timeline.svg");
        write_svg(&picture, &draw(&job, None)?)?;
        if self.json {
            eprintln!("{}", summary::json(&job, &report));
        } else {
            eprintln!(
                "\nWhat happened to the events:\n\n{}",
                summary::text(&job, &report)
            );
            self.say_next(&picture);
        }
        Ok(if report.lost_data() {
            Ending::LostData
        } else {
            Ending::Well
        })
    }

    fn say_next(&self, picture: &Path) {
        let dir = self.dir.display();
        eprintln!("The picture of how time moved: {}", picture.display());
        eprintln!("Why single events were moved or dropped:  highwater why {dir} --moved");
        eprintln!("The picture in the terminal:              highwater timeline {dir}");
        eprintln!("Run it again, or change it:               highwater run {dir}");
    }
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        disk::create_folder(folder)?;
    }
    let mut file = disk::create_atomic(path)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}
