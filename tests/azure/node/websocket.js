// Microsoft's SDKs over WebSocket, unchanged, against a node: websocket.js HTTPS_PORT MODULES QUEUE HUB
// NODE_EXTRA_CA_CERTS names the authority of the node's certificate. Ends with 1 if a check failed.
'use strict'
const assert = require('assert')
const { createRequire } = require('module')
const path = require('path')

const [port, modules, queue, hub] = process.argv.slice(2)
const load = createRequire(path.join(path.resolve(modules), 'package.json'))
const { ServiceBusClient } = load('@azure/service-bus')
const { EventHubProducerClient, EventHubConsumerClient } = load('@azure/event-hubs')
const webSocketOptions = { webSocket: load('ws') }
const string = (secret) => `Endpoint=sb://127.0.0.1:${port};SharedAccessKeyName=root;SharedAccessKey=${secret}`

async function serviceBus() {
  const client = new ServiceBusClient(string('s3cret-of-root'), { webSocketOptions })
  const sender = client.createSender(queue)
  const bodies = ['small', 'x'.repeat(300000)]
  for (const body of bodies) await sender.sendMessages({ body })
  const receiver = client.createReceiver(queue)
  const got = []
  while (got.length < 2) {
    for (const message of await receiver.receiveMessages(2 - got.length, { maxWaitTimeInMs: 10000 })) {
      got.push(message.body)
      await receiver.completeMessage(message)
    }
  }
  assert.deepStrictEqual(got, bodies)
  await client.close()
  const options = { webSocketOptions, retryOptions: { maxRetries: 0 } }
  const wrong = new ServiceBusClient(string('guess'), options)
  await assert.rejects(wrong.createSender(queue).sendMessages({ body: 1 }))
  await wrong.close()
}

async function eventHubs() {
  const producer = new EventHubProducerClient(string('s3cret-of-root'), hub, { webSocketOptions })
  await producer.sendBatch([...Array(10).keys()].map((body) => ({ body })))
  await producer.close()
  const consumer = new EventHubConsumerClient('$Default', string('s3cret-of-root'), hub, { webSocketOptions })
  const got = []
  await new Promise((resolve, reject) => {
    setTimeout(reject, 30000, new Error('no events')).unref()
    const processEvents = async (events) => {
      got.push(...events.map((event) => event.body))
      if (got.length >= 10) resolve()
    }
    consumer.subscribe({ processEvents, processError: async (error) => reject(error) }, { startPosition: { offset: '-1' } })
  })
  await consumer.close()
  assert.strictEqual(got.length, 10)
}

async function main() {
  await serviceBus()
  console.log('ok    JavaScript, Service Bus over WebSocket')
  await eventHubs()
  console.log('ok    JavaScript, Event Hubs over WebSocket')
  process.exit(0)
}

main().catch((error) => {
  console.log('FAIL ', error)
  process.exit(1)
})
