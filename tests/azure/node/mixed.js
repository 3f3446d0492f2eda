// Three listeners and one queue: messages that Microsoft's @azure/service-bus sends are settled over HTTP, their dead letters go back to the
// queue by hand in the console, in a real browser, and the SDK receives them: node mixed.js AMQP_PORT HTTP_PORT FOLDER
// The SDK is in node_modules of FOLDER, playwright-core in $NODE_PATH. The node has no keys. Ends with 1 if something is not as expected.

'use strict'
const assert = require('node:assert')
const path = require('node:path')
const { createRequire } = require('node:module')
const { chromium } = require('playwright-core')

const [amqp, http, modules] = process.argv.slice(2)
const { ServiceBusClient } = createRequire(path.join(modules, 'package.json'))('@azure/service-bus')

const url = `http://127.0.0.1:${http}`
const queue = 'mixed'
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking']
const WAIT = 60000

async function call (method, address, body) {
  const answer = await fetch(url + address, {
    method,
    headers: { 'Content-Type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body)
  })
  const text = await answer.text()
  assert.ok(answer.ok, `${method} ${address}: ${answer.status} ${text}`)
  return text ? JSON.parse(text) : null
}

// One dead letter by its own button, the others by the button for all of them.
async function replayInConsole () {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: FLAGS })
  try {
    const page = await browser.newPage()
    page.setDefaultTimeout(WAIT)
    const problems = []
    page.on('pageerror', error => problems.push(error.message))
    await page.goto(`${url}/console/queues/${queue}`)
    const count = expected => page.waitForFunction(expected => document.querySelectorAll('#dead .event').length === expected, expected)
    await count(3)
    assert.match(await page.textContent('#dead'), /Refused/)
    await page.click('#dead .event summary')
    await page.click('#dead .event button')
    await count(2)
    await page.click('#dead button:has-text("All back to the queue")')
    assert.match(await page.textContent('#ask p'), /Return 2 dead letters to mixed\? 2 × Refused/)
    await page.click('#ask button[value=yes]')
    await count(0)
    assert.deepStrictEqual(problems, [])
  } finally {
    await browser.close()
  }
}

async function main () {
  await call('POST', '/api/queues', { name: queue })
  const connection = `Endpoint=sb://127.0.0.1:${amqp};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;`
  const client = new ServiceBusClient(connection, { retryOptions: { maxRetries: 0, timeoutInMs: WAIT } })
  try {
    const sent = [1, 2, 3, 4, 5].map(order => ({
      body: { order, lines: [{ sku: 'a' }] },
      messageId: `order-${order}`,
      contentType: 'application/json',
      applicationProperties: { shop: 'north', order }
    }))
    await client.createSender(queue).sendMessages(sent)

    const { messages } = await call('POST', `/queues/${queue}/receive?max=4`, {})
    assert.deepStrictEqual(messages.map(({ id }) => id), ['order-1', 'order-2', 'order-3', 'order-4'])
    const [done, ...refused] = messages.map(({ token }) => token)
    await call('POST', `/queues/${queue}/complete`, { tokens: [done] })
    await call('POST', `/queues/${queue}/dead-letter`, { tokens: refused, reason: 'Refused', description: 'no such sku' })
    const letters = await client.createReceiver(queue, { subQueueType: 'deadLetter' }).peekMessages(5)
    assert.deepStrictEqual(letters.map(letter => [letter.messageId, letter.deadLetterReason, letter.deadLetterErrorDescription]),
      ['order-2', 'order-3', 'order-4'].map(id => [id, 'Refused', 'no such sku']))

    await replayInConsole()

    const receiver = client.createReceiver(queue)
    const got = []
    while (got.length < 4) {
      const more = await receiver.receiveMessages(4 - got.length, { maxWaitTimeInMs: WAIT })
      assert.ok(more.length, `only ${got.length} messages came back`)
      got.push(...more)
    }
    got.sort((a, b) => a.messageId.localeCompare(b.messageId))
    const seen = got.map(({ body, messageId, contentType, applicationProperties: { shop, order } }) =>
      ({ body, messageId, contentType, applicationProperties: { shop, order } }))
    assert.deepStrictEqual(seen, sent.slice(1))
    for (const message of got) await receiver.completeMessage(message)
    assert.deepStrictEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 1000 }), [])
    const { active, locked, dead_letters: dead } = await call('GET', `/api/queues/${queue}`)
    assert.deepStrictEqual({ active, locked, dead }, { active: 0, locked: 0, dead: 0 })
  } finally {
    await client.close()
  }
  console.log('ok    mixed: sent by the SDK, settled over HTTP, replayed in the console, received by the SDK')
}

main().catch(error => {
  console.log(`FAIL  mixed: ${error.stack}`)
  process.exitCode = 1
})
