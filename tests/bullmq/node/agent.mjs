// A Node process that does what a test asks: one JSON line in, one JSON line out.
//
//   node agent.mjs <directory with node_modules> <port>
//
// In:  {"n": 1, "verb": "add", ...}    Out: {"n": 1, "value": ...} or {"n": 1, "error": "..."}
// Every verb takes "package": "bullmq" (5.62.0, the default) or "bullmq-next" (6.x).

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { behaviours } from './behaviours.mjs';

const [directory, port] = process.argv.slice(2);
const require = createRequire(join(directory, 'package.json'));
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };

const open = new Map(); // what is to be closed, by kind, package and name
const held = new Map(); // claimed jobs, by queue and id

function once(kind, pkg, name, make) {
  const key = JSON.stringify([kind, pkg, name]);
  if (!open.has(key)) open.set(key, make(require(pkg)));
  return open.get(key);
}

// Without skipMetasUpdate every queue object would write its version into the queue's meta hash.
const queueOf = ({ package: pkg, queue, prefix = 'bull' }) =>
  once('queue', pkg, [queue, prefix], ({ Queue }) =>
    new Queue(queue, { connection, prefix, skipMetasUpdate: true }));

// A worker without a processor: it claims, settles and reaps when it is told to.
const handOf = ({ package: pkg, queue, prefix = 'bull', options = {} }) =>
  once('hand', pkg, [queue, prefix, options], ({ Worker }) => {
    const worker = new Worker(queue, undefined, { connection, prefix, ...options });
    worker.on('error', (error) => process.stderr.write(`${error.stack}\n`));
    return worker;
  });

function plain(value) {
  if (value === undefined) return null;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value?.asJSON !== 'function') return value;
  const { id, name, data, opts, progress, returnvalue, failedReason, stacktrace } = value;
  const { attemptsMade, attemptsStarted, stalledCounter, deferredFailure, processedBy } = value;
  return {
    id, name, data, opts, progress, returnvalue, failedReason, stacktrace,
    attemptsMade, attemptsStarted, stalledCounter, deferredFailure, processedBy,
  };
}

async function hold(command, job) {
  if (!job) return null;
  held.set(`${command.queue}/${job.id}`, job);
  return plain(job);
}

function heldJob({ queue, id }) {
  const job = held.get(`${queue}/${id}`);
  if (!job) throw new Error(`job ${id} of ${queue} is not held`);
  return job;
}

function failure({ package: pkg, message, stack, unrecoverable }) {
  const { UnrecoverableError } = require(pkg);
  const error = unrecoverable ? new UnrecoverableError(message) : new Error(message);
  if (stack !== undefined) error.stack = stack;
  return error;
}

async function fetched(command, answer, token) {
  const [jobData, jobId, limited, next] = Array.isArray(answer) ? answer : [];
  const worker = handOf(command);
  worker.updateDelays(limited, next);
  return hold(command, await worker.nextJobFromJobData(jobData, jobId, token));
}

const verbs = {
  ping: () => 'pong',

  // Any method of a queue, or of a job that is looked up by its id.
  queue: async (command) => plain(await queueOf(command)[command.method](...command.args)),
  job: async (command) => {
    const job = await queueOf(command).getJob(command.id);
    if (!job) throw new Error(`job ${command.id} of ${command.queue} is not there`);
    return plain(await job[command.method](...command.args));
  },
  flow: async (command) => {
    const { prefix = 'bull' } = command;
    const producer = once('flow', command.package, prefix, ({ FlowProducer }) =>
      new FlowProducer({ connection, prefix }));
    const { job } = await producer.add(command.flow);
    return plain(job);
  },

  // The steps of a worker, one by one.
  claim: async (command) => {
    const worker = handOf(command);
    await worker.waitUntilReady();
    worker.limitUntil = 0;
    return hold(command, await worker.getNextJob(command.token, { block: false }));
  },
  complete: async (command) => {
    const job = heldJob(command);
    return fetched(command, await job.moveToCompleted(command.value, job.token, command.fetch), job.token);
  },
  fail: async (command) => {
    const job = heldJob(command);
    return fetched(command, await job.moveToFailed(failure(command), job.token, command.fetch), job.token);
  },
  held: async (command) => {
    const job = heldJob(command);
    const args = command.args.map((one) => (one === '$token' ? job.token : one));
    return plain(await job[command.method](...args));
  },
  postpone: async (command) => {
    const job = heldJob(command);
    // Node takes the time until then by a second look at the clock, which may be a millisecond later.
    const { now } = Date;
    const begun = now();
    Date.now = () => begun;
    let moved;
    try {
      moved = job.moveToDelayed(begun + command.delay, job.token);
    } finally {
      Date.now = now;
    }
    return plain(await moved);
  },
  renew: async (command) => handOf(command).extendLocks([heldJob(command)]),
  reap: async (command) => handOf(command).moveStalledJobsToWait(),

  // A worker that runs by itself; `ran` waits until so many of its runs have ended.
  work: async (command) => {
    const log = { runs: [], started: [], waiters: [] };
    const run = behaviours[command.behaviour](command, require(command.package), {
      queue: () => queueOf(command),
    });
    const note = (list, entry) => {
      list.push(entry);
      log.waiters = log.waiters.filter((waiter) => !waiter());
    };
    const entry = (job) => ({ id: job.id, name: job.name, data: job.data, attempt: job.attemptsMade });
    const worker = once('worker', command.package, command.worker, ({ Worker }) =>
      new Worker(command.queue, async (job, token) => {
        note(log.started, entry(job));
        return run(job, token);
      }, { connection, prefix: command.prefix ?? 'bull', ...command.options }));
    worker.log = log;
    worker.on('completed', (job, result) => note(log.runs, { ...entry(job), result }));
    worker.on('failed', (job, error) =>
      note(log.runs, { ...(job ? entry(job) : {}), error: error.message }));
    worker.on('error', () => {});
    await worker.waitUntilReady();
  },
  ran: async (command) => awaited(command, 'runs'),
  started: async (command) => awaited(command, 'started'),
  stop: async (command) => {
    const key = JSON.stringify(['worker', command.package, command.worker]);
    const worker = open.get(key);
    open.delete(key);
    await worker.close(command.force);
    return worker.log.runs;
  },

  // Everything a QueueEvents hears; `heard` waits for one event. From the first event on: what comes
  // before its first read has begun would go unheard.
  listen: async (command) => {
    const events = once('events', command.package, command.queue, ({ QueueEvents }) =>
      new QueueEvents(command.queue, { connection, lastEventId: command.from }));
    events.log = [];
    events.waiters = [];
    const { emit } = events;
    events.emit = function (event, ...args) {
      if (event !== 'error' && !event.includes(':')) {
        events.log.push({ event, ...(args[0] ?? {}) });
        events.waiters = events.waiters.filter((waiter) => !waiter());
      }
      return emit.call(this, event, ...args);
    };
    await events.waitUntilReady();
  },
  heard: async (command) => {
    const events = once('events', command.package, command.queue);
    const there = () => events.log.some(({ event, jobId }) =>
      event === command.event && (command.id === undefined || jobId === command.id));
    if (!there()) {
      await new Promise((resolve) => {
        events.waiters.push(() => there() && (resolve(), true));
      });
    }
    return events.log;
  },

  // Let everything go, so that the next test starts with nothing.
  close: async () => {
    const all = [...open.values()];
    open.clear();
    held.clear();
    await Promise.allSettled(all.map((one) => one.close(one.log !== undefined)));
  },
};

async function awaited(command, list) {
  const { log } = once('worker', command.package, command.worker);
  if (log[list].length < command.count) {
    await new Promise((resolve) => {
      log.waiters.push(() => log[list].length >= command.count && (resolve(), true));
    });
  }
  return log[list];
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const command = { package: 'bullmq', ...JSON.parse(line) };
  let answer;
  try {
    answer = { n: command.n, value: (await verbs[command.verb](command)) ?? null };
  } catch (error) {
    answer = { n: command.n, error: String(error?.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}).on('close', () => process.exit(0));
