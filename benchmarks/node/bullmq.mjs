// Node's bullmq, looked up in the directory that TORIL_PEER_DIR names.

import { createRequire } from 'node:module';
import { join } from 'node:path';

import { given, handle, main } from './measure.mjs';

const require = createRequire(join(process.env.TORIL_PEER_DIR, 'package.json'));
const { Queue, QueueEvents, Worker } = require('bullmq');

const { queue: name, concurrency } = given;
const connection = { host: '127.0.0.1', port: Number(given.where), maxRetriesPerRequest: null };
let queue;
let events;

await main({
  async open() {
    if (given.verb === 'drain' || given.verb === 'serve') return;
    queue = new Queue(name, { connection });
    queue.setMaxListeners(0);
    await queue.waitUntilReady();
    if (given.verb !== 'call') return;
    events = new QueueEvents(name, { connection });
    events.setMaxListeners(0);
    await events.waitUntilReady();
  },
  add: (data) => queue.add('job', data),
  addMany: (many) => queue.addBulk(many.map((data) => ({ name: 'job', data }))),
  addLate: (data, delay) => queue.add('job', data, { delay }),
  async call(data) {
    const job = await queue.add('job', data);
    return job.waitUntilFinished(events);
  },
  async work() {
    const worker = new Worker(name, (job) => handle(job.data), { connection, concurrency });
    await worker.waitUntilReady();
  },
});
