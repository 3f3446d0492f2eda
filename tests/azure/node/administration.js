// ServiceBusAdministrationClient of @azure/service-bus, unchanged, against a node: administration.js HTTPS_PORT AMQP_PORT MODULES
// NODE_EXTRA_CA_CERTS names the authority of the node's certificate. Prints a line for each check; ends with 1 if one failed.
'use strict'
const assert = require('assert')
const { createRequire } = require('module')
const path = require('path')

const [https, amqp, modules] = process.argv.slice(2)
const load = createRequire(path.join(path.resolve(modules), 'package.json'))
const { ServiceBusAdministrationClient, ServiceBusClient } = load('@azure/service-bus')

const run = Math.random().toString(36).slice(2, 8)
const string = (port, more = '', name = 'root', secret = 's3cret-of-root') =>
  `Endpoint=sb://127.0.0.1:${port};SharedAccessKeyName=${name};SharedAccessKey=${secret};${more}`
const admin = new ServiceBusAdministrationClient(string(https), { retryOptions: { maxRetries: 0 } })
const code = (expected) => (error) => assert.strictEqual(error.code, expected, error) === undefined

async function all(pages) {
  const found = []
  for await (const item of pages) found.push(item)
  return found
}

const checks = {
  async namespace() {
    const space = await admin.getNamespaceProperties()
    assert.strictEqual(space.messagingSku, 'Standard')
  },

  async queues() {
    const name = `Admin-${run}`
    assert.strictEqual(await admin.queueExists(name), false)
    await assert.rejects(admin.getQueue(name), code('MessageEntityNotFoundError'))
    const made = await admin.createQueue(name, {
      lockDuration: 'PT30S', maxDeliveryCount: 7, defaultMessageTimeToLive: 'P1D', requiresSession: true,
    })
    assert.strictEqual(made.lockDuration, 'PT30S')
    await assert.rejects(admin.createQueue(name), code('MessageEntityAlreadyExistsError'))
    assert.strictEqual(await admin.queueExists(name), true)
    const queue = await admin.getQueue(name)
    assert.strictEqual(queue.name, name)
    assert.deepStrictEqual([queue.maxDeliveryCount, queue.requiresSession, queue.status], [7, true, 'Active'])
    queue.lockDuration = 'PT2M'
    await admin.updateQueue(queue)
    assert.strictEqual((await admin.getQueue(name)).lockDuration, 'PT2M')
    await assert.rejects(admin.createQueue(`${name}-x`, { autoDeleteOnIdle: 'soon' }), code('ServiceError'))
    await admin.deleteQueue(name)
    assert.strictEqual(await admin.queueExists(name), false)
  },

  async lists() {
    for (let at = 0; at < 25; at++) await admin.createQueue(`js-${run}-${at}`)
    const names = (await all(admin.listQueues())).map((queue) => queue.name).filter((name) => name.startsWith(`js-${run}`))
    assert.strictEqual(names.length, 25)
    let pages = 0
    for await (const page of admin.listQueues().byPage({ maxPageSize: 10 })) {
      assert.ok(page.length <= 10)
      pages++
    }
    assert.ok(pages >= 3, `${pages} pages`)
    for (const name of names) await admin.deleteQueue(name)
  },

  async topics_and_rules() {
    const topic = `topic-${run}`
    await admin.createTopic(topic, { defaultMessageTimeToLive: 'PT1H' })
    const properties = await admin.getTopic(topic)
    properties.defaultMessageTimeToLive = 'PT2H'
    await admin.updateTopic(properties)
    assert.strictEqual((await admin.getTopic(topic)).defaultMessageTimeToLive, 'PT2H')
    const first = { name: 'first', filter: { sqlExpression: 'grams > 100' }, action: { sqlExpression: 'SET sold = TRUE' } }
    await admin.createSubscription(topic, 's', { maxDeliveryCount: 3, defaultRuleOptions: first })
    assert.ok(await admin.subscriptionExists(topic, 's'))
    const subscription = await admin.getSubscription(topic, 's')
    assert.strictEqual(subscription.maxDeliveryCount, 3)
    subscription.lockDuration = 'PT45S'
    await admin.updateSubscription(subscription)
    assert.strictEqual((await admin.getSubscription(topic, 's')).lockDuration, 'PT45S')
    const rule = await admin.getRule(topic, 's', 'first')
    assert.strictEqual(rule.filter.sqlExpression, 'grams > 100')
    assert.strictEqual(rule.action.sqlExpression, 'SET sold = TRUE')
    const values = { text: 'ü & <x>', count: 7, ripe: true, at: new Date(Date.UTC(2026, 0, 2)) }
    await admin.createRule(topic, 's', 'second', { subject: 'fruit', applicationProperties: values })
    const second = await admin.getRule(topic, 's', 'second')
    assert.strictEqual(second.filter.subject, 'fruit')
    assert.deepStrictEqual(second.filter.applicationProperties, values)
    rule.filter = { sqlExpression: 'grams > 200' }
    await admin.updateRule(topic, 's', rule)
    assert.strictEqual((await admin.getRule(topic, 's', 'first')).filter.sqlExpression, 'grams > 200')
    assert.deepStrictEqual((await all(admin.listRules(topic, 's'))).map((rule) => rule.name), ['first', 'second'])
    await admin.deleteRule(topic, 's', 'second')
    assert.strictEqual(await admin.ruleExists(topic, 's', 'second'), false)
    assert.deepStrictEqual((await all(admin.listSubscriptions(topic))).map((of) => of.subscriptionName), ['s'])
    assert.strictEqual((await admin.getTopicRuntimeProperties(topic)).subscriptionCount, 1)
    assert.strictEqual((await all(admin.listTopics())).filter((of) => of.name === topic).length, 1)
    await admin.deleteSubscription(topic, 's')
    await assert.rejects(admin.getSubscription(topic, 's'), code('MessageEntityNotFoundError'))
    await admin.deleteTopic(topic)
    assert.strictEqual(await admin.topicExists(topic), false)
  },

  async counts() {
    const name = `counts-${run}`
    await admin.createQueue(name)
    const client = new ServiceBusClient(string(amqp, 'UseDevelopmentEmulator=true;'))
    const sender = client.createSender(name)
    await sender.sendMessages([{ body: 1 }, { body: 2 }])
    await sender.scheduleMessages({ body: 3 }, new Date(Date.now() + 3600000))
    const counts = await admin.getQueueRuntimeProperties(name)
    assert.deepStrictEqual([counts.activeMessageCount, counts.scheduledMessageCount, counts.totalMessageCount], [2, 1, 3])
    await client.close()
    await admin.deleteQueue(name)
  },

  async rights() {
    const wrong = new ServiceBusAdministrationClient(string(https, '', 'root', 'guess'), { retryOptions: { maxRetries: 0 } })
    await assert.rejects(wrong.getQueue('any'), code('UnauthorizedRequestError'))
    const reader = new ServiceBusAdministrationClient(string(https, '', 'reader', 's3cret-of-reader'))
    await assert.rejects(reader.createQueue('refused'), code('InvalidOperationError'))
  },
}

async function main() {
  let failed = 0
  for (const [name, check] of Object.entries(checks)) {
    const began = Date.now()
    try {
      await check()
      console.log(`ok    administration: ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`)
    } catch (error) {
      failed++
      console.log(`FAIL  administration: ${name}`)
      console.log(error)
    }
  }
  process.exit(failed ? 1 : 0)
}

main()
