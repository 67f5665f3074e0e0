// Lets thousands of attachments come and go, and prints what the process and the host hold in between and at the end.
//
//   npm run soak                     5,000 attachments of bridge with host-local, then as many of all five plugins
//   npm run soak -- --lives 500      fewer
//   npm run soak -- --churn 10000    requests through a daemon; the daemon and its workers are killed now and then
//   npm run soak -- --churn 10000 --kill-every 0    the same without kills: does the daemon grow?

import { readOptions } from '../helpers/options.ts';
import { requiresRoot } from '../helpers/skip.ts';
import { findFaults, runChurn } from './churn.ts';
import { render, renderChurn } from './render.ts';
import { findLeaks, runSoak } from './soak.ts';

const { values } = readOptions(
  {
    options: {
      lives: { type: 'string', default: '5000' },
      churn: { type: 'string' },
      'kill-every': { type: 'string', default: '500' },
    },
  },
  'churn',
);
const obstacle = requiresRoot();
if (obstacle !== undefined) {
  process.stderr.write(`Cannot run the soak: it ${obstacle}\n`);
  process.exit(1);
}

const lives = Number(values.lives);
let failed = false;
if (values.churn !== undefined) {
  const report = await runChurn({
    requests: Number(values.churn),
    killEveryMs: Number(values['kill-every']),
    seed: Date.now(),
  });
  process.stdout.write(renderChurn(report));
  process.exit(findFaults(report).length ? 1 : 0);
}
for (const name of ['bridge', 'chain'] as const) {
  const report = await runSoak(name, lives, Math.max(25, Math.ceil(lives / 10)));
  process.stdout.write(`${render(report)}\n`);
  failed ||= findLeaks(report).length > 0;
}
process.exit(failed ? 1 : 0);
