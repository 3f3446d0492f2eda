//! WriteTxnMarkers: an administrator ends a transaction in a partition, where it hangs.
//!
//! Here no late batch opens a transaction that its coordinator does not know of, so nothing should hang; but data that
//! came from elsewhere, or a lost `__transactions`, can leave one. Tools find it with DescribeProducers.

use highwater_log::{HubName, Producer, TransactionMarker};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{TopicName, WriteTxnMarkersRequest, WriteTxnMarkersResponse};

use super::distinct;
use crate::access::Resource;
use crate::codes::{ErrorCode, code_of};
use crate::request::RequestContext;

pub(crate) async fn write(
    context: &RequestContext,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let mut markers = Vec::with_capacity(request.markers.len());
    for marker in request.markers {
        markers.push(write_marker(context, marker).await);
    }
    WriteTxnMarkersResponse::default().with_markers(markers)
}

async fn write_marker(
    context: &RequestContext,
    marker: WritableTxnMarker,
) -> WritableTxnMarkerResult {
    let producer = Producer {
        id: marker.producer_id.0,
        epoch: marker.producer_epoch,
    };
    let outcome = match marker.transaction_result {
        true => TransactionMarker::Commit,
        false => TransactionMarker::Abort,
    };
    let mut topics = Vec::with_capacity(marker.topics.len());
    for WritableTxnMarkerTopic {
        name,
        partition_indexes,
        ..
    } in marker.topics
    {
        let mut partitions = Vec::with_capacity(partition_indexes.len());
        for index in distinct(partition_indexes) {
            let written = write_to(context, &name, index, producer, outcome).await;
            context.audit(&format!("{}-{index}", name.as_str()), written.err());
            partitions.push(
                WritableTxnMarkerPartitionResult::default()
                    .with_partition_index(index)
                    .with_error_code(context.count_error(code_of(&written))),
            );
        }
        topics.push(
            WritableTxnMarkerTopicResult::default()
                .with_name(name)
                .with_partitions(partitions),
        );
    }
    WritableTxnMarkerResult::default()
        .with_producer_id(marker.producer_id)
        .with_topics(topics)
}

async fn write_to(
    context: &RequestContext,
    name: &TopicName,
    index: i32,
    producer: Producer,
    marker: TransactionMarker,
) -> Result<(), Code> {
    context.allow(Resource::Node)?;
    if HubName::is_internal_name(name) {
        return Err(context.refuse(Resource::Node));
    }
    let partition = context.partition(name, index)?;
    let written = partition.append_marker(producer, marker).await;
    written.map(|_| ()).map_err(|error| error.kind())
}
