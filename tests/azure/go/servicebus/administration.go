package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// administrator is an administration client over TLS with the authority of the tests.
func administrator(port, authority string) *admin.Client {
	pem, err := os.ReadFile(authority)
	check(err)
	pool := x509.NewCertPool()
	expect(pool.AppendCertsFromPEM(pem), "authority", authority)
	transport := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	text := "Endpoint=sb://127.0.0.1:" + port + ";SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root"
	client, err := admin.NewClientFromConnectionString(text, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: transport},
	})
	check(err)
	return client
}

func administration(manager *admin.Client) {
	space, err := manager.GetNamespaceProperties(limit, nil)
	check(err)
	expect(space.SKU == "Standard", "namespace", space)
	missing, err := manager.GetQueue(limit, "go-admin", nil)
	check(err)
	expect(missing == nil, "missing queue", missing)
	_, err = manager.CreateQueue(limit, "go-admin", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		LockDuration: to.Ptr("PT30S"), MaxDeliveryCount: to.Ptr(int32(7)),
	}})
	check(err)
	_, err = manager.CreateQueue(limit, "go-admin", nil)
	var failed *azcore.ResponseError
	expect(errors.As(err, &failed) && failed.StatusCode == 409, "queue twice", err)
	queue, err := manager.GetQueue(limit, "go-admin", nil)
	check(err)
	expect(*queue.LockDuration == "PT30S" && *queue.MaxDeliveryCount == 7, "queue", queue)
	queue.LockDuration = to.Ptr("PT2M")
	changed, err := manager.UpdateQueue(limit, "go-admin", queue.QueueProperties, nil)
	check(err)
	expect(*changed.LockDuration == "PT2M" && *changed.MaxDeliveryCount == 7, "changed queue", changed)
	counts, err := manager.GetQueueRuntimeProperties(limit, "go-admin", nil)
	check(err)
	expect(counts.ActiveMessageCount == 0, "counts", counts)
	for at := range 12 {
		_, err = manager.CreateQueue(limit, fmt.Sprintf("go-list-%d", at), nil)
		check(err)
	}
	found := 0
	pager := manager.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 5})
	for pager.More() {
		page, err := pager.NextPage(limit)
		check(err)
		for _, queue := range page.Queues {
			if len(queue.QueueName) > 8 && queue.QueueName[:8] == "go-list-" {
				found++
			}
		}
	}
	expect(found == 12, "listed queues", found)
	for at := range 12 {
		_, err = manager.DeleteQueue(limit, fmt.Sprintf("go-list-%d", at), nil)
		check(err)
	}
	_, err = manager.DeleteQueue(limit, "go-admin", nil)
	check(err)
	fmt.Println("ok    Go, administration")
}

// topics makes a topic with subscriptions and rules, and sends and receives through it.
func topics(manager *admin.Client, client *azservicebus.Client) {
	const topic = "Go-Topic"
	_, err := manager.CreateTopic(limit, topic, nil)
	check(err)
	for _, name := range []string{"all", "red", "ordered"} {
		_, err = manager.CreateSubscription(limit, topic, name, &admin.CreateSubscriptionOptions{
			Properties: &admin.SubscriptionProperties{RequiresSession: to.Ptr(name == "ordered")},
		})
		check(err)
	}
	_, err = manager.DeleteRule(limit, topic, "red", "$Default", nil)
	check(err)
	_, err = manager.CreateRule(limit, topic, "red", &admin.CreateRuleOptions{
		Name:   to.Ptr("red"),
		Filter: &admin.SQLFilter{Expression: "colour = 'red' AND grams > 100"},
		Action: &admin.SQLAction{Expression: "SET grams = grams + 1; SET sys.Label = 'sold'"},
	})
	check(err)
	_, err = manager.CreateRule(limit, topic, "red", &admin.CreateRuleOptions{
		Name: to.Ptr("label"),
		Filter: &admin.CorrelationFilter{
			Subject: to.Ptr("special"), ApplicationProperties: map[string]any{"count": int64(7), "ripe": true},
		},
	})
	check(err)
	rule, err := manager.GetRule(limit, topic, "red", "label", nil)
	check(err)
	correlation, is := rule.Filter.(*admin.CorrelationFilter)
	expect(is && *correlation.Subject == "special" && correlation.ApplicationProperties["ripe"] == true, "rule", rule)

	sender, err := client.NewSender("go-topic", nil)
	check(err)
	batch, err := sender.NewMessageBatch(limit, nil)
	check(err)
	for _, apple := range []struct {
		body, colour string
		grams        int64
	}{{"heavy", "red", 150}, {"light", "red", 50}, {"green", "green", 150}} {
		check(batch.AddMessage(&azservicebus.Message{
			Body: []byte(apple.body), SessionID: to.Ptr(apple.colour),
			ApplicationProperties: map[string]any{"colour": apple.colour, "grams": apple.grams},
		}, nil))
	}
	check(sender.SendMessageBatch(limit, batch, nil))
	check(sender.SendMessage(limit, &azservicebus.Message{
		Body: []byte("special"), Subject: to.Ptr("special"), SessionID: to.Ptr("s"),
		ApplicationProperties: map[string]any{"count": int64(7), "ripe": true},
	}, nil))

	all, err := client.NewReceiverForSubscription(topic, "all", nil)
	check(err)
	got := receive(all, 4)
	for at, body := range []string{"heavy", "light", "green", "special"} {
		expect(string(got[at].Body) == body, "message of all", string(got[at].Body))
	}
	check(all.DeadLetterMessage(limit, got[0], nil))
	for _, message := range got[1:] {
		check(all.CompleteMessage(limit, message, nil))
	}
	dead, err := client.NewReceiverForSubscription(topic, "all", &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter,
	})
	check(err)
	check(dead.CompleteMessage(limit, receive(dead, 1)[0], nil))
	red, err := client.NewReceiverForSubscription(topic, "red", nil)
	check(err)
	got = receive(red, 2)
	expect(string(got[0].Body) == "heavy" && *got[0].Subject == "sold", "message of red", got[0])
	expect(got[0].ApplicationProperties["grams"] == int64(151), "grams", got[0].ApplicationProperties)
	expect(string(got[1].Body) == "special", "message by correlation", got[1])
	for _, message := range got {
		check(red.CompleteMessage(limit, message, nil))
	}
	session, err := client.AcceptSessionForSubscription(limit, topic, "ordered", "red", nil)
	check(err)
	got = receive(session, 2)
	expect(string(got[0].Body) == "heavy" && string(got[1].Body) == "light", "session", got)
	for _, message := range got {
		check(session.CompleteMessage(limit, message, nil))
	}
	check(session.Close(limit))
	counts, err := manager.GetSubscriptionRuntimeProperties(limit, topic, "ordered", nil)
	check(err)
	expect(counts.ActiveMessageCount == 2, "counts of ordered", counts)
	_, err = manager.DeleteTopic(limit, topic, nil)
	check(err)
	fmt.Println("ok    Go, topics")
}
