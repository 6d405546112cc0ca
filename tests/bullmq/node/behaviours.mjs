// What the agent's workers do with a job: (command, bullmq, tools) => processor.

export const behaviours = {
  echo: () => async (job) => job.data,

  size: () => async (job) => JSON.stringify(job.data).length,

  // Fails if it is told to.
  by_data: () => async (job) => {
    if (job.data === 'fail') throw new Error('no');
    return job.data;
  },

  fail: ({ message = 'no' }) => async () => {
    throw new Error(message);
  },

  // Fails until attempt number `attempt`.
  late: ({ attempt, message = 'not yet' }) => async (job) => {
    if (job.attemptsMade + 1 < attempt) throw new Error(message);
    return job.attemptsMade + 1;
  },

  unrecoverable: ({ message = 'never' }, { UnrecoverableError }) => async () => {
    throw new UnrecoverableError(message);
  },

  notes: ({ progress, line }) => async (job) => {
    await job.updateProgress(progress);
    await job.log(line);
    return 'noted';
  },

  // Never ends: only a force-close, or the end of the process, gets rid of it.
  hang: () => () => new Promise(() => {}),

  // Limits the whole queue on the first run of a job.
  limited: ({ ms }, { Worker }, { queue }) => async (job) => {
    if (job.attemptsStarted > 1) return 'let through';
    await queue().rateLimit(ms);
    throw Worker.RateLimitError();
  },

  // Puts a job off on its first run, without an attempt of its own.
  postpone: ({ how, ms = 1 }, { DelayedError, WaitingError, WaitingChildrenError }) => async (job, token) => {
    if (job.attemptsStarted > 1) return 'done';
    if (how === 'delayed') {
      await job.moveToDelayed(Date.now() + ms, token);
      throw new DelayedError();
    }
    if (how === 'waiting') {
      await job.moveToWait(token);
      throw new WaitingError();
    }
    if (await job.moveToWaitingChildren(token)) throw new WaitingChildrenError();
    return 'no children';
  },

  children: () => async (job) => ({
    values: Object.values(await job.getChildrenValues()),
    ignored: Object.values(await job.getIgnoredChildrenFailures()),
  }),
};
