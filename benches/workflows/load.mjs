// load.mjs PORT CALLERS SECONDS: callers that start a workflow, wait for its end and start the next; prints how many ended a second.
import { Agent, request } from "node:http";

const [port, callers, seconds] = process.argv.slice(2).map(Number);
const agent = new Agent({ keepAlive: true, maxSockets: callers });
const run = `${process.pid}-${Math.trunc(performance.timeOrigin)}`;

function deliver(id) {
  return new Promise((resolve, reject) => {
    const options = { port, host: "127.0.0.1", agent, method: "POST", path: `/delivery/${id}/run`, headers: { "content-type": "application/json" } };
    const asked = request(options, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => {
        const text = Buffer.concat(parts).toString();
        if (answer.statusCode === 200 && text === "5") resolve();
        else reject(new Error(`${answer.statusCode}: ${text}`));
      });
    });
    asked.on("error", reject);
    asked.end("{}");
  });
}

let ended = 0;
const begun = performance.now();
const lasted = () => (performance.now() - begun) / 1000;
async function caller(number) {
  for (let turn = 0; lasted() < seconds; turn++, ended++) await deliver(`${run}-${number}-${turn}`);
}
await Promise.all(Array.from({ length: callers }, (_, number) => caller(number)));
console.log(Math.round(ended / lasted()));
agent.destroy();
