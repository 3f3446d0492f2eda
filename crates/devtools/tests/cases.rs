//! Every golden case under `cases/` is a test, run with one thread and with two.

use std::path::Path;

use highwater_devtools::golden::{discover, run_case};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let found = discover(&[folder]);
    assert!(!found.is_empty(), "there are no cases");
    let trials = found.into_iter().flat_map(|case| {
        [1, 2].map(|threads| {
            let case = case.clone();
            Trial::test(format!("{} ({threads})", case.name), move || {
                run_case(&case, threads).map_err(|failure| failure.0.into())
            })
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
