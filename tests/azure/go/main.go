// Microsoft's azeventhubs for Go, unchanged, against a node: eventhubs AMQP_PORT HUB
// The hub must have one partition and be empty. Ends with 1 if a check fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

func check(err error) {
	if err != nil {
		fmt.Println("FAIL ", err)
		os.Exit(1)
	}
}

func expect(holds bool, what string, found any) {
	if !holds {
		check(fmt.Errorf("%s: %v", what, found))
	}
}

func main() {
	port, hub := os.Args[1], os.Args[2]
	text := "Endpoint=sb://127.0.0.1:" + port +
		";SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true;"
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	producer, err := azeventhubs.NewProducerClientFromConnectionString(text, hub, nil)
	check(err)
	properties, err := producer.GetEventHubProperties(limit, nil)
	check(err)
	expect(len(properties.PartitionIDs) == 1 && properties.Name == hub, "properties of the hub", properties)
	batch, err := producer.NewEventDataBatch(limit, &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr("one key")})
	check(err)
	for number := range 10 {
		event := &azeventhubs.EventData{
			Body:        fmt.Appendf(nil, "event %d", number),
			ContentType: to.Ptr("text/plain"),
			Properties:  map[string]any{"number": int64(number), "text": "ümlaut"},
		}
		check(batch.AddEventData(event, nil))
	}
	check(producer.SendEventDataBatch(limit, batch, nil))
	partition, err := producer.GetPartitionProperties(limit, "0", nil)
	check(err)
	expect(partition.LastEnqueuedSequenceNumber == 9 && !partition.IsEmpty, "properties of the partition", partition)
	check(producer.Close(limit))

	consumer, err := azeventhubs.NewConsumerClientFromConnectionString(text, hub, azeventhubs.DefaultConsumerGroup, nil)
	check(err)
	low := open(consumer, azeventhubs.StartPosition{Earliest: to.Ptr(true)}, 1)
	events, err := low.ReceiveEvents(limit, 10, nil)
	check(err)
	expect(len(events) == 10, "events", len(events))
	for number, event := range events {
		expect(string(event.Body) == fmt.Sprintf("event %d", number), "body", string(event.Body))
		expect(*event.PartitionKey == "one key" && *event.ContentType == "text/plain", "key and content type", event)
		expect(event.Properties["number"] == int64(number) && event.Properties["text"] == "ümlaut", "properties", event.Properties)
		expect(event.SequenceNumber == int64(number), "sequence number", event.SequenceNumber)
	}
	after := azeventhubs.StartPosition{SequenceNumber: to.Ptr(events[6].SequenceNumber)}
	high := open(consumer, after, 2)
	events, err = high.ReceiveEvents(limit, 3, nil)
	check(err)
	expect(len(events) == 3 && string(events[0].Body) == "event 7", "events after a sequence number", events)
	_, err = low.ReceiveEvents(limit, 1, nil)
	var lost *azeventhubs.Error
	expect(errors.As(err, &lost) && lost.Code == azeventhubs.ErrorCodeOwnershipLost, "the lower owner level", err)
	check(high.Close(limit))
	check(consumer.Close(limit))
	fmt.Println("ok    Go")
}

func open(consumer *azeventhubs.ConsumerClient, from azeventhubs.StartPosition, level int64) *azeventhubs.PartitionClient {
	options := &azeventhubs.PartitionClientOptions{StartPosition: from, OwnerLevel: to.Ptr(level)}
	client, err := consumer.NewPartitionClient("0", options)
	check(err)
	return client
}
