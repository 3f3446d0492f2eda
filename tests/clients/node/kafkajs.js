// The checklist with kafkajs. Codecs other than gzip come from elsewhere, as its users have to do it too.
// Static members and the cooperative protocol are unknown to kafkajs.

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')
const assert = require('assert')
const crypto = require('crypto')
const fs = require('fs')

const env = process.env
const plain = { brokers: [env.HW_BOOTSTRAP || '127.0.0.1:9092'] }
const user = env.HW_USER || 'app'
const password = env.HW_PASSWORD || 's3cret'
const run = crypto.randomBytes(4).toString('hex')
const waitMs = 30000

const codecOf = (pack, unpack) => () => ({
  compress: async encoder => Buffer.from(pack(encoder.buffer)),
  decompress: async buffer => Buffer.from(unpack(buffer)),
})
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = codecOf(lz4.compressFrameSync, lz4.decompressFrameSync)
CompressionCodecs[CompressionTypes.ZSTD] = codecOf(zstd.compress, zstd.decompress)

class Skip extends Error {}
const need = (value, what) => value || (() => { throw new Skip(`no ${what}`) })()
const pause = ms => new Promise(done => setTimeout(done, ms))

async function until(what, step) {
  const end = Date.now() + waitMs
  while (Date.now() < end) {
    const got = await step()
    if (got) return got
    await pause(10)
  }
  throw new Error(`${what}: not within ${waitMs / 1000} s`)
}

async function fails(what, type, act) {
  let error
  try { await act() } catch (thrown) { error = thrown }
  const text = error && [error.type, error.message, ...(error.errors || []).map(e => e.type), ...(error.groups || []).map(g => g.error && g.error.type)].join(' ')
  assert(error && text.includes(type), `${what}: want ${type}, got ${text}`)
}

const kafka = (conf = {}) => new Kafka({ clientId: 'kafkajs', logLevel: logLevel.NOTHING, ...plain, ...conf })
const admin = kafka().admin()
const name = what => `kafkajs-${what}-${run}`

async function create(what, numPartitions = 1) {
  const topic = name(what)
  assert(await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1 }], waitForLeaders: true }), 'exists')
  return topic
}

// Everything that is easily lost on the way.
const binary = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
const records = [
  { key: Buffer.from('key'), value: Buffer.from('value'), headers: { h: [Buffer.from('1'), Buffer.from('2')], bytes: Buffer.from([0, 255]) } },
  { key: null, value: Buffer.from('no key'), headers: {} },
  { key: Buffer.from('tombstone'), value: null, headers: { why: Buffer.from('deleted') } },
  { key: Buffer.alloc(0), value: Buffer.alloc(0), headers: { empty: Buffer.alloc(0) } },
  { key: binary, value: Buffer.concat(Array(8).fill(binary)), headers: {} },
  ...Array.from({ length: 95 }, (_, i) => ({ key: Buffer.from(`k${i}`), value: Buffer.from('text that packs well '.repeat(10) + i), headers: {} })),
]
const numbers = (first, count) => Array.from({ length: count }, (_, i) => ({ value: String(first + i) }))
const rows = found => found.map(({ key, value, headers }) => ({ key, value, headers }))
const values = found => found.map(message => message.value.toString())

async function produce(topic, messages, { conf, compression = CompressionTypes.None, spread = 1 } = {}) {
  const producer = kafka(conf).producer({ allowAutoTopicCreation: false })
  await producer.connect()
  const placed = messages.map((message, n) => ({ partition: n % spread, ...message }))
  await producer.send({ topic, messages: placed, compression, acks: -1 })
  await producer.disconnect()
}

// Reads `want` records from the start; what must not follow them is known from the offsets.
async function read(topic, want, { conf, uncommitted = false } = {}) {
  const consumer = kafka(conf).consumer({ groupId: name('reader-' + crypto.randomUUID()), readUncommitted: uncommitted, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const found = []
  let fetches = 0
  consumer.on(consumer.events.FETCH, () => { fetches += 1 })
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => { found.push(message) } })
  await until(`${want} records`, () => found.length >= want && fetches > 1)
  await consumer.disconnect()
  return found
}

// The next records of a group, which it then commits.
async function take(topic, groupId, count) {
  const consumer = kafka().consumer({ groupId, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const got = []
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => { got.push(message) } })
  await until('records', () => got.length >= count)
  const taken = got.slice(0, count)
  await consumer.commitOffsets([{ topic, partition: 0, offset: String(Number(taken[count - 1].offset) + 1) }])
  await consumer.disconnect()
  return values(taken)
}

// Says in partition 0 that nothing came up to now, which takes an offset.
async function punctuate(topic) {
  const url = `${need(env.HW_HTTP, 'HTTP listener')}/api/hubs/${topic}/partitions/0/punctuate`
  const answer = await fetch(url, { method: 'POST', headers: { Authorization: `Bearer ${user}:${password}` } })
  assert.strictEqual(answer.status, 200)
}

async function bounds(topic) {
  const [{ low, high }] = await admin.fetchTopicOffsets(topic)
  return [Number(low), Number(high)]
}

// A member of a group. An epoch is what one joining of the group gave it.
class Member {
  constructor(id, topic, group, seen) {
    Object.assign(this, { id, topic, seen, count: 0, epoch: 0, held: [] })
    this.consumer = kafka().consumer({ groupId: group, sessionTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 100 })
  }

  async join() {
    const { consumer } = this
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      this.epoch += 1
      this.held = payload.memberAssignment[this.topic] || []
    })
    await consumer.connect()
    await consumer.subscribe({ topic: this.topic, fromBeginning: true })
    await consumer.run({
      autoCommitThreshold: 1,
      eachMessage: async ({ partition, message }) => {
        this.count += 1
        this.seen.push({ member: this.id, epoch: this.epoch, partition, number: Number(message.value) })
      },
    })
    return this
  }

  leave() { return this.consumer.disconnect() }
}

function checkGroupLog(seen, total) {
  const got = new Set(seen.map(row => row.number))
  const lost = numbers(0, total).filter(({ value }) => !got.has(Number(value)))
  assert.strictEqual(lost.length, 0, `${lost.length} records lost, first ${lost[0] && lost[0].value}`)
  const once = new Set(seen.map(row => [row.member, row.epoch, row.number].join()))
  assert.strictEqual(once.size, seen.length, 'records delivered twice to a member in one generation')
}

const sasl = (broker, secret, mechanism = 'plain') => ({ brokers: [broker], sasl: { mechanism, username: user, password: secret }, retry: { retries: 1 } })

const credential = name => fs.readFileSync(`${need(env.HW_CREDENTIALS, 'folder of credentials')}/${name}`, 'utf8')

const oauth = (broker, token) => ({
  brokers: [broker],
  sasl: { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: credential(token) }) },
  retry: { retries: 1 },
})

const mtls = (broker, certificate) => ({
  brokers: [broker],
  ssl: {
    ca: [fs.readFileSync(env.HW_CA, 'utf8')],
    servername: 'localhost',
    ...(certificate && { cert: credential(`${certificate}.pem`), key: credential(`${certificate}.key`) }),
  },
  retry: { retries: 1 },
})

async function refused(conf) {
  const client = kafka(conf).admin()
  let error
  try { await client.connect() } catch (thrown) { error = thrown }
  assert(error && error.name === 'KafkaJSSASLAuthenticationError', `want an authentication error, got ${error}`)
}

async function roundTrip(what, conf) {
  const topic = await create(what)
  await produce(topic, records, { conf })
  assert.deepStrictEqual(rows(await read(topic, records.length, { conf })), records)
}

async function transactional(what) {
  const producer = kafka().producer({ transactionalId: name(what), idempotent: true, maxInFlightRequests: 1, transactionTimeout: 30000 })
  await producer.connect()
  return producer
}

const codec = type => async () => {
  const topic = await create(`codec-${type}`)
  await produce(topic, records, { compression: CompressionTypes[type] })
  const found = await read(topic, records.length)
  assert.deepStrictEqual(rows(found), records)
  assert.deepStrictEqual(found.map(m => Number(m.offset)), records.map((_, i) => i))
}

const checks = {
  codec_none: codec('None'),
  codec_gzip: codec('GZIP'),
  codec_snappy: codec('Snappy'),
  codec_lz4: codec('LZ4'),
  codec_zstd: codec('ZSTD'),

  async append_time() {
    const topic = await create('time')
    const before = Date.now()
    await produce(topic, numbers(0, 10).map(message => ({ ...message, timestamp: '1000000' })))
    const stamps = (await read(topic, 10)).map(message => Number(message.timestamp))
    assert(stamps.every(at => before - 1000 <= at && at <= Date.now() + 1000), `append times ${stamps}`)
  },

  async large_record() {
    const topic = await create('large')
    const value = Buffer.concat(Array(3600).fill(binary))
    for (let n = 0; n < 3; n += 1) await produce(topic, [{ value }]) // one request each: a batch has a limit too
    assert((await read(topic, 3)).every(message => message.value.equals(value)), 'the large records differ')
  },

  async empty_topic() {
    const topic = await create('empty')
    assert.deepStrictEqual(await read(topic, 0), [])
    assert.deepStrictEqual(await bounds(topic), [0, 0])
  },

  async unknown_topic() {
    const topic = name('nowhere')
    await fails('describe', 'UNKNOWN_TOPIC_OR_PARTITION', () => admin.fetchTopicMetadata({ topics: [topic] }))
    const hasty = kafka({ retry: { retries: 0 } }).admin()
    await hasty.connect()
    await fails('delete', 'does not host', () => hasty.deleteTopics({ topics: [topic] }))
    await hasty.disconnect()
    assert(!(await admin.listTopics()).includes(topic), 'asking for a topic made it')
  },

  async offsets() {
    const topic = await create('offsets')
    for (const n of [0, 1, 2]) {
      await pause(10)
      await produce(topic, numbers(n, 1))
    }
    const stamps = (await read(topic, 3)).map(message => Number(message.timestamp))
    const at = async ms => Number((await admin.fetchTopicOffsetsByTimestamp(topic, ms))[0].offset)
    const found = [await at(0), await at(stamps[1]), await at(stamps[1] + 1), await at(stamps[2] + 60000)]
    assert.deepStrictEqual(found, [0, 1, 2, 3]) // kafkajs answers with the end where the broker has no offset
    assert.deepStrictEqual(await bounds(topic), [0, 3])
  },

  async topics_admin() {
    const topic = await create('admin', 3)
    const count = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
    assert((await admin.listTopics()).includes(topic), 'the topic is not listed')
    assert.strictEqual(await count(), 3)
    await fails('create again', 'exists', () => create('admin', 3))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    await until('five partitions', async () => await count() === 5)
    await fails('fewer partitions', 'INVALID_PARTITIONS', () => admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] }))
    await admin.deleteTopics({ topics: [topic] })
    await until('the topic is gone', async () => !(await admin.listTopics()).includes(topic))
  },

  async group_rebalance() {
    const topic = await create('group', 4)
    const seen = []
    const join = id => new Member(id, topic, name('group'), seen).join()
    const all = () => new Set(seen.map(row => row.number)).size
    const first = await join('first')
    await produce(topic, numbers(0, 200), { spread: 4 })
    await until('the first member reads all', () => all() === 200)
    const second = await join('second')
    await until('two partitions each', () => first.held.length === 2 && second.held.length === 2)
    assert.deepStrictEqual([...first.held, ...second.held].sort(), [0, 1, 2, 3])
    await produce(topic, numbers(200, 200), { spread: 4 })
    await until('both members read', () => all() === 400 && second.count > 0)
    await first.leave()
    await until('four partitions for the second', () => second.held.length === 4)
    await produce(topic, numbers(400, 200), { spread: 4 })
    await until('the second member reads the rest', () => all() === 600)
    await second.leave()
    checkGroupLog(seen, 600)
  },

  async commit_resume() {
    const topic = await create('resume')
    const groupId = name('resume')
    await produce(topic, numbers(0, 10))
    assert.deepStrictEqual(await take(topic, groupId, 4), ['0', '1', '2', '3'])
    assert.deepStrictEqual(await take(topic, groupId, 6), ['4', '5', '6', '7', '8', '9'])
    const [{ partitions: [{ offset }] }] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.strictEqual(offset, '10')
  },

  // What the server writes where nothing comes is passed over, in the middle and at the end.
  async punctuation() {
    need(env.HW_HTTP, 'HTTP listener')
    const topic = await create('silence')
    const groupId = name('silence')
    for (const first of [0, 3]) {
      await produce(topic, numbers(first, 3))
      await punctuate(topic)
      await punctuate(topic)
    }
    assert.deepStrictEqual(await bounds(topic), [0, 10])
    for (const uncommitted of [false, true]) {
      const found = await read(topic, 6, { uncommitted })
      assert.deepStrictEqual(values(found), values(numbers(0, 6)))
      assert.deepStrictEqual(found.map(m => Number(m.offset)), [0, 1, 2, 5, 6, 7])
    }
    assert.deepStrictEqual(await take(topic, groupId, 4), ['0', '1', '2', '3'])
    assert.deepStrictEqual(await take(topic, groupId, 2), ['4', '5'])
    await punctuate(topic)
    await produce(topic, numbers(6, 2))
    assert.deepStrictEqual(await take(topic, groupId, 2), ['6', '7'])
  },

  async groups_admin() {
    const topic = await create('groups')
    const group = name('groups')
    const member = await new Member('m', topic, group, []).join()
    await produce(topic, numbers(0, 1))
    await until('the record', () => member.count === 1)
    const listed = async () => (await admin.listGroups()).groups.some(({ groupId }) => groupId === group)
    const state = async () => {
      const { groups: [found] } = await admin.describeGroups([group])
      return [found.state, found.members.length]
    }
    assert(await listed(), 'the group is not listed')
    assert.deepStrictEqual(await state(), ['Stable', 1])
    await fails('delete a group in use', 'NON_EMPTY_GROUP', () => admin.deleteGroups([group]))
    await member.leave()
    assert.deepStrictEqual(await state(), ['Empty', 0])
    await admin.deleteGroups([group])
    assert(!(await listed()), 'the deleted group is listed')
    await fails('delete it again', 'GROUP_ID_NOT_FOUND', () => admin.deleteGroups([group]))
  },

  async idempotent_cut() {
    const proxy = need(env.HW_PROXY, 'proxy')
    const cuts = () => fs.readFileSync(env.HW_PROXY_LOG, 'utf8').split('\n').length
    const topic = await create('cut')
    const before = cuts()
    const producer = kafka({ brokers: [proxy] }).producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (let n = 0; n < 500; n += 10) await producer.send({ topic, messages: numbers(n, 10), acks: -1 })
    await producer.disconnect()
    assert(cuts() > before, 'no connection was cut')
    assert.deepStrictEqual(values(await read(topic, 500)), values(numbers(0, 500)))
    assert.deepStrictEqual(await bounds(topic), [0, 500])
  },

  async txn() {
    const topic = await create('txn')
    const producer = await transactional('txn')
    for (const [texts, commit] of [[['a', 'b'], true], [['x', 'y'], false], [['c'], true]]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: texts.map(value => ({ value })) })
      await (commit ? transaction.commit() : transaction.abort())
    }
    await producer.disconnect()
    assert.deepStrictEqual(values(await read(topic, 3)), ['a', 'b', 'c'])
    assert.deepStrictEqual(values(await read(topic, 5, { uncommitted: true })), ['a', 'b', 'x', 'y', 'c'])
  },

  // A punctuation ends no transaction, neither an open one nor one that will be aborted.
  async punctuation_txn() {
    need(env.HW_HTTP, 'HTTP listener')
    const topic = await create('silence-txn')
    const producer = await transactional('silence-txn')
    for (const [texts, commit] of [[['a', 'b'], true], [['x', 'y'], false], [['c'], true]]) {
      const transaction = await producer.transaction()
      for (const value of texts) {
        await transaction.send({ topic, messages: [{ value }] })
        await punctuate(topic)
      }
      await (commit ? transaction.commit() : transaction.abort())
    }
    await punctuate(topic)
    await producer.disconnect()
    assert.deepStrictEqual(values(await read(topic, 3)), ['a', 'b', 'c'])
    assert.deepStrictEqual(values(await read(topic, 5, { uncommitted: true })), ['a', 'b', 'x', 'y', 'c'])
  },

  async txn_offsets() {
    const [source, target, groupId] = [await create('source'), await create('target'), name('transform')]
    await produce(source, numbers(0, 20))
    const producer = await transactional('offsets')
    const step = async (first, count, commit) => {
      const transaction = await producer.transaction()
      await transaction.send({ topic: target, messages: numbers(first, count) })
      await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition: 0, offset: String(first + count) }] }] })
      await (commit ? transaction.commit() : transaction.abort())
    }
    const stored = async () => (await admin.fetchOffsets({ groupId, topics: [source] }))[0].partitions[0].offset
    await step(0, 8, true)
    await until('offset 8 after the commit', async () => await stored() === '8')
    await step(8, 5, false)
    assert.strictEqual(await stored(), '8')
    await step(8, 12, true)
    await until('offset 20 at the end', async () => await stored() === '20')
    await producer.disconnect()
    assert.deepStrictEqual(values(await read(target, 20)), values(numbers(0, 20)))
  },

  async sasl_ok() { await roundTrip('sasl', sasl(need(env.HW_SASL, 'SASL listener'), password)) },

  async sasl_wrong() { await refused(sasl(need(env.HW_SASL, 'SASL listener'), 'wrong')) },

  async sasl_scram() {
    const broker = need(env.HW_SASL, 'SASL listener')
    need(env.HW_HTTP, 'keys with SCRAM verifiers')
    for (const mechanism of ['scram-sha-256', 'scram-sha-512']) {
      await roundTrip(mechanism, sasl(broker, password, mechanism))
      await refused(sasl(broker, 'wrong', mechanism))
    }
  },

  async sasl_oauth() {
    const broker = need(env.HW_SASL, 'SASL listener')
    await roundTrip('oauth', oauth(broker, 'token'))
    for (const token of ['token.forged', 'token.expired']) {
      // It takes the refusal for a success, and is cut off at its first request.
      await fails('wrong token', '', async () => {
        const client = kafka(oauth(broker, token)).admin()
        await client.connect()
        await client.listTopics()
      })
    }
  },

  async mtls() {
    const broker = need(env.HW_MTLS, 'listener that asks for certificates')
    await roundTrip('mtls', mtls(broker, 'client'))
    for (const certificate of ['other', undefined]) {
      await fails('without a certificate of the authority', '', () => kafka(mtls(broker, certificate)).admin().connect())
    }
  },

  async tls() {
    const broker = need(env.HW_TLS, 'TLS listener')
    const ca = fs.readFileSync(env.HW_CA, 'utf8')
    await roundTrip('tls', { ...sasl(broker, password), ssl: { ca: [ca], servername: 'localhost' } })
    const stranger = kafka({ ...sasl(broker, password), ssl: { servername: 'localhost' } }).admin()
    await fails('without the authority', 'certificate', () => stranger.connect())
  },
}

async function main() {
  await zstd.init()
  await admin.connect()
  const only = process.argv.slice(2)
  let failed = 0
  for (const [check, act] of Object.entries(checks)) {
    if (only.length && !only.includes(check)) continue
    const started = Date.now()
    try {
      await act()
      console.log(`ok ${check} ${((Date.now() - started) / 1000).toFixed(1)}s`)
    } catch (error) {
      const text = String(error.message).replace(/\s+/g, ' ').slice(0, 400)
      if (error instanceof Skip) { console.log(`skip ${check} ${text}`); continue }
      failed += 1
      console.log(`FAIL ${check} ${text}`)
      console.error(error)
    }
  }
  process.exit(failed ? 1 : 0)
}

main().catch(error => { console.error(error); process.exit(1) })
