//! `highwater up`: runs a node until a shutdown signal.

use std::sync::Arc;

use anyhow::Context;
use highwater_env::RealClock;
use highwater_server::config::LoadedConfig;
use highwater_server::node::Node;

use crate::client::DEFAULT_URL;
use crate::exit::ExitStatus;
use crate::logging::Logging;
use crate::runtime::block_on_node;
use crate::settings::SettingsArgs;
use crate::signals::ShutdownSignals;

#[derive(clap::Args)]
pub(crate) struct Up {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    logging: Logging,
}

impl Up {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let loaded = self.settings.load()?;
        self.logging.start()?;
        block_on_node(serve(loaded))
    }
}

async fn serve(loaded: LoadedConfig) -> anyhow::Result<ExitStatus> {
    let mut signals = ShutdownSignals::new().context("cannot listen for signals")?;
    let data = loaded.config.data.clone();
    let cluster = loaded.config.cluster.as_ref();
    let cluster = cluster.map(|cluster| cluster.servers.join(","));
    let http = loaded.config.http.as_ref();
    let has_console = http.is_some_and(|http| http.console);
    let starting = Node::start(loaded.config, Arc::new(RealClock::new()));
    let node = tokio::select! {
        node = starting => node?,
        () = signals.next() => return Ok(ExitStatus::Success),
    };
    eprint!(
        "{}",
        welcome(
            &node,
            has_console,
            cluster.as_deref(),
            &data.display().to_string()
        )
    );
    signals.next().await;
    eprintln!("stopping; press Ctrl-C again to stop at once");
    tokio::select! {
        () = node.stop() => {}
        () = signals.next() => eprintln!("stopped at once"),
    }
    Ok(ExitStatus::Success)
}

/// The addresses, and commands to try.
fn welcome(node: &Node, has_console: bool, cluster: Option<&str>, data: &str) -> String {
    let mut text = String::from("highwater is up\n\n");
    if let Some(url) = node.http_url() {
        if has_console {
            text.push_str(&format!("  console  {url}/\n"));
        }
        text.push_str(&format!("  HTTP     {url}\n"));
    }
    for address in node.more_http_addresses() {
        text.push_str(&format!("  HTTP     {address}\n"));
    }
    for address in node.kafka_addresses() {
        text.push_str(&format!("  Kafka    {address}\n"));
    }
    for address in node.amqp_addresses() {
        text.push_str(&format!("  AMQP     {address}\n"));
    }
    if let Some(servers) = cluster {
        text.push_str(&format!("  cluster  {servers}\n"));
    }
    text.push_str(&format!("  data     {data}\n"));
    if let Some(url) = node.http_url() {
        let server = match url == DEFAULT_URL {
            true => String::new(),
            false => format!(" --server {url}"),
        };
        text.push_str(&format!(
            "\n  producers ──▶ hub ──▶ consumers\n\n  \
             send     curl {url}/hubs/demo/messages -d '{{\"hello\":\"world\"}}'\n  \
             read     highwater hub tail demo --from earliest{server}\n  \
             watch    curl -N -H 'Accept: text/event-stream' '{url}/hubs/demo/messages?from=earliest'\n"
        ));
    }
    text.push_str("\nStop it with Ctrl-C.\n");
    text
}
