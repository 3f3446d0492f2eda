// Microsoft's @azure/event-hubs, unchanged, against a node: node eventhubs.js AMQP_PORT HTTP_PORT FOLDER
// The SDK is in node_modules of FOLDER. Prints a line for each check and ends with 1 if one failed.

'use strict'
const assert = require('node:assert')
const path = require('node:path')
const { createRequire } = require('node:module')

const [amqp, http, modules] = process.argv.slice(2)
const load = createRequire(path.join(modules, 'package.json'))
const {
  EventHubProducerClient, EventHubConsumerClient, EventHubBufferedProducerClient, earliestEventPosition, latestEventPosition,
} = load('@azure/event-hubs')

const connectionString = `Endpoint=sb://127.0.0.1:${amqp};SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;` +
  'UseDevelopmentEmulator=true;'
const WAIT = 20000

let hubs = 0
async function newHub(partitions = 2) {
  const name = `azure-js-${Date.now()}-${++hubs}`
  const answer = await fetch(`http://127.0.0.1:${http}/api/hubs`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer root:s3cret-of-root' },
    body: JSON.stringify({ name, partitions }),
  })
  assert.ok(answer.ok, await answer.text())
  return name
}

const producer = (hub) => new EventHubProducerClient(connectionString, hub)
const consumer = (hub, group = '$Default') => new EventHubConsumerClient(group, connectionString, hub)

// The first `count` events of a hub or of one partition, or those that come in `wait`.
async function receive(hub, count, { partition, position = earliestEventPosition, options = {}, wait = WAIT } = {}) {
  const client = consumer(hub)
  const got = []
  await new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, wait)
    const handlers = {
      processEvents: async (events, context) => {
        for (const event of events) got.push({ ...event, partition: context.partitionId })
        if (got.length >= count) { clearTimeout(timer); resolve() }
      },
      processError: async (error) => { clearTimeout(timer); reject(error) },
    }
    const settings = { startPosition: position, maxWaitTimeInSeconds: 1, ...options }
    partition === undefined ? client.subscribe(handlers, settings) : client.subscribe(partition, handlers, settings)
  }).finally(() => client.close())
  return got
}

const bodies = (got) => got.map((event) => event.body)

const checks = {
  async batches() {
    const hub = await newHub()
    const client = producer(hub)
    const batch = await client.createBatch()
    assert.strictEqual(batch.maxSizeInBytes, 1 << 20)
    for (let number = 0; number < 100; number++) assert.ok(batch.tryAdd({ body: `event ${number}` }))
    await client.sendBatch(batch)
    await client.sendBatch([{ body: 'list 1' }, { body: { json: [1, 2] } }])
    await client.close()
    const got = bodies(await receive(hub, 102))
    assert.strictEqual(got.length, 102)
    assert.ok(got.some((body) => body.json !== undefined && body.json.length === 2))
  },

  async partitions() {
    const hub = await newHub(4)
    const client = producer(hub)
    assert.deepStrictEqual(await client.getPartitionIds(), ['0', '1', '2', '3'])
    for (const partitionId of ['0', '1', '2', '3']) await client.sendBatch([{ body: `for ${partitionId}` }], { partitionId })
    for (let turn = 0; turn < 3; turn++) await client.sendBatch([{ body: 'keyed' }], { partitionKey: 'one key' })
    await client.close()
    const got = await receive(hub, 7)
    for (const event of got.filter((event) => event.body !== 'keyed')) assert.strictEqual(event.body, `for ${event.partition}`)
    const keyed = got.filter((event) => event.body === 'keyed')
    assert.strictEqual(new Set(keyed.map((event) => event.partition)).size, 1)
    assert.ok(keyed.every((event) => event.partitionKey === 'one key'))
  },

  async properties() {
    const hub = await newHub(1)
    const client = producer(hub)
    const when = new Date()
    await client.sendBatch([{
      body: 'x', contentType: 'text/plain', correlationId: 'c', messageId: 'm',
      properties: { text: 'ümlaut', count: 7, flag: true, ratio: 0.5, when },
    }])
    await client.close()
    const [event] = await receive(hub, 1)
    assert.deepStrictEqual([event.contentType, event.correlationId, event.messageId], ['text/plain', 'c', 'm'])
    const { text, count, flag, ratio } = event.properties
    assert.deepStrictEqual([text, count, flag, ratio], ['ümlaut', 7, true, 0.5])
    assert.strictEqual(Number(event.properties.when), Number(when))
  },

  async positions() {
    const hub = await newHub(1)
    const client = producer(hub)
    for (const body of ['a', 'b', 'c']) await client.sendBatch([{ body }])
    const all = await receive(hub, 3, { partition: '0' })
    assert.deepStrictEqual(bodies(all), ['a', 'b', 'c'])
    const from = async (position) => bodies(await receive(hub, 2, { partition: '0', position, wait: 3000 }))
    assert.deepStrictEqual(await from({ offset: all[0].offset }), ['b', 'c'])
    assert.deepStrictEqual(await from({ sequenceNumber: all[1].sequenceNumber, isInclusive: true }), ['b', 'c'])
    assert.deepStrictEqual(await from({ sequenceNumber: all[1].sequenceNumber }), ['c'])
    assert.deepStrictEqual(await from(latestEventPosition), [])
    await client.close()
  },

  async management() {
    const hub = await newHub(3)
    const client = producer(hub)
    const properties = await client.getEventHubProperties()
    assert.strictEqual(properties.name, hub)
    assert.deepStrictEqual(properties.partitionIds, ['0', '1', '2'])
    assert.ok(Math.abs(Date.now() - Number(properties.createdOn)) < 600000)
    await client.sendBatch([{ body: 'x' }], { partitionId: '1' })
    const partition = await client.getPartitionProperties('1')
    assert.deepStrictEqual([partition.isEmpty, partition.lastEnqueuedSequenceNumber, partition.lastEnqueuedOffset], [false, 0, '0'])
    await client.close()
    const missing = producer('azure-js-missing')
    await assert.rejects(missing.getEventHubProperties({ retryOptions: { maxRetries: 0 } }), /could not be found/)
    await missing.close()
  },

  async ownerLevel() {
    const hub = await newHub(1)
    const client = producer(hub)
    await client.sendBatch([{ body: 'one' }])
    await client.close()
    const low = consumer(hub)
    const lost = new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('the lower level was not disconnected')), WAIT)
      let high
      low.subscribe('0', {
        processEvents: async (events) => {
          if (events.length && !high) high = receive(hub, 1, { partition: '0', options: { ownerLevel: 2 } })
        },
        processError: async (error) => { clearTimeout(timer); high.then(() => resolve(error), reject) },
      }, { startPosition: earliestEventPosition, ownerLevel: 1 })
    })
    const error = await lost.finally(() => low.close())
    assert.strictEqual(error.code, 'ReceiverDisconnectedError', error)
  },

  async bufferedWithIdempotentRetries() {
    const hub = await newHub(2)
    const errors = []
    const client = new EventHubBufferedProducerClient(connectionString, hub, {
      enableIdempotentRetries: true, onSendEventsErrorHandler: async (context) => errors.push(context.error),
    })
    for (let number = 0; number < 500; number++) await client.enqueueEvent({ body: number })
    await client.flush()
    await client.close()
    assert.deepStrictEqual(errors, [])
    const got = bodies(await receive(hub, 500)).sort((a, b) => a - b)
    assert.deepStrictEqual(got, [...Array(500).keys()])
  },
}

async function main() {
  let failed = 0
  for (const [name, check] of Object.entries(checks)) {
    const began = Date.now()
    try {
      await check()
      console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`)
    } catch (error) {
      failed++
      console.log(`FAIL  ${name}`)
      console.error(error)
    }
  }
  process.exit(failed ? 1 : 0)
}

main()
