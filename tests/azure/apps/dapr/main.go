// Dapr's components for Service Bus, unchanged, against a node: dapr AMQP_PORT QUEUE TOPIC SUBSCRIPTION
//
// Publishes one by one and in bulk to a queue and to a topic, and subscribes to both; a handler that fails gets its message again. Ends with 1 if a
// message is missing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/topics"
	"github.com/dapr/kit/logger"
)

const count = 20

func check(name string, component pubsub.PubSub, properties map[string]string, entity string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	base := metadata.Base{Name: name, Properties: properties}
	if err := component.Init(ctx, pubsub.Metadata{Base: base}); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	defer component.Close()
	var lock sync.Mutex
	got, failed, all := map[string]bool{}, false, make(chan struct{})
	handler := func(_ context.Context, message *pubsub.NewMessage) error {
		lock.Lock()
		defer lock.Unlock()
		body := string(message.Data)
		if body == "m-7" && !failed {
			failed = true
			return errors.New("not the first time")
		}
		if !got[body] {
			got[body] = true
			if len(got) == 2*count {
				close(all)
			}
		}
		return nil
	}
	if err := component.Subscribe(ctx, pubsub.SubscribeRequest{Topic: entity}, handler); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	for at := range count {
		data := []byte(fmt.Sprintf("m-%d", at))
		if err := component.Publish(ctx, &pubsub.PublishRequest{Topic: entity, Data: data}); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	var entries []pubsub.BulkMessageEntry
	for at := range count {
		entries = append(entries, pubsub.BulkMessageEntry{EntryId: fmt.Sprint(at), Event: []byte(fmt.Sprintf("b-%d", at))})
	}
	bulk := &pubsub.BulkPublishRequest{Topic: entity, Entries: entries}
	if _, err := component.(pubsub.BulkPublisher).BulkPublish(ctx, bulk); err != nil {
		return fmt.Errorf("publish in bulk: %w", err)
	}
	select {
	case <-all:
	case <-ctx.Done():
		return fmt.Errorf("only %d of %d messages came", len(got), 2*count)
	}
	if !failed {
		return errors.New("no message came twice")
	}
	return nil
}

func main() {
	port, queue, topic, subscription := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	properties := func() map[string]string {
		return map[string]string{
			"connectionString": "Endpoint=sb://127.0.0.1:" + port + ";SharedAccessKeyName=root;" +
				"SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true",
			"disableEntityManagement": "true",
			"consumerID":              subscription,
		}
	}
	log := logger.NewLogger("dapr")
	log.SetOutputLevel(logger.FatalLevel)
	for _, part := range []struct {
		name      string
		component pubsub.PubSub
		entity    string
	}{
		{"queues", queues.NewAzureServiceBusQueues(log), queue},
		{"topics", topics.NewAzureServiceBusTopics(log), topic},
	} {
		if err := check(part.name, part.component, properties(), part.entity); err != nil {
			fmt.Printf("FAIL  Dapr's pubsub.azure.servicebus.%s: %v\n", part.name, err)
			os.Exit(1)
		}
		fmt.Printf("ok    Dapr's pubsub.azure.servicebus.%s\n", part.name)
	}
}
