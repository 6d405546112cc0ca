// What the adapters for Node share: the workloads of `compare/adapters/loops.py` in the same words.
// An adapter fills in open, add, addMany, addLate, call and work; each prints one line of JSON.
//
//   node <adapter>.mjs one|add|drain|call|serve|late <port> <queue> <jobs> <concurrency>

import { closeSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const BULK = 1000;
const LATE_AFTER_MS = 3000;
const LATE_SPAN_MS = 5000;
const TICK_MS = 20;

const [verb, where, queue] = process.argv.slice(2);
const [jobs, concurrency] = process.argv.slice(5).map(Number);
export const given = { verb, where, queue, jobs, concurrency, warmUp: Math.min(1000, Math.floor(jobs / 4)) };

const say = (figures) => process.stdout.write(`${JSON.stringify(figures)}\n`);

function payload(n) {
  const number = String(n).padStart(6, '0');
  return { to: `user-${number}@example.com`, subject: 'Your invoice', amount: 12.5, tags: ['a', 'b'], n };
}

const payloads = (first, stop) => Array.from({ length: stop - first }, (_, at) => payload(first + at));

function stopwatch() {
  const cpu = process.cpuUsage();
  const begun = process.hrtime.bigint();
  return () => {
    const { user, system } = process.cpuUsage(cpu);
    return { seconds: Number(process.hrtime.bigint() - begun) / 1e9, cpu_us: user + system };
  };
}

const peakMb = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024;

function spin(millis) {
  const begun = process.cpuUsage();
  for (;;) {
    const { user, system } = process.cpuUsage(begun);
    if (user + system >= millis * 1000) return;
  }
}

// -- handlers ------------------------------------------------------------------------------------

const [kind, millis] = (process.env.TORIL_BENCH_HANDLER ?? 'none').split(':');
const marks = process.env.TORIL_BENCH_MARKS && openSync(process.env.TORIL_BENCH_MARKS, 'r+');
const seen = new Set();
const late = [];
let runs = 0;
let clock = stopwatch();
let finish;
const over = new Promise((resolve) => {
  finish = resolve;
});

function mark(n) {
  const byte = Buffer.alloc(1);
  readSync(marks, byte, 0, 1, n);
  byte[0] += 1;
  writeSync(marks, byte, 0, 1, n);
}

export async function handle(data) {
  if (kind === 'wait') await sleep(Number(millis));
  else if (kind === 'spin') spin(Number(millis));
  if (marks) mark(data.n);
  if (data.due) late.push(Date.now() - data.due);
  runs += 1;
  seen.add(data.n);
  if (runs === given.warmUp) clock = stopwatch();
  if (seen.size === jobs) finish();
  return data.n;
}

// -- workloads -----------------------------------------------------------------------------------

async function one({ add }) {
  for (let n = 0; n < given.warmUp; n += 1) await add(payload(n));
  const stop = stopwatch();
  for (let n = given.warmUp; n < jobs; n += 1) await add(payload(n));
  say({ jobs: jobs - given.warmUp, ...stop(), peak_mb: peakMb() });
}

async function bulk({ addMany }) {
  await addMany(payloads(0, given.warmUp));
  const many = payloads(given.warmUp, jobs);
  const stop = stopwatch();
  for (let first = 0; first < many.length; first += BULK) await addMany(many.slice(first, first + BULK));
  say({ jobs: many.length, ...stop(), peak_mb: peakMb() });
}

async function drain({ work }) {
  await work();
  await over;
  const again = runs - seen.size;
  const took = clock();
  say({ jobs: jobs - given.warmUp, ...took, handled_s: took.seconds, peak_mb: peakMb(), ran: seen.size, again });
}

async function calls({ call }) {
  const latencies = [];
  const one = async (n) => {
    const begun = process.hrtime.bigint();
    await call(payload(n));
    latencies.push(Number(process.hrtime.bigint() - begun) / 1e6);
  };
  const all = async (first, stop) => {
    let next = first;
    const caller = async () => {
      while (next < stop) await one(next++);
    };
    await Promise.all(Array.from({ length: concurrency }, caller));
  };
  await all(jobs, jobs + given.warmUp);
  latencies.length = 0;
  const stop = stopwatch();
  await all(0, jobs);
  say({ jobs, ...stop(), latencies });
}

async function serve({ work }) {
  await work();
  const stop = stopwatch();
  say({ ready: true });
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on('end', resolve));
  say({ jobs, ...stop(), peak_mb: peakMb(), late });
}

async function comeDue({ addLate, addMany }) {
  if (!addLate) return say({ unsupported: 'no delayed jobs' });
  const rate = Number(process.env.TORIL_BENCH_RATE);
  const begun = Date.now() + LATE_AFTER_MS;
  for (let n = 0; n < jobs; n += 1) {
    const due = begun + (LATE_SPAN_MS * n) / jobs;
    await addLate({ ...payload(n), due }, Math.max(0, due - Date.now()));
  }
  const beginning = Date.now();
  let added = jobs;
  while (Date.now() < begun + LATE_SPAN_MS) {
    const wanted = jobs + Math.round(((Date.now() - beginning) / 1000) * rate);
    const stop = Math.min(wanted, added + BULK);
    if (stop > added) await addMany(payloads(added, stop));
    added = stop;
    await sleep(added >= wanted ? TICK_MS : 0);
  }
  const seconds = (Date.now() - beginning) / 1000;
  await sleep(2000);
  return say({ jobs: added, rate: (added - jobs) / seconds });
}

export async function main(adapter) {
  await adapter.open?.();
  await { one, add: bulk, drain, call: calls, serve, late: comeDue }[verb](adapter);
  if (marks) closeSync(marks);
  await new Promise((written) => process.stdout.write('', written)); // an exit would cut it
  process.exit(0);
}
