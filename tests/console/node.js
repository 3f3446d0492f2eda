// A node or a demo as a child process, for the scripts of this folder.
'use strict'

const assert = require('assert')
const { spawn } = require('child_process')
const fs = require('fs')
const os = require('os')
const path = require('path')

const bin = process.env.HIGHWATER_BIN
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'highwater-console-'))
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

class Server {
  // Without a port: the demo, which takes a free one and prints its address.
  constructor (name, args, port) { Object.assign(this, { name, args, url: port && `http://127.0.0.1:${port}` }) }

  log () { return fs.readFileSync(path.join(folder, `${this.name}.log`), 'utf8') }

  address () { return /http:\/\/127\.0\.0\.1:\d+/.exec(this.log())?.[0] }

  async start () {
    const log = fs.openSync(path.join(folder, `${this.name}.log`), 'a')
    this.process = spawn(bin, this.args, { stdio: ['ignore', log, log], cwd: folder })
    const ended = new Promise(resolve => this.process.once('exit', resolve))
    for (let tries = 0; tries < 1200; tries++) {
      this.url ??= this.address()
      const ready = await fetch(`${this.url}/readyz`).then(answer => answer.ok).catch(() => false)
      if (ready) return this
      if (await Promise.race([ended.then(() => true), sleep(100)])) break
    }
    throw new Error(`${this.name} does not start: ${this.log().slice(-2000)}`)
  }

  async stop (signal = 'SIGTERM') {
    if (!this.process || this.process.exitCode !== null) return
    const ended = new Promise(resolve => this.process.once('exit', resolve))
    this.process.kill(signal)
    await ended
  }

  async api (line, body) {
    const [method, where] = line.split(' ')
    const answer = await fetch(this.url + where, { method, body: body && JSON.stringify(body) })
    const text = await answer.text()
    assert(answer.ok, `${line}: ${answer.status} ${text}`)
    return text ? JSON.parse(text) : null
  }

  // The CPU time of the process so far, in seconds.
  cpuSeconds () {
    const fields = fs.readFileSync(`/proc/${this.process.pid}/stat`, 'utf8').split(') ')[1].split(' ')
    return (+fields[11] + +fields[12]) / 100
  }
}

module.exports = { Server, bin, folder, sleep }
