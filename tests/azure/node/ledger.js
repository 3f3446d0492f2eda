// @azure/event-hubs and @azure/service-bus for ../python/ledger.py, which says what is printed: node ledger.js FOLDER AMQP_PORT
// The SDKs are in node_modules of FOLDER.

'use strict'
const path = require('node:path')
const readline = require('node:readline')
const { createRequire } = require('node:module')

const [modules, amqp] = process.argv.slice(2)
const load = createRequire(path.join(modules, 'package.json'))
const { EventHubProducerClient } = load('@azure/event-hubs')
const { ServiceBusClient } = load('@azure/service-bus')

const connectionString = `Endpoint=sb://127.0.0.1:${amqp};SharedAccessKeyName=k;SharedAccessKey=s;UseDevelopmentEmulator=true;`
const retryOptions = { maxRetries: 0, timeoutInMs: 5000 }
const BATCH = 10
// Messages that may wait in the queue.
const AHEAD_MAX = 200

let sends = true
let ahead = 0
const pause = () => new Promise((resolve) => setTimeout(resolve, 20))
const say = (what, names) => process.stdout.write(names.map((name) => `${what} ${name}\n`).join(''))
const numbered = (kind, from) => Array.from({ length: BATCH }, (_, at) => `${kind}-${from + at}`)

// Runs `act` with a client of its own while `goesOn`; what fails is tried again.
async function repeat(open, act, goesOn) {
  while (goesOn()) {
    const client = open()
    try { await act(client) } catch { await pause() }
    await client.close().catch(() => {})
  }
}

async function sendEvents() {
  let at = 0
  await repeat(() => new EventHubProducerClient(connectionString, 'ledger', { retryOptions }), async (client) => {
    while (sends) {
      const names = numbered('e', at)
      await client.sendBatch(names.map((body) => ({ body: Buffer.from(body) })), { partitionId: String(at / BATCH % 2) })
      say('event', names)
      at += BATCH
    }
  }, () => sends)
}

const bus = () => new ServiceBusClient(connectionString, { retryOptions })

async function sendMessages() {
  let at = 0
  await repeat(bus, async (client) => {
    const sender = client.createSender('ledger')
    while (sends) {
      if (ahead > AHEAD_MAX) {
        await pause()
        continue
      }
      const names = numbered('m', at)
      await sender.sendMessages(names.map((name) => ({ body: Buffer.from(name), messageId: name })))
      say('sent', names)
      at += BATCH
      ahead += BATCH
    }
  }, () => sends)
}

async function receive() {
  await repeat(bus, async (client) => {
    const receiver = client.createReceiver('ledger', { maxAutoLockRenewalDurationInMs: 0 })
    for (;;) {
      for (const message of await receiver.receiveMessages(5, { maxWaitTimeInMs: 1000 })) {
        const name = String(message.messageId)
        say('received', [name])
        await receiver.completeMessage(message)
        say('completed', [name])
        ahead -= 1
      }
    }
  }, () => true)
}

readline.createInterface({ input: process.stdin }).on('line', () => { sends = false }).on('close', () => process.exit(0))
sendEvents()
sendMessages()
receive()
