//! ListTransactions and DescribeTransactions, for tools that look for transactions that hang.

use highwater_log::{TransactionInfo, TransactionPhase};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_transactions_response::{
    TopicData, TransactionState as Described,
};
use kafka_protocol::messages::list_transactions_response::TransactionState as Listed;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, ProducerId, TransactionalId,
};
use regex::{Regex, RegexBuilder};

use super::{distinct, text, topic};
use crate::access::Resource;
use crate::codes::ErrorCode;
use crate::request::RequestContext;

const PHASES: [(TransactionPhase, &str); 6] = [
    (TransactionPhase::Empty, "Empty"),
    (TransactionPhase::Ongoing, "Ongoing"),
    (TransactionPhase::PrepareCommit, "PrepareCommit"),
    (TransactionPhase::PrepareAbort, "PrepareAbort"),
    (TransactionPhase::CompleteCommit, "CompleteCommit"),
    (TransactionPhase::CompleteAbort, "CompleteAbort"),
];

fn phase_name(phase: TransactionPhase) -> &'static str {
    let found = PHASES.iter().find(|(one, _)| *one == phase);
    found.map_or("Empty", |(_, name)| *name)
}

/// The longest pattern.
const PATTERN_BYTES_MAX: usize = 1024;
/// The largest compiled pattern, which exists for one request.
const COMPILED_BYTES_MAX: usize = 1 << 18;

/// A pattern of ids, which matches whole ones. Its evaluation takes linear time.
fn whole_name(pattern: &str) -> Result<Regex, Code> {
    let invalid = Code::InvalidRegularExpression;
    let compile = |pattern: &str| {
        RegexBuilder::new(pattern)
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX)
            .nest_limit(32)
            .build()
            .map_err(|_| invalid)
    };
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid);
    }
    // Alone as well: a part such as `a)(b` is no pattern.
    compile(pattern)?;
    compile(&format!("^(?:{pattern})$"))
}

/// Ids that the client may not use are left out.
pub(crate) async fn list(
    context: &RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let response = ListTransactionsResponse::default();
    let pattern = request.transactional_id_pattern.as_deref();
    let pattern = match pattern
        .filter(|pattern| !pattern.is_empty())
        .map(whole_name)
    {
        None => None,
        Some(Ok(pattern)) => Some(pattern),
        Some(Err(code)) => return response.with_error_code(context.error_code(&code)),
    };
    let all = match context.transactions().transactions().await {
        Ok(all) => all,
        Err(error) => return response.with_error_code(context.error_code(&error)),
    };
    let is_known = |name: &str| PHASES.iter().any(|(_, known)| *known == name);
    let unknown = request.state_filters.iter().filter(|name| !is_known(name));
    let unknown = unknown.cloned().collect();
    let now_ms = context.broker.services.clock.unix_millis();
    let is_wanted = |info: &TransactionInfo| {
        let states = &request.state_filters;
        let producers = &request.producer_id_filters;
        let lasts = info.started_ms.map_or(0, |started| now_ms - started);
        (states.is_empty() || states.iter().any(|name| **name == *phase_name(info.phase)))
            && (producers.is_empty() || producers.contains(&ProducerId(info.producer.id)))
            && (request.duration_filter < 0 || lasts > request.duration_filter)
            && (pattern.as_ref()).is_none_or(|pattern| pattern.is_match(&info.id))
    };
    let listed = all
        .iter()
        .filter(|info| context.may(Resource::TransactionalId(&info.id)))
        .filter(|info| is_wanted(info))
        .map(|info| {
            Listed::default()
                .with_transactional_id(TransactionalId(text(&*info.id)))
                .with_producer_id(ProducerId(info.producer.id))
                .with_transaction_state(text(phase_name(info.phase)))
        });
    response
        .with_unknown_state_filters(unknown)
        .with_transaction_states(listed.collect())
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let all = context.transactions().transactions().await;
    let find = |id: &TransactionalId| -> Result<&TransactionInfo, Code> {
        context.allow(Resource::TransactionalId(id))?;
        let all = all.as_ref().map_err(|error| error.kind())?;
        let found = all.iter().find(|info| info.id == id.as_str());
        found.ok_or(Code::TransactionalIdNotFound)
    };
    let ids = distinct(request.transactional_ids).into_iter();
    let states = ids.map(|id| {
        let state = match find(&id) {
            Ok(info) => described(context, info),
            Err(code) => Described::default().with_error_code(context.error_code(&code)),
        };
        state.with_transactional_id(id)
    });
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

fn described(context: &RequestContext, info: &TransactionInfo) -> Described {
    let partitions = info.topic_partitions.iter();
    let visible = partitions.filter(|at| context.may(Resource::Hub(at.hub.as_str())));
    let visible: Vec<_> = visible.collect();
    let topics = visible
        .chunk_by(|one, other| one.hub == other.hub)
        .map(|of_hub| {
            let indexes = of_hub.iter().map(|at| at.partition as i32);
            TopicData::default()
                .with_topic(topic(of_hub[0].hub.as_str()))
                .with_partitions(indexes.collect())
        });
    let timeout_ms = i32::try_from(info.timeout.as_millis()).unwrap_or(i32::MAX);
    Described::default()
        .with_transaction_state(text(phase_name(info.phase)))
        .with_transaction_timeout_ms(timeout_ms)
        .with_transaction_start_time_ms(info.started_ms.unwrap_or(-1))
        .with_producer_id(ProducerId(info.producer.id))
        .with_producer_epoch(info.producer.epoch)
        .with_topics(topics.collect())
}
