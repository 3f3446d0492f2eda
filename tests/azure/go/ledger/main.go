// Microsoft's azeventhubs and azservicebus for Go for ../../python/ledger.py, which says what is printed: ledger AMQP_PORT
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	batchSize = 10
	// Messages that may wait in the queue.
	aheadMax = 200
)

var (
	text    string
	stopped atomic.Bool
	ahead   atomic.Int64
	output  sync.Mutex
)

func say(what string, names ...string) {
	output.Lock()
	defer output.Unlock()
	for _, name := range names {
		fmt.Println(what, name)
	}
}

func numbered(kind string, from int) []string {
	names := make([]string, batchSize)
	for at := range names {
		names[at] = fmt.Sprintf("%s-%d", kind, from+at)
	}
	return names
}

// repeat runs act with clients of its own while goesOn; what fails is tried again.
func repeat(goesOn func() bool, act func() error) {
	for goesOn() {
		if act() != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func sends() bool { return !stopped.Load() }

func within(seconds int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
}

func sendEvents() {
	at := 0
	repeat(sends, func() error {
		options := azeventhubs.RetryOptions{MaxRetries: -1}
		client, err := azeventhubs.NewProducerClientFromConnectionString(text, "ledger",
			&azeventhubs.ProducerClientOptions{RetryOptions: options})
		if err != nil {
			return err
		}
		defer client.Close(context.Background())
		for sends() {
			names := numbered("e", at)
			if err := sendBatch(client, names, fmt.Sprint(at/batchSize%2)); err != nil {
				return err
			}
			say("event", names...)
			at += batchSize
		}
		return nil
	})
}

func sendBatch(client *azeventhubs.ProducerClient, names []string, partition string) error {
	limit, cancel := within(5)
	defer cancel()
	batch, err := client.NewEventDataBatch(limit, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(partition)})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(name)}, nil); err != nil {
			return err
		}
	}
	return client.SendEventDataBatch(limit, batch, nil)
}

// withBus runs act with a client that is closed afterwards.
func withBus(act func(*azservicebus.Client) error) error {
	options := azservicebus.RetryOptions{MaxRetries: -1}
	client, err := azservicebus.NewClientFromConnectionString(text, &azservicebus.ClientOptions{RetryOptions: options})
	if err != nil {
		return err
	}
	defer client.Close(context.Background())
	return act(client)
}

func sendMessages() {
	at := 0
	repeat(sends, func() error {
		return withBus(func(client *azservicebus.Client) error {
			sender, err := client.NewSender("ledger", nil)
			for err == nil && sends() {
				if ahead.Load() > aheadMax {
					time.Sleep(time.Millisecond)
					continue
				}
				names := numbered("m", at)
				if err = sendAll(sender, names); err == nil {
					say("sent", names...)
					at += batchSize
					ahead.Add(batchSize)
				}
			}
			return err
		})
	})
}

func sendAll(sender *azservicebus.Sender, names []string) error {
	limit, cancel := within(5)
	defer cancel()
	batch, err := sender.NewMessageBatch(limit, nil)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := batch.AddMessage(&azservicebus.Message{Body: []byte(name), MessageID: to.Ptr(name)}, nil); err != nil {
			return err
		}
	}
	return sender.SendMessageBatch(limit, batch, nil)
}

func receive() {
	always := func() bool { return true }
	repeat(always, func() error {
		return withBus(func(client *azservicebus.Client) error {
			receiver, err := client.NewReceiverForQueue("ledger", nil)
			for err == nil {
				err = receiveSome(receiver)
			}
			return err
		})
	})
}

func receiveSome(receiver *azservicebus.Receiver) error {
	limit, cancel := within(5)
	defer cancel()
	messages, err := receiver.ReceiveMessages(limit, 5, nil)
	if err != nil {
		return err
	}
	for _, message := range messages {
		say("received", message.MessageID)
		if err := receiver.CompleteMessage(limit, message, nil); err != nil {
			return err
		}
		say("completed", message.MessageID)
		ahead.Add(-1)
	}
	return nil
}

func main() {
	text = strings.Join([]string{"Endpoint=sb://127.0.0.1:" + os.Args[1], "SharedAccessKeyName=k", "SharedAccessKey=s",
		"UseDevelopmentEmulator=true;"}, ";")
	go sendEvents()
	go sendMessages()
	go receive()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		stopped.Store(true)
	}
}
