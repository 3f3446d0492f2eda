//! DescribeCluster and FindCoordinator: both name this node.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, FindCoordinatorRequest,
    FindCoordinatorResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{distinct, some_text, text};
use crate::access::Resource;
use crate::codes::code_of;
use crate::request::RequestContext;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// The endpoint type of brokers, as opposed to controllers.
const BROKERS: i8 = 1;

pub(crate) async fn find_coordinator(
    context: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    if context.version >= 4 {
        let keys = distinct(request.coordinator_keys).into_iter();
        let coordinators = keys.map(|key| coordinator(context, request.key_type, key));
        return FindCoordinatorResponse::default().with_coordinators(coordinators.collect());
    }
    let found = coordinator(context, request.key_type, request.key);
    let response = FindCoordinatorResponse::default()
        .with_error_code(found.error_code)
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port);
    match context.version {
        0 => response,
        _ => response.with_error_message(found.error_message),
    }
}

fn coordinator(context: &RequestContext, kind: i8, key: StrBytes) -> Coordinator {
    let allowed = match kind {
        GROUP => context.allow(Resource::Group(&key)),
        TRANSACTION => context.allow(Resource::TransactionalId(&key)),
        _ => Err(Code::InvalidRequest),
    };
    let here = match allowed {
        Ok(()) => Coordinator::default()
            .with_node_id(BrokerId(context.broker.options.node_id))
            .with_host(context.listener.host.clone())
            .with_port(i32::from(context.listener.port)),
        Err(code) => Coordinator::default()
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_message(some_text(code)),
    };
    here.with_key(key)
        .with_error_code(context.count_error(code_of(&allowed)))
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let this = DescribeClusterBroker::default()
        .with_broker_id(BrokerId(context.broker.options.node_id))
        .with_host(context.listener.host.clone())
        .with_port(i32::from(context.listener.port));
    let response = DescribeClusterResponse::default()
        .with_cluster_id(text(context.broker.cluster_id().unwrap_or_default()));
    if context.version >= 1 && request.endpoint_type != BROKERS {
        return response
            .with_error_code(context.error_code(&Code::UnsupportedEndpointType))
            .with_error_message(some_text("only broker endpoints are supported"))
            .with_endpoint_type(request.endpoint_type);
    }
    let response = response
        .with_controller_id(BrokerId(context.broker.options.node_id))
        .with_brokers(vec![this]);
    match request.include_cluster_authorized_operations {
        true => {
            let operations = context.authorized_operations(Resource::Node);
            response.with_cluster_authorized_operations(operations)
        }
        false => response,
    }
}
