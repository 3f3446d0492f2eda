//! Every golden case under `cases/` is a test, run with one thread and with two. A case that needs a Cargo feature
//! which is off passes if the job is refused for it.

use std::path::Path;

use highwater_devtools::golden::{discover, run_case};
use libtest_mimic::{Arguments, Trial};

const LACKS_FEATURES: bool = cfg!(not(all(
    feature = "avro",
    feature = "geo",
    feature = "javascript",
    feature = "parquet"
)));
const LACKS_ONE: &str = "built without the feature";

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let found = discover(&[folder]);
    assert!(!found.is_empty(), "there are no cases");
    let trials = found.into_iter().flat_map(|case| {
        [1, 2].map(|threads| {
            let case = case.clone();
            Trial::test(
                format!("{} ({threads})", case.name),
                move || match run_case(&case, threads) {
                    Err(failure) if !(LACKS_FEATURES && failure.0.contains(LACKS_ONE)) => {
                        Err(failure.0.into())
                    }
                    _ => Ok(()),
                },
            )
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
