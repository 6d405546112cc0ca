// The Node half: a BullMQ worker that greets. Needs `npm install bullmq@5.62.0` beside it.
//
//   PORT=6379 node worker.mjs

import { Worker } from 'bullmq';

const connection = { host: '127.0.0.1', port: Number(process.env.PORT ?? 6379), maxRetriesPerRequest: null };

async function greet(job) {
  await job.updateProgress({ greeting: job.data.name });
  if (!job.data.name) throw new Error('nobody to greet');
  return `¡Hola, ${job.data.name}!`;
}

// The braces are what toril adds by default, so that a cluster keeps the queue in one slot.
const worker = new Worker('{greetings}', greet, { connection, name: 'greeter' });
worker.on('error', (error) => console.error(error));
await worker.waitUntilReady();
console.log('ready');

process.on('SIGTERM', async () => {
  await worker.close();
  process.exit(0);
});
