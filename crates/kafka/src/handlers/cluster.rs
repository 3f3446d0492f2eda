//! The cluster, which is this node, and who coordinates, which is this node too.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, FindCoordinatorRequest,
    FindCoordinatorResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{metadata, some_text, text};
use crate::access::{Resource, Right};
use crate::broker::Broker;
use crate::call::Call;
use crate::codes::code_of;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// What DescribeCluster calls the nodes that clients talk to, against controllers.
const BROKERS: i8 = 1;

pub(crate) async fn find_coordinator(
    broker: &Broker,
    call: &Call,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    if call.version >= 4 {
        let keys = request.coordinator_keys.into_iter();
        let coordinators = keys.map(|key| coordinator(broker, call, request.key_type, key));
        return FindCoordinatorResponse::default().with_coordinators(coordinators.collect());
    }
    let found = coordinator(broker, call, request.key_type, request.key);
    let answer = FindCoordinatorResponse::default()
        .with_error_code(found.error_code)
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port);
    match call.version {
        0 => answer,
        _ => answer.with_error_message(found.error_message),
    }
}

fn coordinator(broker: &Broker, call: &Call, kind: i8, key: StrBytes) -> Coordinator {
    let allowed = match kind {
        GROUP => broker.allow(call, Right::Listen, Resource::Group(&key)),
        TRANSACTION => broker.allow(call, Right::Send, Resource::Transaction(&key)),
        _ => Err(Code::InvalidRequest),
    };
    let here = match allowed {
        Ok(()) => Coordinator::default()
            .with_node_id(BrokerId(broker.options.node_id))
            .with_host(call.listener_info.host.clone())
            .with_port(i32::from(call.listener_info.port)),
        Err(code) => Coordinator::default()
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_message(some_text(code)),
    };
    here.with_key(key)
        .with_error_code(broker.noted(code_of(&allowed)))
}

pub(crate) async fn describe(
    broker: &Broker,
    call: &Call,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let this = DescribeClusterBroker::default()
        .with_broker_id(BrokerId(broker.options.node_id))
        .with_host(call.listener_info.host.clone())
        .with_port(i32::from(call.listener_info.port));
    let answer =
        DescribeClusterResponse::default().with_cluster_id(text(&*broker.options.cluster_id));
    if call.version >= 1 && request.endpoint_type != BROKERS {
        return answer
            .with_error_code(broker.fail(&Code::UnsupportedEndpointType))
            .with_error_message(some_text("only the endpoints of brokers are known"))
            .with_endpoint_type(request.endpoint_type);
    }
    let answer = answer
        .with_controller_id(BrokerId(broker.options.node_id))
        .with_brokers(vec![this]);
    match request.include_cluster_authorized_operations {
        true => answer.with_cluster_authorized_operations(metadata::operations(
            broker,
            call,
            Resource::Node,
        )),
        false => answer,
    }
}
