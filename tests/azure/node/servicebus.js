// Microsoft's @azure/service-bus, unchanged, against a node: node servicebus.js AMQP_PORT HTTP_PORT FOLDER [CHECK..]
// The SDK is in node_modules of FOLDER. Prints a line for each check and ends with 1 if one failed.

'use strict'
const assert = require('node:assert')
const path = require('node:path')
const { createRequire } = require('node:module')

const [amqp, http, modules, ...only] = process.argv.slice(2)
const load = createRequire(path.join(modules, 'package.json'))
const { ServiceBusClient } = load('@azure/service-bus')

const connectionString = `Endpoint=sb://127.0.0.1:${amqp};SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root;` +
  'UseDevelopmentEmulator=true;'
const WAIT = 20000

async function call(method, address, body) {
  const answer = await fetch(`http://127.0.0.1:${http}${address}`, {
    method,
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer root:s3cret-of-root' },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  const text = await answer.text()
  assert.ok(answer.ok, text)
  return text ? JSON.parse(text) : null
}

let queues = 0
async function newQueue(settings = {}) {
  const name = `azure-js-${Date.now()}-${++queues}`
  await call('POST', '/api/queues', { name, ...settings })
  return name
}

// Runs `act` with a client that is closed afterwards.
async function withClient(act) {
  const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 20000 } })
  try { return await act(client) } finally { await client.close() }
}

async function receive(receiver, count, wait = WAIT) {
  const got = []
  const limit = Date.now() + wait
  while (got.length < count && Date.now() < limit) {
    got.push(...await receiver.receiveMessages(count - got.length, { maxWaitTimeInMs: Math.max(1000, limit - Date.now()) }))
  }
  return got
}

const nothing = async (receiver) =>
  assert.deepStrictEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 1000 }), [])
const bodies = (messages) => messages.map((message) => message.body)
const code = (expected) => (error) => { assert.strictEqual(error.code, expected, error); return true }

const checks = {
  async send_and_complete() {
    const queue = await newQueue()
    await withClient(async (client) => {
      const sender = client.createSender(queue)
      await sender.sendMessages({ body: 'one' })
      await sender.sendMessages([{ body: { two: 2 } }, { body: [3] }])
      const batch = await sender.createMessageBatch()
      for (let at = 0; at < 20; at++) assert.ok(batch.tryAddMessage({ body: at }))
      await sender.sendMessages(batch)
      const receiver = client.createReceiver(queue)
      const got = await receive(receiver, 23)
      assert.deepStrictEqual(bodies(got), ['one', { two: 2 }, [3], ...Array(20).keys()])
      assert.strictEqual(got[0].sequenceNumber.toString(), '1')
      assert.ok(got[0].messageId)
      for (const message of got) await receiver.completeMessage(message)
      await nothing(receiver)
    })
  },

  async properties() {
    const queue = await newQueue()
    const at = new Date('2026-01-02T03:04:05.678Z')
    const applicationProperties = { text: 'äöü', count: 7, ratio: 1.5, flag: true, at, none: null }
    const message = {
      body: Buffer.from([0, 255]), applicationProperties, messageId: 'id-1', correlationId: 'c-1', subject: 'label', to: 'there',
      replyTo: 'here', replyToSessionId: 'r-1', contentType: 'application/octet-stream', partitionKey: 'key', timeToLive: 60000,
    }
    await withClient(async (client) => {
      await client.createSender(queue).sendMessages(message)
      const receiver = client.createReceiver(queue)
      const [got] = await receive(receiver, 1)
      for (const name of ['messageId', 'correlationId', 'subject', 'to', 'replyTo', 'replyToSessionId', 'contentType', 'partitionKey', 'timeToLive']) {
        assert.deepStrictEqual(got[name], message[name], name)
      }
      // The SDK sends times as numbers.
      assert.deepStrictEqual(got.applicationProperties, { ...applicationProperties, at: at.getTime() })
      assert.deepStrictEqual(Buffer.from(got.body), message.body)
      assert.strictEqual(got.expiresAtUtc - got.enqueuedTimeUtc, 60000)
      assert.strictEqual(got.deliveryCount, 0)
      await receiver.completeMessage(got)
    })
  },

  async settle_in_every_way() {
    const queue = await newQueue({ deliveries_max: 3 })
    await withClient(async (client) => {
      await client.createSender(queue).sendMessages(['abandon', 'defer', 'dead'].map((body) => ({ body })))
      const receiver = client.createReceiver(queue)
      const [abandon, defer, dead] = await receive(receiver, 3)
      await receiver.abandonMessage(abandon, { tries: 1 })
      await receiver.deferMessage(defer, { parked: true })
      await receiver.deadLetterMessage(dead, { deadLetterReason: 'why', deadLetterErrorDescription: 'because', extra: 'x' })
      const [again] = await receive(receiver, 1)
      assert.deepStrictEqual([again.body, again.deliveryCount, again.applicationProperties.tries], ['abandon', 1, 1])
      await receiver.completeMessage(again)
      const peeked = await receiver.peekMessages(5)
      assert.deepStrictEqual(peeked.map((message) => [message.body, message.state]), [['defer', 'deferred']])
      const [deferred] = await receiver.receiveDeferredMessages(defer.sequenceNumber)
      assert.strictEqual(deferred.applicationProperties.parked, true)
      await receiver.renewMessageLock(deferred)
      await receiver.completeMessage(deferred)
      const letters = client.createReceiver(queue, { subQueueType: 'deadLetter' })
      const [letter] = await receive(letters, 1)
      assert.deepStrictEqual([letter.deadLetterReason, letter.deadLetterErrorDescription], ['why', 'because'])
      assert.deepStrictEqual([letter.applicationProperties.extra, letter.deadLetterSource], ['x', queue])
      await letters.completeMessage(letter)
      await nothing(receiver)
    })
  },

  async locks() {
    const queue = await newQueue({ lock: '2s' })
    await withClient(async (client) => {
      await client.createSender(queue).sendMessages({ body: 'x' })
      const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 })
      const [lost] = await receive(receiver, 1)
      const [again] = await receive(receiver, 1)
      assert.strictEqual(again.deliveryCount, 1)
      await assert.rejects(receiver.completeMessage(lost), code('MessageLockLost'))
      const before = again.lockedUntilUtc
      assert.ok(await receiver.renewMessageLock(again) >= before)
      await receiver.completeMessage(again)
      await assert.rejects(receiver.renewMessageLock(again), code('MessageLockLost'))
    })
  },

  async receive_and_delete() {
    const queue = await newQueue()
    await withClient(async (client) => {
      await client.createSender(queue).sendMessages([{ body: 'a' }, { body: 'b' }])
      const receiver = client.createReceiver(queue, { receiveMode: 'receiveAndDelete' })
      assert.deepStrictEqual(bodies(await receive(receiver, 2)), ['a', 'b'])
    })
    const facts = await call('GET', `/api/queues/${queue}`)
    assert.deepStrictEqual([facts.active, facts.locked], [0, 0])
  },

  async subscribe_with_concurrency() {
    const queue = await newQueue({ deliveries_max: 2 })
    await withClient(async (client) => {
      const messages = [...Array(100).keys()].map((body) => ({ body }))
      await client.createSender(queue).sendMessages(messages)
      const receiver = client.createReceiver(queue)
      const seen = new Set()
      const subscription = await new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`only ${seen.size} came`)), WAIT)
        const handlers = {
          processMessage: async (message) => {
            if (message.body === 50) throw new Error('not this one')
            seen.add(message.body)
            if (seen.size === 99) { clearTimeout(timer); setTimeout(resolve, 500, subscribed) }
          },
          processError: async ({ error }) => { if (error.message !== 'not this one') reject(error) },
        }
        const subscribed = receiver.subscribe(handlers, { maxConcurrentCalls: 20 })
      })
      await subscription.close()
      const [letter] = await receive(client.createReceiver(queue, { subQueueType: 'deadLetter' }), 1)
      assert.deepStrictEqual([letter.body, letter.deadLetterReason], [50, 'MaxDeliveryCountExceeded'])
    })
    assert.strictEqual((await call('GET', `/api/queues/${queue}`)).active, 0)
  },

  async schedule() {
    const queue = await newQueue()
    await withClient(async (client) => {
      const sender = client.createSender(queue)
      const later = new Date(Date.now() + 3600000)
      const numbers = await sender.scheduleMessages([{ body: 'a' }, { body: 'b' }], later)
      await sender.cancelScheduledMessages(numbers[0])
      await assert.rejects(sender.cancelScheduledMessages(numbers[0]), code('MessageNotFound'))
      await sender.scheduleMessages({ body: 'soon' }, new Date(Date.now() + 2000))
      const receiver = client.createReceiver(queue)
      const peeked = await receiver.peekMessages(9)
      assert.deepStrictEqual(peeked.map((message) => [message.body, message.state]), [['b', 'scheduled'], ['soon', 'scheduled']])
      assert.strictEqual(peeked[0].scheduledEnqueueTimeUtc.getTime(), later.getTime())
      assert.deepStrictEqual(bodies(await receive(receiver, 1)), ['soon'])
    })
  },

  async sessions() {
    const queue = await newQueue({ sessions: true })
    await withClient(async (client) => {
      const sender = client.createSender(queue)
      for (const sessionId of ['a', 'b']) {
        await sender.sendMessages([0, 1, 2].map((at) => ({ body: `${sessionId}${at}`, sessionId })))
      }
      await assert.rejects(sender.sendMessages({ body: 'no session' }))
      const a = await client.acceptSession(queue, 'a')
      assert.strictEqual(a.sessionId, 'a')
      await assert.rejects(client.acceptSession(queue, 'a'), code('SessionCannotBeLocked'))
      await a.setSessionState(Buffer.from('half way'))
      assert.strictEqual((await a.getSessionState()).toString(), 'half way')
      assert.ok(await a.renewSessionLock() > new Date())
      const got = await receive(a, 3)
      assert.deepStrictEqual(bodies(got), ['a0', 'a1', 'a2'])
      for (const message of got) await a.completeMessage(message)
      const b = await client.acceptNextSession(queue)
      assert.strictEqual(b.sessionId, 'b')
      await b.close()
      await a.close()
      const again = await client.acceptNextSession(queue)
      assert.strictEqual(again.sessionId, 'b')
      const rest = await receive(again, 3)
      assert.deepStrictEqual(rest.map((message) => message.deliveryCount), [0, 0, 0])
      for (const message of rest) await again.completeMessage(message)
      await again.close()
      const state = await client.acceptSession(queue, 'a')
      assert.strictEqual((await state.getSessionState()).toString(), 'half way')
    })
  },

  async errors() {
    await withClient(async (client) => {
      await assert.rejects(client.createReceiver('no-such-queue').receiveMessages(1), code('MessagingEntityNotFound'))
      await assert.rejects(client.createSender('no-such-queue').sendMessages({ body: 1 }), code('MessagingEntityNotFound'))
      const queue = await newQueue({ bytes_max: 2000 })
      const sender = client.createSender(queue)
      await sender.sendMessages({ body: 'x'.repeat(1500) })
      await assert.rejects(sender.sendMessages({ body: 'x'.repeat(1500) }), code('QuotaExceeded'))
    })
  },

  // The rules of a subscription are managed over AMQP. Python's SDK cannot.
  async rules() {
    await withClient(async (client) => {
      const manager = client.createRuleManager('azure-rules', 's')
      const list = () => manager.getRules()
      assert.deepStrictEqual((await list()).map((rule) => [rule.name, rule.filter]), [['$Default', { sqlExpression: '1=1' }]])
      await manager.deleteRule('$Default')
      await assert.rejects(manager.deleteRule('$Default'), code('MessagingEntityNotFound'))
      await manager.createRule('blue', { sqlExpression: "colour = 'blue'" }, { sqlExpression: 'SET shade = 1' })
      await manager.createRule('label', { subject: 'x', applicationProperties: { count: 7 } })
      await assert.rejects(manager.createRule('blue', { sqlExpression: '1=1' }), code('MessagingEntityAlreadyExists'))
      await assert.rejects(manager.createRule('wrong', { sqlExpression: 'colour =' }))
      const rules = await list()
      assert.deepStrictEqual(rules.map((rule) => rule.name), ['blue', 'label'])
      assert.strictEqual(rules[0].filter.sqlExpression, "colour = 'blue'")
      assert.strictEqual(rules[0].action.sqlExpression, 'SET shade = 1')
      assert.strictEqual(rules[1].filter.subject, 'x')
      assert.strictEqual(rules[1].filter.applicationProperties.count, 7)
      const sender = client.createSender('azure-rules')
      await sender.sendMessages([
        { body: 'red', applicationProperties: { colour: 'red' } },
        { body: 'blue', applicationProperties: { colour: 'blue' } },
        { body: 'label', subject: 'x', applicationProperties: { count: 7 } },
      ])
      const receiver = client.createReceiver('azure-rules', 's')
      const got = await receive(receiver, 2)
      assert.deepStrictEqual(bodies(got), ['blue', 'label'])
      assert.deepStrictEqual(got[0].applicationProperties, { colour: 'blue', shade: 1, RuleName: 'blue' })
      for (const message of got) await receiver.completeMessage(message)
      await nothing(receiver)
    })
  },

  async duplicates_and_time_to_live() {
    const queue = await newQueue({ duplicates_within: '1m' })
    await withClient(async (client) => {
      const sender = client.createSender(queue)
      await sender.sendMessages({ body: 'first', messageId: 'same' })
      await sender.sendMessages({ body: 'again', messageId: 'same' })
      await sender.sendMessages({ body: 'short', timeToLive: 1 })
      const receiver = client.createReceiver(queue)
      const got = await receive(receiver, 2, 3000)
      assert.deepStrictEqual(bodies(got), ['first'])
      await receiver.completeMessage(got[0])
    })
  },
}

async function main() {
  let failed = 0
  for (const [name, check] of Object.entries(checks)) {
    if (only.length && !only.includes(name)) continue
    const began = Date.now()
    try {
      await check()
      console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`)
    } catch (error) {
      failed++
      console.log(`FAIL  ${name}`)
      console.log(error)
    }
  }
  process.exit(failed ? 1 : 0)
}

main()
