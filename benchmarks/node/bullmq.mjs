// One workload of Node's bullmq; prints one line of JSON. The package is looked up in the
// directory that TORIL_PEER_DIR names, which the benchmark fills with npm.
//
//   node bullmq.mjs add|drain|call|serve <port> <queue> <jobs> <concurrency>

import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.env.TORIL_PEER_DIR, 'package.json'));
const { Queue, QueueEvents, Worker } = require('bullmq');

const [verb, port, name] = process.argv.slice(2);
const [jobs, concurrency] = process.argv.slice(5).map(Number);
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };

const BULK = 1000;
const WARM_UP = 1000;

const say = (figures) => process.stdout.write(`${JSON.stringify(figures)}\n`);

function payload(n) {
  const number = String(n).padStart(6, '0');
  return { to: `user-${number}@example.com`, subject: 'Your invoice', amount: 12.5, tags: ['a', 'b'], n };
}

function stopwatch() {
  const cpu = process.cpuUsage();
  const begun = process.hrtime.bigint();
  return () => {
    const { user, system } = process.cpuUsage(cpu);
    return { seconds: Number(process.hrtime.bigint() - begun) / 1e9, cpu_us: user + system };
  };
}

async function add() {
  const queue = new Queue(name, { connection });
  await queue.waitUntilReady();
  const all = Array.from({ length: jobs }, (_, n) => ({ name: 'job', data: payload(n) }));
  await queue.addBulk(all.slice(0, WARM_UP));
  const stop = stopwatch();
  for (let first = WARM_UP; first < jobs; first += BULK) {
    await queue.addBulk(all.slice(first, first + BULK));
  }
  say({ jobs: jobs - WARM_UP, ...stop() });
  await queue.close();
}

async function drain() {
  const worker = new Worker(name, async (job) => job.data.n, { connection, concurrency });
  let done = 0;
  let stop;
  await new Promise((resolve) => {
    worker.on('completed', () => {
      done += 1;
      if (done === WARM_UP) stop = stopwatch();
      if (done === jobs) resolve();
    });
  });
  say({ jobs: jobs - WARM_UP, ...stop() });
  await worker.close();
}

async function call() {
  const queue = new Queue(name, { connection });
  const events = new QueueEvents(name, { connection });
  queue.setMaxListeners(0);
  events.setMaxListeners(0);
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  const latencies = [];
  const one = async (n) => {
    const begun = process.hrtime.bigint();
    const job = await queue.add('job', payload(n));
    await job.waitUntilFinished(events);
    latencies.push(Number(process.hrtime.bigint() - begun) / 1e6);
  };
  const all = async (count) => {
    let next = 0;
    const caller = async () => {
      while (next < count) await one(next++);
    };
    await Promise.all(Array.from({ length: concurrency }, caller));
  };
  await all(Math.min(WARM_UP, jobs));
  latencies.length = 0;
  const stop = stopwatch();
  await all(jobs);
  say({ jobs, ...stop(), latencies });
  await events.close();
  await queue.close();
}

async function serve() {
  const worker = new Worker(name, async (job) => job.data.n, { connection, concurrency });
  await worker.waitUntilReady();
  const stop = stopwatch();
  say({ ready: true });
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on('end', resolve));
  say({ jobs, ...stop() });
  await worker.close();
}

await { add, drain, call, serve }[verb]();
process.exit(0);
