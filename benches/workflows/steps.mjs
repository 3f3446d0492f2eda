// Five durable steps for Restate: the result of each is kept before the next begins.
import { endpoint, workflow } from "@restatedev/restate-sdk";

// The SDK needs it, and Node.js has it from version 22 on.
if (!Promise.withResolvers) {
  Promise.withResolvers = () => {
    const made = {};
    made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
  };
}

const names = ["account", "package", "third-party", "drone", "delivery"];
const delivery = workflow({
  name: "delivery",
  handlers: {
    run: async (context) => {
      const done = [];
      for (const name of names) done.push(await context.run(name, () => name));
      return done.length;
    },
  },
});

await endpoint().bind(delivery).listen(Number(process.argv[2]));
