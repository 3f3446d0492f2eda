//! The settings of a node whose log is a cluster.
// proves X1

use std::path::Path;
use std::time::Duration;

use highwater_job::config::JobStateStore;
use highwater_server::config::{Config, Sources};

use crate::whole_node;

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("highwater.toml");
    whole_node::write(&file, text);
    let variables = variables.iter();
    let sources = Sources {
        file: Some(file),
        variables: variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Sources::default()
    };
    let loaded = sources.load().map_err(|error| error.to_string())?;
    Ok(loaded.config)
}

#[test]
fn a_log_that_is_a_cluster_has_its_servers_and_no_listeners_of_its_own() {
    let text = "log = 'kafka://a:9092, [::1]:9093/'\n[cluster]\nprefix = 'p.'\nreplication = 3\n\
                [cluster.tls]\nca = 'ca.pem'\n[cluster.sasl]\nmechanism = 'PLAIN'\nuser = 'u'\npassword = 'hidden'\n";
    let config = load(text, &[]).unwrap();
    assert!(config.kafka.is_empty() && config.amqp.is_empty());
    let cluster = config.cluster.unwrap();
    assert_eq!(cluster.servers, ["a:9092", "[::1]:9093"]);
    assert_eq!(
        (cluster.prefix.as_str(), cluster.replication),
        ("p.", Some(3))
    );
    assert!(cluster.tls.as_ref().unwrap().ca.ends_with("ca.pem"));
    assert!(!format!("{cluster:?}").contains("hidden"));
    let variable = [
        ("HIGHWATER_CLUSTER", "kafka://b:1"),
        ("HIGHWATER_LOG", "debug"),
    ];
    let config = load("", &variable).unwrap();
    assert_eq!(config.cluster.unwrap().servers, ["b:1"]);
    let config = load("", &[("HIGHWATER_LOG", "debug")]).unwrap();
    assert_eq!(config.cluster, None);
}

#[test]
fn the_state_of_jobs_is_a_folder_or_a_url() {
    let state = |text: &str| load(text, &[]).unwrap().job_state;
    assert_eq!(state("log = 'kafka://a:9092'\n"), None);
    let of_node = |location: &str, shared: bool, seconds: u64| {
        let session = Duration::from_secs(seconds);
        Some(JobStateStore::of_node(location.into(), shared, session))
    };
    let own = "[state]\npath = '/var/state'\n";
    assert_eq!(state(own), of_node("/var/state", false, 10));
    let shared = "log = 'kafka://a:9092'\n[state]\npath = 's3://b/jobs'\nshared = true\nsession_timeout = '8s'\n";
    assert_eq!(state(shared), of_node("s3://b/jobs", true, 8));
    let relative = state("[state]\npath = 'jobs'\n").unwrap();
    let folder = Path::new(&relative.store.location);
    assert!(
        folder.is_absolute() && folder.ends_with("jobs"),
        "below the file: {folder:?}"
    );
}

#[test]
fn settings_of_a_cluster_that_cannot_work_are_refused() {
    let log = "log = 'kafka://broker:9092'\n";
    for (text, expected) in [
        (
            "log = 'kafka://b:1'\n[state]\nshared = true\n",
            "through a state that all of them reach",
        ),
        (
            "[state]\npath = 's'\nshared = true\n",
            "over a log that all of them have",
        ),
        (
            "log = 'kafka://b:1'\ncluster.profile = 'event-hubs'\n[state]\npath = 's'\nshared = true\n",
            "by transactions of the cluster",
        ),
        (
            "[state]\npath = '${env:HIGHWATER_NO_SUCH}'\n",
            "HIGHWATER_NO_SUCH",
        ),
        ("log = 'broker:9092'\n", "the log is no Kafka cluster"),
        ("log = 'kafka://broker'\n", "`broker` is not host:port"),
        (
            "log = 'kafka://u:hidden@broker:x'\n",
            "`broker:x` is not host:port",
        ),
        (
            "[cluster]\nprefix = 'p'\n",
            "is for a node whose log is a cluster",
        ),
        (
            &format!("{log}[kafka]\nlisten = '127.0.0.1:9092'\n"),
            "does not serve Kafka clients",
        ),
        (
            &format!("{log}[[amqp.listeners]]\nlisten = '127.0.0.1:5673'\n"),
            "does not serve AMQP clients",
        ),
        (
            &format!("{log}[cluster]\nprofile = 'event-hubs'\n[queues.jobs]\n"),
            "queues need transactions",
        ),
        (
            &format!("{log}[cluster]\nprefix = 'a b'\n"),
            "cannot begin the names",
        ),
        (
            &format!("{log}[topics.orders]\n"),
            "a node over a cluster has no topics",
        ),
        (
            &format!("{log}[cluster]\nadvertise = 'node-1:8080'\n"),
            "is no address of a node",
        ),
        (
            &format!("{log}[cluster]\nadvertise = 'http://u:hidden@node-1/console'\n"),
            "`node-1/console` is no address of a node",
        ),
        (
            &format!("{log}[cluster]\nsession = '500ms'\n"),
            "the session is not between",
        ),
        (
            "[cluster]\nadvertise = 'http://node-1:8080'\n",
            "is for a node whose log is a cluster",
        ),
        (
            &format!("{log}[cluster.tls]\ncert = 'c'\n"),
            "needs a certificate and a key",
        ),
        (
            &format!("{log}[cluster.tls]\ncert = 'c'\nkey = 'k'\n"),
            "needs the authorities",
        ),
        (
            &format!("{log}[cluster.sasl]\nmechanism = 'SCRAM-SHA-256'\nuser = 'u'\n"),
            "needs a user and a password",
        ),
        (
            &format!("{log}[cluster.sasl]\nmechanism = 'OAUTHBEARER'\nuser = 'u'\n"),
            "needs a token",
        ),
        (
            &format!("{log}[cluster.sasl]\ntoken = 't'\n"),
            "needs a mechanism",
        ),
        (
            &format!("{log}[cluster.sasl]\nmechanism = 'PLAIN'\nuser = 'u'\npassword = 'hidden'\n"),
            "would travel unencrypted to broker:9092",
        ),
        (
            &format!(
                "{log}[cluster.sasl]\nmechanism = 'SCRAM-SHA-256'\nuser = 'u'\npassword = '${{file:/none}}'\n"
            ),
            "the secret ${file:/none}",
        ),
    ] {
        let error = load(text, &[]).map(drop).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("hidden"), "{error}");
    }
    let local = "log = 'kafka://localhost:9092'\n[cluster.sasl]\nmechanism = 'PLAIN'\nuser = 'u'\npassword = 'p'\n";
    load(local, &[]).unwrap();
    let off = format!("{log}[kafka]\nlisten = 'off'\n[amqp]\nlisten = 'off'\n");
    load(&off, &[]).unwrap();
}
