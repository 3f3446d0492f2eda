//! The table of metrics: name, which ends in its unit, kind, labels and help.
//!
//! It is the only list, and docs/metrics.md shows it. Labels have few values: hubs yes, partitions and keys no.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! families {
    ($($id:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(super) const $id: Family = Family {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        #[cfg(test)]
        pub(super) const ALL: &[Family] = &[$($id),*];
    };
}

families! {
    HTTP_REQUESTS: Counter "highwater_http_requests_total" ["class"]
        "Requests answered, by class of status";
    HTTP_FULL: Counter "highwater_http_full_total" []
        "Requests answered with 429";
    HTTP_EVENTS: Counter "highwater_http_events_total" []
        "Events stored";
    HTTP_EVENT_BYTES: Counter "highwater_http_event_bytes_total" []
        "Bytes of values stored";
    HTTP_CONNECTIONS: Gauge "highwater_http_connections" []
        "Open connections";
    HTTP_CONNECTIONS_REFUSED: Counter "highwater_http_connections_refused_total" []
        "Connections refused because there were too many";
    HTTP_LOGINS_REFUSED: Counter "highwater_http_logins_refused_total" []
        "Requests with a wrong key";
    AUDIT_DROPPED: Counter "highwater_audit_dropped_total" []
        "Audit events that did not reach the hub `__audit`";
    JWKS_FETCHES: Counter "highwater_jwks_fetches_total" []
        "Fetches of the keys of the tokens' issuer (`tokens.jwks_url`)";
    JWKS_FETCH_FAILURES: Counter "highwater_jwks_fetch_failures_total" []
        "Failed fetches; the keys of the last good one stay in use";
    HTTP_IN_FLIGHT: Gauge "highwater_http_in_flight_bytes" []
        "Bytes of requests in flight";
    HTTP_LATENCY: Histogram "highwater_http_request_seconds" []
        "Time from the head of a request to its answer";

    HUB_PARTITIONS: Gauge "highwater_hub_partitions" ["hub"]
        "Partitions of a hub";
    HUB_STOPPED: Gauge "highwater_hub_stopped_partitions" ["hub"]
        "Partitions of a hub that refuse writes";
    HUB_END_OFFSETS: Gauge "highwater_hub_end_offsets" ["hub"]
        "Sum of the end offsets of a hub's partitions: all records ever appended";
    HUB_BYTES: Gauge "highwater_hub_bytes" ["hub"]
        "Bytes of a hub on disk";
    HUB_APPEND_RECORDS: Counter "highwater_hub_append_records_total" []
        "Records appended";
    HUB_APPEND_BATCHES: Counter "highwater_hub_append_batches_total" []
        "Batches appended";
    HUB_APPEND_BYTES: Counter "highwater_hub_append_bytes_total" []
        "Bytes of batches appended";
    HUB_WRITES: Counter "highwater_hub_writes_total" []
        "Writes to disk, each of all waiting batches";
    HUB_SYNCS: Counter "highwater_hub_syncs_total" []
        "Disk syncs";
    HUB_SYNC_SECONDS: Counter "highwater_hub_sync_seconds_total" []
        "Time spent in disk syncs";
    HUB_WAITING: Gauge "highwater_hub_waiting_bytes" []
        "Bytes of batches that wait for the disk";
    HUB_TURNED_AWAY: Counter "highwater_hub_turned_away_batches_total" []
        "Batches refused because the disk was full";
    HUB_READS: Counter "highwater_hub_reads_total" ["from"]
        "Reads, from memory or disk";
    HUB_READ_BYTES: Counter "highwater_hub_read_bytes_total" []
        "Bytes of batches read";

    QUEUE_ACTIVE: Gauge "highwater_queue_active_messages" ["queue"]
        "Messages ready to be received";
    QUEUE_SCHEDULED: Gauge "highwater_queue_scheduled_messages" ["queue"]
        "Scheduled messages";
    QUEUE_DEFERRED: Gauge "highwater_queue_deferred_messages" ["queue"]
        "Deferred messages";
    QUEUE_LOCKED: Gauge "highwater_queue_locked_messages" ["queue"]
        "Locked messages";
    QUEUE_DEAD: Gauge "highwater_queue_dead_letters" ["queue"]
        "Dead letters";
    QUEUE_BYTES: Gauge "highwater_queue_bytes" ["queue"]
        "Bytes of all messages";
    QUEUE_SENT: Counter "highwater_queue_sent_total" ["queue"]
        "Messages accepted";
    QUEUE_DUPLICATES: Counter "highwater_queue_duplicates_total" ["queue"]
        "Duplicate messages dropped";
    QUEUE_RECEIVED: Counter "highwater_queue_received_total" ["queue"]
        "Messages delivered, redeliveries included";
    QUEUE_COMPLETED: Counter "highwater_queue_completed_total" ["queue"]
        "Messages completed";
    QUEUE_ABANDONED: Counter "highwater_queue_abandoned_total" ["queue"]
        "Messages abandoned";
    QUEUE_DEAD_LETTERED: Counter "highwater_queue_dead_lettered_total" ["queue"]
        "Messages that became dead letters";
    QUEUE_EXPIRED: Counter "highwater_queue_expired_total" ["queue"]
        "Messages expired";
    QUEUE_LOCKS_LOST: Counter "highwater_queue_locks_lost_total" ["queue"]
        "Locks expired";
    WORKFLOW_RUNNING: Gauge "highwater_workflow_running_instances" ["workflow"]
        "Running instances, failed ones included";
    WORKFLOW_FAILED: Gauge "highwater_workflow_failed_instances" ["workflow"]
        "Failed instances: being undone, or parked";
    WORKFLOW_ENDED: Gauge "highwater_workflow_ended_instances" ["workflow"]
        "Ended instances in the history";

    KAFKA_REQUESTS: Counter "highwater_kafka_requests_total" ["api"]
        "Requests by API";
    KAFKA_ERRORS: Counter "highwater_kafka_errors_total" []
        "Error codes sent, one for each partition or group that a request named";
    KAFKA_THROTTLED: Counter "highwater_kafka_throttled_total" []
        "Requests answered with a throttle time";
    KAFKA_MALFORMED: Counter "highwater_kafka_malformed_total" []
        "Connections closed because of a malformed request";
    KAFKA_RECEIVED: Counter "highwater_kafka_received_bytes_total" []
        "Bytes of requests";
    KAFKA_SENT: Counter "highwater_kafka_sent_bytes_total" []
        "Bytes of answers";
    KAFKA_CONNECTIONS: Gauge "highwater_kafka_connections" []
        "Open connections";
    KAFKA_CONNECTIONS_ACCEPTED: Counter "highwater_kafka_connections_accepted_total" []
        "Connections accepted";
    KAFKA_CONNECTIONS_REFUSED: Counter "highwater_kafka_connections_refused_total" []
        "Connections refused because there were too many";
    KAFKA_LOGINS_REFUSED: Counter "highwater_kafka_logins_refused_total" []
        "Logins with a wrong key";
    KAFKA_SESSIONS_EXPIRED: Counter "highwater_kafka_sessions_expired_total" []
        "Connections closed because a login with a token had expired";
    KAFKA_CLIENT_METRIC: Gauge "highwater_kafka_client_metric" ["client", "metric"]
        "Metrics that clients push (KIP-714), by client id: the sum of sums, the largest of others; 1,000 at most";

    AMQP_EVENTS_RECEIVED: Counter "highwater_amqp_received_events_total" []
        "Events that clients sent and that were accepted";
    AMQP_EVENTS_SENT: Counter "highwater_amqp_sent_events_total" []
        "Events sent to readers";
    AMQP_REJECTED: Counter "highwater_amqp_rejected_total" []
        "Messages of clients that were rejected";
    AMQP_THROTTLED: Counter "highwater_amqp_throttled_total" []
        "Pauses of clients above their quota";
    AMQP_MALFORMED: Counter "highwater_amqp_malformed_total" []
        "Connections closed because of a malformed frame";
    AMQP_RECEIVED: Counter "highwater_amqp_received_bytes_total" []
        "Bytes that clients sent";
    AMQP_SENT: Counter "highwater_amqp_sent_bytes_total" []
        "Bytes sent to clients";
    AMQP_CONNECTIONS: Gauge "highwater_amqp_connections" []
        "Open connections";
    AMQP_CONNECTIONS_ACCEPTED: Counter "highwater_amqp_connections_accepted_total" []
        "Connections accepted";
    AMQP_CONNECTIONS_REFUSED: Counter "highwater_amqp_connections_refused_total" []
        "Connections refused because there were too many";
    AMQP_LOGINS_REFUSED: Counter "highwater_amqp_logins_refused_total" []
        "Logins and tokens that were refused";

    JOB_RUNNING: Gauge "highwater_job_running" ["job"]
        "1 while a job runs";
    JOB_ALARMS: Gauge "highwater_job_alarms" ["job"]
        "Alarms of a running job";
    JOB_WATERMARK: Gauge "highwater_job_watermark_seconds" ["job"]
        "The minimum watermark over all partitions, in seconds since 1970";
    JOB_WATERMARK_DELAY: Gauge "highwater_job_watermark_delay_seconds" ["job"]
        "The wall clock minus the largest watermark of a partition";
    JOB_STATE_BYTES: Gauge "highwater_job_state_bytes" ["job"]
        "Bytes of the last checkpoint";
    JOB_RUNTIME_ERRORS: Counter "highwater_job_runtime_errors_total" ["job"]
        "Rows that the query failed on";
    JOB_EVENTS: Counter "highwater_job_input_events_total" ["job", "input"]
        "Events read";
    JOB_BYTES: Counter "highwater_job_input_bytes_total" ["job", "input"]
        "Bytes of events read";
    JOB_BACKLOG: Gauge "highwater_job_backlogged_input_events" ["job", "input"]
        "Events not read yet";
    JOB_EARLY_ADJUSTED: Counter "highwater_job_early_adjusted_events_total" ["job", "input"]
        "Early events, adjusted";
    JOB_EARLY_DROPPED: Counter "highwater_job_early_dropped_events_total" ["job", "input"]
        "Early events, dropped";
    JOB_LATE_ADJUSTED: Counter "highwater_job_late_adjusted_events_total" ["job", "input"]
        "Late events, adjusted";
    JOB_LATE_DROPPED: Counter "highwater_job_late_dropped_events_total" ["job", "input"]
        "Late events, dropped";
    JOB_DISORDER_ADJUSTED: Counter "highwater_job_out_of_order_adjusted_events_total" ["job", "input"]
        "Out-of-order events, adjusted";
    JOB_DISORDER_DROPPED: Counter "highwater_job_out_of_order_dropped_events_total" ["job", "input"]
        "Out-of-order events, dropped";
    JOB_DESERIALIZATION_ERRORS: Counter "highwater_job_deserialization_errors_total" ["job", "input"]
        "Events that could not be deserialized";
    JOB_CONVERSION_ERRORS: Counter "highwater_job_conversion_errors_total" ["job", "input"]
        "Events with a value of another type than declared";
    JOB_ROWS: Counter "highwater_job_output_events_total" ["job", "output"]
        "Rows written to an output";
    JOB_ROWS_WAITING: Gauge "highwater_job_output_waiting_events" ["job", "output"]
        "Rows waiting for an output";
    JOB_ROWS_DROPPED: Counter "highwater_job_output_dropped_events_total" ["job", "output"]
        "Rows refused by an output and dropped";
    JOB_RETRIES: Counter "highwater_job_output_retries_total" ["job", "output"]
        "Retries of an output";
    PROCESSOR_DELIVERIES: Counter "highwater_processor_deliveries_total" ["processor"]
        "Calls of a processor's handler";
    PROCESSOR_FAILURES: Counter "highwater_processor_failures_total" ["processor"]
        "Failed calls of a processor's handler";
    PROCESSOR_HANDLED: Counter "highwater_processor_handled_events_total" ["processor"]
        "Events handled";
    PROCESSOR_DEAD: Counter "highwater_processor_dead_letters_total" ["processor"]
        "Events that became dead letters";
    PROCESSOR_RESTARTS: Counter "highwater_processor_restarts_total" ["processor"]
        "Restarts of failed partitions";
    PROCESSOR_BEHIND: Gauge "highwater_processor_behind_events" ["processor"]
        "Events between the stored positions and the ends of the partitions";
    PROCESSOR_OPEN: Gauge "highwater_processor_circuit_open" ["processor"]
        "1 while the circuit is open";

    PROCESS_CPU: Counter "process_cpu_seconds_total" []
        "CPU time of the process";
    PROCESS_MEMORY_PEAK: Gauge "highwater_process_memory_peak_bytes" []
        "Peak memory of the process";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/metrics.md has a row for every metric, and no other.
    #[test]
    fn the_manual_lists_every_metric() {
        let page = include_str!("../../../../../docs/metrics.md");
        let rows: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        let row = |family: &Family| {
            let labels: Vec<String> = family.labels.iter().map(|l| format!("`{l}`")).collect();
            let (name, kind) = (family.name, family.kind.name());
            format!(
                "| `{name}` | {kind} | {} | {} |",
                labels.join(", "),
                family.help
            )
        };
        let expected: Vec<String> = ALL.iter().map(row).collect();
        assert_eq!(
            rows,
            expected,
            "docs/metrics.md should have:\n{}",
            expected.join("\n")
        );
    }

    #[test]
    fn only_counters_end_in_total() {
        for family in ALL {
            let counts = family.name.ends_with("_total");
            assert_eq!(counts, family.kind == Kind::Counter, "{}", family.name);
        }
    }
}
