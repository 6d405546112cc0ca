// @platformatic/job-queue on Redis or on files (`file:<directory>`), looked up in the directory that TORIL_PEER_DIR names.

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { given, handle, main } from './measure.mjs';

// It asks for Node 22 and uses this one function of it.
Promise.withResolvers ??= () => {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
};

const home = join(process.env.TORIL_PEER_DIR, 'node_modules', '@platformatic', 'job-queue');
const { FileStorage, Queue, RedisStorage } = await import(pathToFileURL(join(home, 'dist', 'index.js')));

const storage = given.where.startsWith('file:')
  ? new FileStorage({ basePath: given.where.slice(5) })
  : new RedisStorage({ url: `redis://127.0.0.1:${given.where}`, keyPrefix: `${given.queue}:` });
const queue = new Queue({ storage, concurrency: given.concurrency });

await main({
  async open() {
    if (given.verb !== 'drain' && given.verb !== 'serve') await queue.start();
  },
  add: (data) => queue.enqueue(`${given.verb}-${data.n}`, data),
  addMany: (many) => Promise.all(many.map((data) => queue.enqueue(`${given.verb}-${data.n}`, data))),
  call: (data) => queue.enqueueAndWait(`${given.verb}-${data.n}`, data),
  async work() {
    queue.execute((job) => handle(job.payload));
    await queue.start();
  },
});
