// The processor of @azure/event-hubs with a checkpoint store, unchanged, against a node: processor.js AMQP_PORT HUB MODULES
// Two workers share the partitions through one store in memory; one ends, the other takes over; a third begins at the checkpoints.
'use strict'
const assert = require('assert')
const { createRequire } = require('module')
const path = require('path')

const [port, hub, modules] = process.argv.slice(2)
const load = createRequire(path.join(path.resolve(modules), 'package.json'))
const { EventHubConsumerClient, EventHubProducerClient } = load('@azure/event-hubs')
const string =
  `Endpoint=sb://127.0.0.1:${port};SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;UseDevelopmentEmulator=true;`

class MemoryStore {
  constructor() {
    this.owners = new Map()
    this.checkpoints = new Map()
    this.tags = 0
  }
  async listOwnership() { return [...this.owners.values()].map((owner) => ({ ...owner })) }
  async claimOwnership(wanted) {
    const free = wanted.filter((of) => (this.owners.get(of.partitionId) || {}).etag === of.etag)
    return free.map((of) => {
      const entry = { ...of, etag: String(++this.tags), lastModifiedTimeInMs: Date.now() }
      this.owners.set(of.partitionId, entry)
      return { ...entry }
    })
  }
  async listCheckpoints() { return [...this.checkpoints.values()].map((of) => ({ ...of })) }
  async updateCheckpoint(of) { this.checkpoints.set(of.partitionId, { ...of }) }
}

function work(store) {
  const client = new EventHubConsumerClient('$Default', string, hub, store, {
    loadBalancingOptions: { updateIntervalInMs: 500, partitionOwnershipExpirationIntervalInMs: 5000, strategy: 'greedy' },
  })
  const worker = { bodies: [], partitions: new Set() }
  const subscription = client.subscribe({
    processEvents: async (events, context) => {
      if (!events.length) return
      worker.partitions.add(context.partitionId)
      worker.bodies.push(...events.map((event) => event.body))
      await context.updateCheckpoint(events[events.length - 1])
    },
    processError: async () => {},
  }, { startPosition: { offset: '-1' }, maxWaitTimeInSeconds: 1 })
  worker.close = async () => { await subscription.close(); await client.close() }
  return worker
}

async function wait(what, holds) {
  const limit = Date.now() + 60000
  while (!(await holds())) {
    assert.ok(Date.now() < limit, what)
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
}

async function main() {
  const store = new MemoryStore()
  const producer = new EventHubProducerClient(string, hub)
  const partitions = await producer.getPartitionIds()
  const send = async (text) => {
    for (const partitionId of partitions) await producer.sendBatch([{ body: `${text} ${partitionId}` }], { partitionId })
  }
  const [first, second] = [work(store), work(store)]
  await wait('the partitions are shared', async () => {
    await send('early')
    return first.partitions.size && second.partitions.size && new Set([...store.owners.values()].map((of) => of.ownerId)).size === 2
  })
  await first.close()
  second.partitions.clear()
  await wait('the partitions are taken over', async () => {
    await send('middle')
    return second.partitions.size === partitions.length
  })
  await second.close()
  await send('last')
  const third = work(store)
  await wait('the last events arrive', async () => partitions.every((of) => third.bodies.includes(`last ${of}`)))
  await third.close()
  assert.ok(!third.bodies.some((body) => body.startsWith('early')), 'events before the checkpoints came again')
  await producer.close()
  console.log('ok    JavaScript, processor with a checkpoint store')
  process.exit(0)
}

main().catch((error) => {
  console.log('FAIL ', error)
  process.exit(1)
})
