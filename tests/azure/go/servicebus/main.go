// Microsoft's azservicebus for Go, unchanged, against a node: servicebus AMQP_PORT QUEUE SESSION_QUEUE HTTPS_PORT CA_FILE
// The queues must be empty; messages of the second belong to sessions. Ends with 1 if a check fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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

var limit context.Context

type messages interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

func receive(from messages, count int) []*azservicebus.ReceivedMessage {
	var got []*azservicebus.ReceivedMessage
	for len(got) < count {
		more, err := from.ReceiveMessages(limit, count-len(got), nil)
		check(err)
		got = append(got, more...)
	}
	return got
}

func queue(client *azservicebus.Client, name string) {
	sender, err := client.NewSender(name, nil)
	check(err)
	batch, err := sender.NewMessageBatch(limit, nil)
	check(err)
	for _, body := range []string{"complete", "abandon", "defer", "kill"} {
		check(batch.AddMessage(&azservicebus.Message{
			Body: []byte(body), Subject: to.Ptr("label"), ApplicationProperties: map[string]any{"count": int64(7)},
		}, nil))
	}
	check(sender.SendMessageBatch(limit, batch, nil))

	receiver, err := client.NewReceiverForQueue(name, nil)
	check(err)
	got := receive(receiver, 4)
	first := got[0]
	expect(string(first.Body) == "complete" && first.DeliveryCount == 1, "first message", first)
	expect(*first.Subject == "label" && first.ApplicationProperties["count"] == int64(7), "properties", first)
	expect(*first.SequenceNumber == 1 && first.LockedUntil.After(time.Now()), "annotations", first)
	check(receiver.RenewMessageLock(limit, first, nil))
	check(receiver.CompleteMessage(limit, first, nil))
	check(receiver.AbandonMessage(limit, got[1], nil))
	check(receiver.DeferMessage(limit, got[2], nil))
	check(receiver.DeadLetterMessage(limit, got[3], &azservicebus.DeadLetterOptions{
		Reason: to.Ptr("bad"), ErrorDescription: to.Ptr("very"),
	}))
	again := receive(receiver, 1)[0]
	expect(string(again.Body) == "abandon" && again.DeliveryCount == 2, "abandoned message", again)
	check(receiver.CompleteMessage(limit, again, nil))
	var failed *azservicebus.Error
	err = receiver.RenewMessageLock(limit, again, nil)
	expect(errors.As(err, &failed) && failed.Code == azservicebus.CodeLockLost, "renewal of a settled message", err)
	deferred, err := receiver.ReceiveDeferredMessages(limit, []int64{*got[2].SequenceNumber}, nil)
	check(err)
	check(receiver.CompleteMessage(limit, deferred[0], nil))

	dead, err := client.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	check(err)
	letter := receive(dead, 1)[0]
	expect(*letter.DeadLetterReason == "bad" && *letter.DeadLetterErrorDescription == "very", "dead letter", letter)
	check(dead.CompleteMessage(limit, letter, nil))

	later := time.Now().Add(time.Hour)
	numbers, err := sender.ScheduleMessages(limit, []*azservicebus.Message{{Body: []byte("later")}}, later, nil)
	check(err)
	peeked, err := receiver.PeekMessages(limit, 5, nil)
	check(err)
	expect(len(peeked) == 1 && peeked[0].State == azservicebus.MessageStateScheduled, "scheduled message", peeked)
	check(sender.CancelScheduledMessages(limit, numbers, nil))

	fast, err := client.NewReceiverForQueue(name, &azservicebus.ReceiverOptions{
		ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	check(err)
	check(sender.SendMessage(limit, &azservicebus.Message{Body: []byte("gone")}, nil))
	expect(string(receive(fast, 1)[0].Body) == "gone", "received for good", nil)

	missing, err := client.NewReceiverForQueue("no-such-queue", nil)
	check(err)
	_, err = missing.ReceiveMessages(limit, 1, nil)
	expect(err != nil, "missing queue", err)
}

func sessions(client *azservicebus.Client, name string) {
	sender, err := client.NewSender(name, nil)
	check(err)
	for _, id := range []string{"a", "b"} {
		check(sender.SendMessage(limit, &azservicebus.Message{Body: []byte("in " + id), SessionID: to.Ptr(id)}, nil))
	}
	a, err := client.AcceptSessionForQueue(limit, name, "a", nil)
	check(err)
	_, err = client.AcceptSessionForQueue(limit, name, "a", nil)
	expect(err != nil, "a session that is taken", err)
	check(a.SetSessionState(limit, []byte("state"), nil))
	state, err := a.GetSessionState(limit, nil)
	check(err)
	expect(string(state) == "state", "state", state)
	check(a.RenewSessionLock(limit, nil))
	got := receive(a, 1)[0]
	expect(string(got.Body) == "in a", "message of the session", got)
	check(a.CompleteMessage(limit, got, nil))
	b, err := client.AcceptNextSessionForQueue(limit, name, nil)
	check(err)
	expect(b.SessionID() == "b", "next session", b.SessionID())
	check(b.CompleteMessage(limit, receive(b, 1)[0], nil))
	check(a.Close(limit))
	check(b.Close(limit))
}

func main() {
	var cancel context.CancelFunc
	limit, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	text := "Endpoint=sb://127.0.0.1:" + os.Args[1] +
		";SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true;"
	client, err := azservicebus.NewClientFromConnectionString(text, nil)
	check(err)
	queue(client, os.Args[2])
	sessions(client, os.Args[3])
	fmt.Println("ok    Go, Service Bus")
	manager := administrator(os.Args[4], os.Args[5])
	administration(manager)
	topics(manager, client)
	check(client.Close(limit))
}
