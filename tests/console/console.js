// The console in a real browser. `run` installs what this needs; the names of checks as arguments run only those.
'use strict'

const assert = require('assert')
const { spawn } = require('child_process')
const fs = require('fs')
const path = require('path')
const { chromium } = require('playwright-core')
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')

const { Server, bin, folder, sleep } = require('./node.js')

const shots = process.env.CONSOLE_SHOTS
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync']
const SECOND = 1000

// ---- Nodes

const http = +(process.env.HIGHWATER_PORT || 29292)
const demo = new Server('demo', ['demo', '--dir', path.join(folder, 'demo')])
const plain = new Server('plain', ['up', '--data', path.join(folder, 'plain'), '--set', `http.listen=127.0.0.1:${http}`,
  '--set', 'kafka.listen=off'], http)
const keyed = new Server('keyed', ['up', '-c', path.join(folder, 'keyed.toml'), '--data', path.join(folder, 'keyed'),
  '--set', `http.listen=127.0.0.1:${http + 1}`, '--set', 'kafka.listen=off'], http + 1)

// ---- Pages

let browser
// A page that fails on a console error or a request to elsewhere. `expected` are texts of errors that a check provokes.
async function open (url, { width = 1280, theme = 'light', expected = [] } = {}) {
  const context = await browser.newContext({ viewport: { width, height: width < 500 ? 844 : 860 }, colorScheme: theme, acceptDownloads: true })
  // Long enough for a busy machine: a check ends as soon as what it waits for is there.
  context.setDefaultTimeout(60 * SECOND)
  const page = await context.newPage()
  page.problems = []
  const known = text => expected.some(part => text.includes(part))
  page.on('console', message => { if (message.type() === 'error' && !known(message.text())) page.problems.push(`console: ${message.text()}`) })
  page.on('pageerror', error => page.problems.push(`script: ${error.message}`))
  page.on('request', request => { const host = new URL(request.url()).host; if (host && !host.startsWith('127.0.0.1:')) page.problems.push(`elsewhere: ${request.url()}`) })
  await page.goto(url)
  return page
}

async function close (page) {
  assert.deepStrictEqual(page.problems, [])
  await page.context().close()
}

async function checkAccessible (page, name) {
  // The policy of the page forbids a foreign script; the protocol of the browser may run one.
  const { violations } = await page.evaluate(`${axe}; axe.run(document, { resultTypes: ['violations'] })`)
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
  assert.deepStrictEqual(serious.map(({ id, nodes }) => `${name}: ${id} at ${nodes.slice(0, 3).map(({ target }) => target.join(' ')).join(', ')}`), [])
}

// Nothing wider than the page, and no panel whose text is cut off.
async function checkLayout (page, name) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  assert(wide <= 0, `${name}: ${wide} pixels wider than the page`)
}

// Every screen, four times: wide and narrow, light and dark.
async function look (url, name, ready) {
  for (const width of [1280, 390]) {
    for (const theme of ['light', 'dark']) {
      const page = await open(url, { width, theme })
      await ready(page)
      await checkLayout(page, name)
      await checkAccessible(page, `${name} ${width} ${theme}`)
      await page.screenshot({ path: path.join(shots, `${name}-${width}-${theme}.png`), fullPage: true })
      await close(page)
    }
  }
}

// Pauses the picture and returns where it draws the last event, or the last one that a policy adjusted.
async function placeOfLast (page, { adjusted = false } = {}) {
  if (await page.isHidden('#paused')) await page.keyboard.press('p')
  const at = await page.evaluate(async adjusted => {
    // The last frame before the pause may not be drawn yet.
    const { picture } = window
    for (let quiet = 0, frames = picture.frames; quiet < 5; quiet++) {
      await new Promise(requestAnimationFrame)
      if (picture.frames !== frames) { frames = picture.frames; quiet = 0 }
    }
    const { shownScale: scale, canvas } = picture
    const event = scale.shown.findLast(event => !adjusted || (event.verdict !== 'on_time' && !event.dropped))
    const box = canvas.getBoundingClientRect()
    return event && [box.left + scale.px(event.arrived), box.top + scale.py(event.happened)]
  }, adjusted)
  assert(at, 'no such event is drawn')
  return at
}

// A field of a closed dialog has the focus until the next frame, and gets the keys.
async function closeDialog (page) {
  await page.keyboard.press('Escape')
  await page.waitForFunction(() => !document.querySelector('dialog[open]') && document.activeElement === document.body)
}

// Waits for data of the demo.
async function until (what, holds) {
  for (let tries = 0; tries < 240; tries++) {
    if (await holds()) return
    await sleep(500)
  }
  throw new Error(`the demo has no ${what}`)
}

// ---- Checks

const checks = {
  async overview () {
    await look(demo.url, 'overview', async page => {
      await page.waitForSelector('#jobs tbody tr')
      await page.waitForFunction(() => /[1-9]/.test(document.querySelector('#figures b').textContent))
    })
    const page = await open(demo.url)
    const before = await page.textContent('#figures')
    await page.waitForFunction(text => document.querySelector('#figures').textContent !== text, before, { timeout: 60 * SECOND })
    await page.keyboard.press('?')
    await page.waitForSelector('#keys[open]')
    await closeDialog(page)
    await page.keyboard.press('/')
    await page.fill('#search input', 'counts')
    await page.waitForSelector('#found a')
    await closeDialog(page)
    await page.keyboard.press('p')
    await page.waitForSelector('#paused:not([hidden])')
    await page.keyboard.press('p')
    await page.click('[data-theme-switch]')
    assert.strictEqual(await page.getAttribute('html', 'data-theme'), 'light')
    await page.reload()
    assert.strictEqual(await page.getAttribute('html', 'data-theme'), 'light')
    await page.keyboard.press('g')
    await page.keyboard.press('j')
    await page.waitForURL('**/console/jobs')
    await close(page)
  },

  // Empty screens say what to do.
  async empty () {
    const page = await open(`${plain.url}/console/jobs`)
    const commands = await page.textContent('#jobs pre')
    assert.match(commands, /highwater init/)
    // The commands give what the screen promises.
    for (const command of commands.split('\n')) await runCommand(plain, command)
    await page.waitForSelector('#jobs .pill:has-text("running")')
    await close(page)
    for (const made of ['jobs/averages', 'hubs/readings', 'hubs/averages']) await plain.api(`DELETE /api/${made}`)
    const overview = await open(plain.url)
    await checkAccessible(overview, 'empty overview')
    // The address in a command is that of the node.
    assert((await overview.textContent('#hubs pre')).includes(plain.url))
    await close(overview)
  },

  async jobs () {
    await look(`${demo.url}/console/jobs`, 'jobs', page => page.waitForSelector('.pill.good'))
  },

  async job () {
    const { jobs } = await demo.api('GET /api/jobs')
    const job = jobs.find(({ events }) => events > 0) ?? jobs[0]
    const url = `${demo.url}/console/jobs/${job.name}`
    await look(url, 'job', async page => {
      await page.waitForSelector('#partitions tbody tr')
      await page.waitForFunction(() => window.picture?.events.length > 20, null, { timeout: 60 * SECOND })
      await page.waitForSelector('#plan svg rect')
    })
    const page = await open(url)
    // A late event, or any other if none comes: hover shows its fate, a click the whole of it.
    await page.waitForFunction(() => window.picture?.events.length > 20, null, { timeout: 60 * SECOND })
    await page.waitForFunction(() => window.picture.shownScale?.shown.some(event => event.verdict !== 'on_time' && !event.dropped), null, { timeout: 120 * SECOND })
    const at = await placeOfLast(page, { adjusted: true })
    await page.mouse.move(...at)
    await page.waitForSelector('#fate-body .verdict')
    assert.notStrictEqual(await page.textContent('#fate-body .verdict'), 'on time')
    await page.waitForSelector('#fate-body :text("windows entered")')
    await page.mouse.click(...at)
    await page.waitForSelector('#fate-body pre')
    assert.match(await page.textContent('#fate-body'), /highwater why --job/)
    await page.screenshot({ path: path.join(shots, 'job-fate.png') })
    await close(page)
  },

  // The fate of a live event names its session as it is now; a later event makes it longer.
  async session () {
    for (const name of ['clicks', 'visits']) await plain.api('POST /api/hubs', { name, partitions: 1 })
    const file = 'query = "q.saql"\nstart = "beginning"\n[time]\nlate_arrival = "1h"\n[inputs.clicks]\nhub = "clicks"\n[outputs.visits]\ntype = "hub"\nhub = "visits"\n'
    const query = 'SELECT user, COUNT(*) AS n INTO visits FROM clicks TIMESTAMP BY t GROUP BY user, SessionWindow(minute, 5, 60) OVER (PARTITION BY user)\n'
    await plain.api('PUT /api/jobs/visits', { files: { 'job.toml': file, 'q.saql': query } })
    const page = await open(`${plain.url}/console/jobs/visits`)
    await page.waitForSelector('.pill:has-text("running")')
    const click = second => plain.api('POST /hubs/clicks/messages', { user: 'ada', t: new Date(second * SECOND).toISOString() })
    const first = Math.floor(Date.now() / SECOND) - 60
    const clock = second => new Date(second * SECOND).toISOString().slice(11, 19)
    // The page may not watch yet when the first events come.
    await until('sampled event', async () => { await click(first); return page.evaluate(() => window.picture?.shownScale?.shown.length > 0) })
    await page.mouse.click(...await placeOfLast(page))
    await page.waitForSelector(`#fate-body :text("session (${clock(first)} .. ${clock(first + 300)}] open, may grow")`)
    await click(first + 10)
    await page.mouse.click(...await placeOfLast(page))
    await page.waitForSelector(`#fate-body :text("session (${clock(first)} .. ${clock(first + 310)}] open, may grow")`)
    await page.screenshot({ path: path.join(shots, 'job-session.png') })
    await close(page)
  },

  // Ten frames a second with 5,000 events on a quiet machine (printed; half of it must be reached anywhere), and no memory
  // that grows with time.
  async picture () {
    const { jobs } = await demo.api('GET /api/jobs')
    const page = await open(`${demo.url}/console/jobs/${jobs[0].name}`)
    await page.waitForFunction(() => window.picture)
    const frames = await page.evaluate(async () => {
      const { picture } = window
      const now = Date.now()
      const fill = from => Array.from({ length: 5000 }, (_, at) => ({ input: 0, partition: at % 2, offset: at, arrived: from + at * 12, happened: from + at * 12 - at % 900, timestamp: from + at * 12 - (at % 50 ? at % 900 : 0), verdict: at % 50 ? 'on_time' : 'late', dropped: false, watermark: null }))
      picture.add(fill(now), [])
      // The best of eight half seconds, so that what else the machine does counts little.
      let rate = 0
      for (let round = 0; round < 8; round++) {
        const begun = picture.frames
        const started = performance.now()
        while (performance.now() - started < 500) { picture.soon(); await new Promise(requestAnimationFrame) }
        rate = Math.max(rate, (picture.frames - begun) / (performance.now() - started) * 1000)
      }
      for (let round = 0; round < 50; round++) picture.add(fill(now + round), [])
      return { rate, kept: picture.events.length, shown: picture.shownScale.shown.length }
    })
    assert(frames.shown >= 4000, `${frames.shown} events are shown`)
    console.log(`     ${frames.rate.toFixed(1)} frames a second with ${frames.shown} events`)
    assert(frames.rate >= 5, `${frames.rate} frames a second`)
    assert(frames.kept <= 12000, `${frames.kept} events are kept`)
    await close(page)
  },

  async hubs () {
    await look(`${demo.url}/console/hubs`, 'hubs', page => page.waitForSelector('#hubs tbody tr'))
    const { hubs } = await demo.api('GET /api/hubs')
    assert(hubs.length > 1)
  },

  async hub () {
    const url = `${demo.url}/console/hubs/traffic`
    await look(url, 'hub', async page => {
      await page.waitForSelector('#events .event')
      await page.click('#events .event summary')
      await page.waitForFunction(() => /[1-9].*\/s/.test(document.querySelector('#partitions tbody').textContent))
    })
    const page = await open(url)
    await page.fill('[name=where]', 'TollId = 1')
    await page.click('.browse button')
    await page.waitForSelector('#events .pages')
    assert.match(await page.textContent('#events .pages'), /Looked at [\d,]+ events?/)
    await page.fill('[name=where]', 'TollId =')
    await page.click('.browse button')
    await page.waitForSelector('.browse .field-error')
    assert.match(await page.textContent('.browse .field-error'), /HW1002/)
    await page.screenshot({ path: path.join(shots, 'hub-error.png') })
    await page.goto(url)
    await page.click('#tail-switch')
    await page.waitForSelector('#tail-events .event', { timeout: 60 * SECOND })
    await page.keyboard.press('p')
    await page.waitForFunction(() => /Paused after/.test(document.querySelector('#tail-note').textContent))
    await page.screenshot({ path: path.join(shots, 'hub-follow.png') })
    await close(page)
  },

  // An event is sent as it was typed; a partition that does not exist is refused beside the form.
  async hubChanges () {
    await plain.api('POST /api/hubs', { name: 'changes', partitions: 1 })
    const page = await open(`${plain.url}/console/hubs/changes`, { expected: ['404'] })
    assert.match(await page.textContent('#events .empty'), /Send one/)
    await page.click('button:has-text("Send an event")')
    await page.fill('#send [name=body]', '{"n": 12345678901234567890}')
    await page.fill('#send [data-query=key]', 'a b')
    await page.click('#send button.primary')
    await page.waitForSelector('.toast:has-text("offset 0")')
    await page.fill('#send [data-partition]', '7')
    await page.click('#send button.primary')
    await page.waitForSelector('#send .field-error:not(:empty)')
    await page.goto(`${plain.url}/console/hubs/changes?key=a+b`)
    await page.click('#events .event summary')
    assert.match(await page.textContent('#events .opened'), /12345678901234567890/)
    await close(page)
  },

  async queues () {
    const { queues } = await demo.api('GET /api/queues')
    await look(`${demo.url}/console/queues`, 'queues', page => page.waitForSelector('#queues tbody tr'))
    await look(`${demo.url}/console/queues/${queues[0].name}`, 'demo-queue', page => page.waitForSelector('#settings dd'))
    await plain.api('POST /api/queues', { name: 'orders', sessions: false })
    for (const order of [1, 2, 3]) await plain.api('POST /queues/orders/messages', { order, lines: [{ sku: 'a', n: order }] })
    const { messages } = await plain.api('POST /queues/orders/receive?max=2', {})
    await plain.api('POST /queues/orders/dead-letter', { tokens: messages.map(({ token }) => token), reason: 'Refused', description: 'no such sku' })
    await plain.api('POST /queues/orders/batch', [{ body: 'later', schedule_at: '2099-01-01T00:00:00Z' }])
    const url = `${plain.url}/console/queues/orders`
    await look(url, 'queue', async page => {
      await page.waitForSelector('#dead .event')
      await page.click('#dead .event summary')
    })
    const page = await open(url)
    await page.click('#dead .event summary')
    await page.click('#dead .event button')
    await page.waitForFunction(() => document.querySelectorAll('#dead .event').length === 1)
    await page.click('#dead button:has-text("All back to the queue")')
    assert.match(await page.textContent('#ask p'), /Return 1 dead letter to orders\? 1 × Refused/)
    await page.screenshot({ path: path.join(shots, 'queue-preview.png') })
    await page.click('#ask button[value=yes]')
    await page.waitForFunction(() => document.querySelectorAll('#dead .event').length === 0)
    await page.click('button:has-text("Send a message")')
    await page.fill('#send [name=body]', 'plain text')
    await page.click('#send button.primary')
    await page.waitForFunction(() => /plain text/.test(document.querySelector('#messages').textContent))
    await page.click('#heading button.danger:has-text("Purge")')
    await page.click('#ask button[value=yes]')
    await page.waitForSelector('#messages .empty')
    await close(page)
  },

  async startAndStop () {
    const { jobs } = await demo.api('GET /api/jobs')
    const job = jobs.find(({ in_settings: declared }) => declared) ?? jobs[0]
    const page = await open(`${demo.url}/console/jobs/${job.name}`)
    await page.click('button.danger:has-text("Stop")')
    await page.click('#ask button[value=yes]')
    await page.waitForSelector('.pill:has-text("stopped")', { timeout: 60 * SECOND })
    await page.click('button:has-text("Start…")')
    await page.click('#start button.primary')
    await page.waitForSelector('.pill:has-text("running")', { timeout: 60 * SECOND })
    await close(page)
  },

  // A new version: the difference of queries and of plans, an error at its place, then the deployment.
  async newVersion () {
    for (const name of ['readings', 'copies']) await plain.api('POST /api/hubs', { name, partitions: 1 })
    const file = 'query = "q.saql"\n[inputs.readings]\nhub = "readings"\n[outputs.copies]\ntype = "hub"\nhub = "copies"\n'
    await plain.api('PUT /api/jobs/copy', { files: { 'job.toml': file, 'q.saql': 'SELECT * INTO copies FROM readings\n' } })
    const page = await open(`${plain.url}/console/jobs/copy`)
    await page.click('#open-new-version')
    await page.waitForFunction(() => document.querySelector('#new-version textarea').value.includes('SELECT *'))
    await page.fill('#new-version textarea', 'SELECT * INTO copies FROM readngs WHERE n > 1\n')
    await page.waitForSelector('#difference .add')
    await page.click('#plans')
    await page.waitForFunction(() => /HW\d+ at line 1, column 27/.test(document.querySelector('#new-version .field-error').textContent))
    await page.fill('#new-version textarea', 'SELECT * INTO copies FROM readings WHERE n > 1\n')
    await page.click('#plans')
    await page.waitForFunction(() => /filter|where/i.test(document.querySelector('#difference .add')?.textContent ?? ''))
    await page.screenshot({ path: path.join(shots, 'new-version.png') })
    await page.click('#deploy')
    await page.waitForSelector('#query :text("WHERE")')
    await close(page)
  },

  async playground () {
    const url = `${demo.url}/console/playground`
    await look(url, 'playground', async page => {
      await page.waitForSelector('#verdict.good')
      await page.waitForFunction(() => window.picture.events.length > 0)
      await sleep(300)
    })
    const page = await open(url)
    await page.waitForSelector('#verdict.good')
    await page.fill('#text', 'SELECT device, COUNT(*) AS n\nFROM inptu TIMESTAMP BY t\nGROUP BY device, TumblingWindow(minute, 5)')
    await page.waitForSelector('#verdict.bad')
    const problem = await page.textContent('#problems')
    assert.match(problem, /2 \| FROM inptu[^]*\^{5} [^]*\(HW\d+\)/)
    assert.strictEqual(await page.textContent('#highlighted .wrong'), 'inptu')
    await page.click('[data-input=inptu]')
    await page.waitForSelector('#inputs :text("inptu")')
    await page.click('#inputs :text("input")')
    await page.fill('#text', 'SELECT device, COUNT(*) AS n\nFROM input TIMESTAMP BY t\nGROUP BY device, TumblingWindow(minute, 5)')
    await page.waitForSelector('#verdict.good')
    await page.click('[data-form=lines]')
    await page.fill('#lines', ['{"device":"a","t":"2026-01-01T00:01:00Z"}', '{"device":"a","t":"2026-01-01T00:03:00Z"}', '{"device":"b","t":"2026-01-01T00:09:00Z"}'].join('\n'))
    await page.fill('#arrival', 't')
    await page.waitForFunction(() => document.querySelectorAll('#row-table tbody tr').length === 2)
    assert.match(await page.textContent('#row-table tbody'), /a2/)
    // A row names its events; a click on one shows its fate.
    assert.strictEqual(await page.textContent('#row-table tbody tr:first-child td:last-child'), '1, 2')
    await page.click('#row-table [data-source="0/2"]')
    await page.waitForSelector('#fate-body :text("event 2")')
    await page.click('#event-forms [data-form=table]')
    await page.click('#event-table tbody tr:first-child button')
    await page.waitForSelector('#fate-body .verdict')
    // The link alone brings everything back.
    await page.waitForFunction(async () => location.hash.slice(1) === await pack({ query: state.query, time: state.time, inputs: state.inputs }))
    const link = page.url()
    assert(link.includes('#'))
    const again = await open(link)
    await again.waitForFunction(() => document.querySelectorAll('#row-table tbody tr').length === 2)
    await close(again)
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#save-case')])
    const file = path.join(folder, 'playground.tar')
    await download.saveAs(file)
    await checkGoldenCase(file)
    await close(page)
  },

  // The query of a job with a sample of its hub, and a sample by hand.
  async sample () {
    const page = await open(`${demo.url}/console/playground?job=counts`)
    await page.waitForSelector('#verdict.good')
    await page.waitForFunction(() => document.querySelectorAll('#event-table tbody tr').length > 20)
    await page.click('[data-dialog=sample]')
    await page.selectOption('#sample select', 'traffic')
    await page.fill('#sample [name=max]', '7')
    await page.click('#sample button.primary')
    await page.waitForFunction(() => document.querySelectorAll('#event-table tbody tr').length === 7)
    await page.click('[data-dialog=examples]')
    await page.click('[data-example="6"]')
    await page.waitForSelector('#verdict.good')
    await close(page)
  },

  async processors () {
    await look(`${demo.url}/console/processors`, 'processors', page => page.waitForSelector('#processors tbody tr'))
    await look(`${demo.url}/console/processors/police`, 'processor', page => page.waitForSelector('#partitions tbody tr'))
  },

  // A circuit is opened with a reason, and deliveries resume.
  async circuits () {
    await look(`${demo.url}/console/circuits`, 'circuits', page => page.waitForSelector('.failures svg'))
    const page = await open(`${demo.url}/console/circuits`)
    await page.click('button:has-text("Open…")')
    await page.fill('dialog[open] [name=why]', 'maintenance <b>of</b> the handler')
    await page.click('dialog[open] button.danger')
    await page.waitForSelector('#circuit-police .pill.bad')
    assert.match(await page.textContent('#circuit-police'), /maintenance <b>of<\/b> the handler/)
    await page.click('#circuit-police button:has-text("Resume")')
    await page.waitForSelector('#circuit-police .pill.good')
    await close(page)
  },

  async cluster () {
    await look(`${demo.url}/console/cluster`, 'cluster', page => page.waitForSelector('#owned tbody tr'))
  },

  // One dead letter with a check mark is replayed, after a dry run; one is purged.
  async deadLetters () {
    const count = async () => (await demo.api('GET /api/dead-letters')).dead_letters[0].letters
    await until('two dead letters', async () => await count() >= 2)
    await look(`${demo.url}/console/dead-letters`, 'dead-letters', page => page.waitForSelector('#letters tbody tr'))
    const page = await open(`${demo.url}/console/dead-letters`)
    const id = await page.getAttribute('#letters [data-item]', 'data-item')
    await look(`${demo.url}/console/dead-letters/police/${encodeURIComponent(id)}`, 'dead-letter', page => page.waitForSelector('#attempts tbody tr'))
    await page.check('#letters [data-item] >> nth=0')
    await page.click('button:has-text("Replay selected (1)")')
    await page.click('#bulk-go:has-text("Replay 1 dead letter")')
    await page.waitForSelector('#bulk-go:has-text("Close")')
    assert.match(await page.textContent('#bulk'), /1 dead letter done\.|0 dead letters done, 1 failed:/)
    await page.click('#bulk-go')
    await page.waitForSelector('#bulk', { state: 'hidden' })
    await close(page)
    // The list loads anew when the dialog closes, so the rest goes on in a page of its own.
    const purge = await open(`${demo.url}/console/dead-letters`)
    const purged = await purge.getAttribute('#letters [data-item] >> nth=0', 'data-item')
    await purge.check(`#letters [data-item="${purged}"]`)
    await purge.click('button:has-text("Purge selected (1)")')
    await purge.click('#bulk-go:has-text("Purge 1 dead letter")')
    await purge.waitForSelector('#bulk-go:has-text("Close")')
    const { letters } = await demo.api(`GET /api/dead-letters/police?id=${encodeURIComponent(purged)}`)
    assert.deepStrictEqual(letters, [])
    await purge.goto(`${demo.url}/console/dead-letters?from=yesterday`)
    assert.match(await purge.textContent('#letters .field-error'), /`yesterday` is no time/)
    await close(purge)
  },

  // A parked instance is resolved with a note; a dry run tells which ones a decision about all would touch.
  async workflows () {
    const parked = async () => (await demo.api('GET /api/workflows/fines?state=parked')).instances
    await until('a parked instance', async () => (await parked()).length > 0)
    await look(`${demo.url}/console/workflows`, 'workflows', page => page.waitForSelector('#instances tbody tr'))
    const [{ id }] = await parked()
    const url = `${demo.url}/console/workflows/fines/${encodeURIComponent(id)}`
    await look(url, 'workflow', page => page.waitForSelector('#timeline svg rect'))
    const all = await open(`${demo.url}/console/workflows?state=parked`)
    await all.click('button:has-text("Resolve all parked…")')
    await all.waitForSelector('#bulk-go:not([disabled])')
    assert((await all.textContent('#bulk-items')).includes(id))
    await all.click('#bulk [data-close]')
    assert((await parked()).some(instance => instance.id === id), 'a dry run decides nothing')
    await close(all)
    const page = await open(url)
    await page.click('button:has-text("Resolve…")')
    await page.fill('dialog[open] [name=note]', 'towed by hand')
    await page.click('dialog[open] button.danger')
    await page.waitForSelector('#heading .pill:has-text("resolved")')
    await page.waitForSelector('#notes :text("towed by hand")')
    await close(page)
  },

  async login () {
    const page = await open(`${keyed.url}/console/jobs`, { expected: ['401'] })
    await page.waitForURL('**/console/login?next=*')
    await checkAccessible(page, 'login')
    await page.screenshot({ path: path.join(shots, 'login.png') })
    await page.fill('[name=name]', 'root')
    await page.fill('[name=secret]', 'wrong-secret')
    await page.click('button')
    await page.waitForSelector('.field-error')
    assert.match(await page.textContent('.field-error'), /the key or its secret is wrong/)
    await page.fill('[name=secret]', 'root-secret')
    await page.click('button')
    await page.waitForURL('**/console/jobs')
    const [cookie] = await page.context().cookies()
    assert.deepStrictEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ['highwater-session', true, 'Strict'])
    await page.click('button:has-text("Log out")')
    await page.waitForURL('**/console/login*')
    await close(page)
  },

  // A form of another site posts in the name of a person who is logged in.
  async crossSite () {
    const page = await open(`${keyed.url}/console/login`, { expected: ['403'] })
    await page.fill('[name=name]', 'root')
    await page.fill('[name=secret]', 'root-secret')
    await page.click('button')
    await page.waitForURL(`${keyed.url}/`)
    const before = await page.evaluate(() => fetch('/api/hubs').then(answer => answer.json()))
    const evil = await page.context().newPage()
    // Another port is another origin on the same site: the cookie is sent, the request is refused all the same.
    await evil.goto(`${demo.url}/healthz`)
    const status = await evil.evaluate(url => fetch(`${url}/api/hubs`, { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"name":"stolen"}' }).then(answer => answer.type).catch(() => 'blocked'), keyed.url)
    assert(['opaque', 'blocked'].includes(status))
    const after = await page.evaluate(() => fetch('/api/hubs').then(answer => answer.json()))
    assert.deepStrictEqual(after, before)
    const withoutToken = await page.evaluate(() => fetch('/api/hubs', { method: 'POST', body: '{"name":"x"}' }).then(answer => answer.status))
    assert.strictEqual(withoutToken, 403)
    await close(page)
  },

  // A page of another server of this machine cannot use a node without keys; its link leads to the console.
  async crossOrigin () {
    const evil = await open(`${demo.url}/healthz`, { expected: ['403', '404', 'CORS', 'ERR_FAILED'] })
    const send = ([method, url, body]) => fetch(url, { method, mode: method === 'POST' ? 'no-cors' : 'cors', body }).then(answer => answer.status).catch(() => 'blocked')
    for (const request of [['POST', `${plain.url}/api/hubs`, '{"name":"stolen"}'], ['PUT', `${plain.url}/api/jobs/stolen`, '{}']]) {
      assert([0, 403, 'blocked'].includes(await evil.evaluate(send, request)))
    }
    const { hubs } = await plain.api('GET /api/hubs')
    assert(hubs.every(({ name }) => name !== 'stolen'))
    await evil.evaluate(url => { const link = document.createElement('a'); link.href = url; document.body.append(link); link.click() }, plain.url)
    await evil.waitForSelector('#figures')
    await close(evil)
  },

  // The node is killed and comes back: the page says so, and catches up by itself.
  async killed () {
    const page = await open(plain.url, { expected: ['ERR_CONNECTION', 'ERR_INCOMPLETE', 'net::', '503'] })
    await plain.api('POST /api/hubs', { name: 'before' })
    await page.waitForSelector('#hubs :text("before")')
    await plain.stop('SIGKILL')
    await page.waitForSelector('#lost:not([hidden])', { timeout: 60 * SECOND })
    await page.screenshot({ path: path.join(shots, 'lost.png') })
    await plain.start()
    await plain.api('POST /api/hubs', { name: 'after' })
    await page.waitForSelector('#lost', { state: 'hidden', timeout: 60 * SECOND })
    await page.waitForSelector('#hubs :text("after")')
    await close(page)
  }
}

// Not checks: they run only if they are named.
const tools = {
  // Draws the pictures of the documentation anew, in docs/images.
  async pictures () {
    const images = path.join(__dirname, '../../docs/images')
    const take = (page, name, height) => page.screenshot({ path: path.join(images, name), clip: { x: 0, y: 0, width: 1280, height } })
    const job = await open(`${demo.url}/console/jobs/counts`)
    // The picture shows a minute.
    await sleep(65 * SECOND)
    await job.mouse.click(...await placeOfLast(job, { adjusted: true }))
    await job.waitForSelector('#fate-body pre')
    await job.keyboard.press('p')
    await job.evaluate(() => document.activeElement.blur())
    await job.setViewportSize({ width: 1280, height: 880 })
    await job.waitForSelector('#paused', { state: 'hidden' })
    await take(job, 'console-job.png', 880)
    await close(job)
    const playground = await open(`${demo.url}/console/playground`)
    await playground.waitForSelector('#verdict.good')
    await playground.setViewportSize({ width: 1280, height: 1180 })
    await playground.click('#event-table tbody tr:nth-child(6) button')
    await playground.waitForSelector('#fate-body .verdict')
    await take(playground, 'console-playground.png', 1180)
    await close(playground)
  }
}

// A command of the console, against a node.
async function runCommand (node, command) {
  const [name, ...args] = command.split(' ')
  assert.strictEqual(name, 'highwater')
  const child = spawn(bin, args, { cwd: folder, stdio: 'ignore', env: { ...process.env, HIGHWATER_SERVER: node.url } })
  assert.strictEqual(await new Promise(resolve => child.once('exit', resolve)), 0, command)
}

// `highwater test` runs what the playground saved.
async function checkGoldenCase (file) {
  const run = (command, args) => new Promise(resolve => spawn(command, args, { cwd: folder, stdio: 'ignore' }).once('exit', resolve))
  assert.strictEqual(await run('tar', ['xf', file]), 0)
  assert.strictEqual(await run(bin, ['test', 'playground']), 0)
}

async function main () {
  fs.writeFileSync(path.join(folder, 'keyed.toml'), '[[keys]]\nname = "root"\nsecret = "root-secret"\nrights = ["send", "listen", "manage", "deploy"]\n')
  const wanted = process.argv.slice(2)
  const names = wanted.length ? wanted : Object.keys(checks)
  let failed = 0
  try {
    await Promise.all([demo.start(), keyed.start(), plain.start()])
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: FLAGS })
    for (const name of names) {
      const started = Date.now()
      try {
        await (checks[name] ?? tools[name])()
        console.log(`ok   ${name} (${((Date.now() - started) / SECOND).toFixed(1)} s)`)
      } catch (error) {
        failed++
        console.log(`FAIL ${name}: ${error.stack}`)
      }
    }
  } finally {
    await browser?.close()
    await Promise.all([demo.stop(), keyed.stop(), plain.stop()])
    fs.rmSync(folder, { recursive: true, force: true })
  }
  console.log(failed ? `${failed} of ${names.length} checks failed` : `${names.length} checks passed; screenshots are in ${shots}`)
  process.exitCode = failed ? 1 : 0
}

main()
