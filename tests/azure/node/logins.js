// Logins of AMQP clients that are no SDK, by rhea: node logins.js AMQP_PORT TLS_PORT CERTIFICATES FOLDER
// PLAIN (name and secret of a key), EXTERNAL (a client certificate), and the SDK over TLS. The queue `logins` must exist.
// CERTIFICATES is a folder with ca.pem, client.pem and client.key; rhea is in node_modules of FOLDER.

'use strict'
const assert = require('node:assert')
const fs = require('node:fs')
const path = require('node:path')
const { createRequire } = require('node:module')

const [plain, tls, certificates, modules] = process.argv.slice(2)
const load = createRequire(path.join(modules, 'package.json'))
const rhea = load('rhea')
const { ServiceBusClient } = load('@azure/service-bus')
const read = (name) => fs.readFileSync(path.join(certificates, name))

// Sends a message to the queue and receives it, or fails with the error of the login.
function exchange(options) {
  return new Promise((resolve, reject) => {
    const container = rhea.create_container()
    const timer = setTimeout(() => reject(new Error('nothing happens')), 20000)
    const end = (connection, act) => { clearTimeout(timer); connection.close(); act() }
    const failed = (context) => end(context.connection, () => reject(context.error || context.receiver?.error || context.sender?.error))
    for (const event of ['connection_error', 'sender_error', 'receiver_error', 'disconnected']) container.on(event, failed)
    container.on('connection_open', (context) => {
      context.connection.open_sender('logins')
      context.connection.open_receiver('logins')
    })
    container.once('sendable', (context) => context.sender.send({ body: 'by rhea' }))
    container.on('message', (context) => {
      context.delivery.accept()
      end(context.connection, () => resolve(context.message.body.toString()))
    })
    container.connect({ host: '127.0.0.1', reconnect: false, ...options })
  })
}

const overTls = { port: tls, transport: 'tls', servername: 'localhost', ca: [read('ca.pem')] }

const checks = {
  plain: () => exchange({ port: plain, username: 'root', password: 's3cret-of-root' }),
  plain_over_tls: () => exchange({ ...overTls, username: 'root', password: 's3cret-of-root' }),
  external: () => exchange({ ...overTls, cert: read('client.pem'), key: read('client.key'), enable_sasl_external: true }),
  async wrong_secret() {
    await assert.rejects(exchange({ port: plain, username: 'root', password: 'guess' }), /authenticat/i)
    return 'by rhea'
  },
  async sdk_over_tls() {
    const client = new ServiceBusClient(`Endpoint=sb://localhost:${tls};SharedAccessKeyName=root;SharedAccessKey=s3cret-of-root`)
    await client.createSender('logins').sendMessages({ body: 'by rhea' })
    const receiver = client.createReceiver('logins')
    const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 20000 })
    await receiver.completeMessage(message)
    await client.close()
    return message.body
  },
}

async function main() {
  let failed = 0
  for (const [name, check] of Object.entries(checks)) {
    try {
      assert.strictEqual(await check(), 'by rhea')
      console.log(`ok    ${name}`)
    } catch (error) {
      failed++
      console.log(`FAIL  ${name}`)
      console.log(error)
    }
  }
  process.exit(failed ? 1 : 0)
}

main()
