// Is every attachment in its reported state after a very large number of them, with workers and daemons killed all the time?

import { findFaults, runChurn } from '../soak/churn.ts';
import { renderChurn } from '../soak/render.ts';
import type { Section } from './section.ts';

/**
 * For 20,300 attachments. Each takes 2.21 requests: its ADD, of which 1 in 100 fails because a process was killed; its DEL, of
 * which 1 in 50 does; and CHECKs, which are 15 of 100 requests between the two (0.15 / 0.85).
 */
const REQUESTS = 45_000;
const SHORT_REQUESTS = 150;

/** The full chain through a daemon, as a runtime on a busy node uses it. */
export const churn: Section = {
  name: 'churn',
  counts: 'attachments churned',
  async run({ short }) {
    const requests = short ? SHORT_REQUESTS : REQUESTS;
    const report = await runChurn({ requests, killEveryMs: short ? 300 : 750, seed: Date.now() });
    const { asked = 0, failed = 0 } = report.verbs.add ?? {};
    return { tried: asked - failed, table: renderChurn(report), wrong: findFaults(report) };
  },
};
