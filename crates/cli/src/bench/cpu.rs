//! The CPU time of a load: of the node and of this process.

use highwater_env::usage;

use crate::client::Client;

/// CPU seconds; `None` if unknown.
pub(super) struct CpuSeconds {
    pub server: Option<f64>,
    pub own: Option<f64>,
}

impl CpuSeconds {
    /// The time used so far. The node's comes from its metrics, so that it works over a network too.
    pub(super) async fn now(client: &mut Client) -> CpuSeconds {
        CpuSeconds {
            server: server_cpu(client).await,
            own: usage().cpu.map(|cpu| cpu.as_secs_f64()),
        }
    }

    pub(super) fn since(&self, before: &CpuSeconds) -> CpuSeconds {
        let used = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        CpuSeconds {
            server: used(self.server, before.server),
            own: used(self.own, before.own),
        }
    }
}

async fn server_cpu(client: &mut Client) -> Option<f64> {
    let page = client.get("/metrics").await.ok()?;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("process_cpu_seconds_total "))?;
    line.split(' ').nth(1)?.parse().ok()
}
