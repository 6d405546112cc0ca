// One workload of @platformatic/job-queue on its file storage; prints one line of JSON. The package
// is looked up in the directory that TORIL_PEER_DIR names, which the benchmark fills with npm.
//
//   node job_queue.mjs life <directory> <jobs> <callers>

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const home = join(process.env.TORIL_PEER_DIR, 'node_modules', '@platformatic', 'job-queue');
const { FileStorage, Queue } = await import(pathToFileURL(join(home, 'dist', 'index.js')));

const [, directory] = process.argv.slice(2);
const [jobs, callers] = process.argv.slice(4).map(Number);

function payload(n) {
  const number = String(n).padStart(6, '0');
  return { to: `user-${number}@example.com`, subject: 'Your invoice', amount: 12.5, tags: ['a', 'b'], n };
}

const storage = new FileStorage({ basePath: directory });
const logger = Object.fromEntries(['trace', 'debug', 'info', 'warn', 'error', 'fatal'].map((level) => [level, () => {}]));
logger.child = () => logger;
const queue = new Queue({ storage, concurrency: callers, logger });
let done = 0;
const over = new Promise((resolve) => {
  queue.on('completed', () => {
    done += 1;
    if (done === jobs) resolve();
  });
});
queue.execute(async (job) => job.payload.n);
await queue.start();
const begun = process.hrtime.bigint();
await Promise.all(
  Array.from({ length: callers }, async (_, lane) => {
    for (let n = lane; n < jobs; n += callers) await queue.enqueue(`job-${n}`, payload(n));
  }),
);
await over;
const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
process.stdout.write(`${JSON.stringify({ jobs, seconds })}\n`);
process.exit(0);
