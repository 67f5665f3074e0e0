// Does one set of executables finish what the other has begun, and leave nothing behind?

import { expect, test } from 'bun:test';
import { describeRoot, requires, requiresReference } from '../helpers/skip.ts';
import { PLUGINS } from './mixes.ts';
import {
  EXCEPTIONS,
  renderTakeovers,
  type TakeoverReport,
  takeOver,
  takeovers,
  titleOf,
} from './takeover.ts';

const TAKEOVERS = takeovers();

describeRoot(
  'attachments that change hands',
  () => {
    const reports: TakeoverReport[] = [];

    test.each(TAKEOVERS.map(one => [titleOf(one), one] as const))('[1.0.0] %s', async (_title, takeover) => {
      const report = await takeOver(takeover);
      reports.push(report);
      const { failed, silent, doubled, left, afterGc } = report;
      expect({ failed, silent, doubled, left, afterGc }).toEqual({
        failed: [],
        silent: [],
        doubled: [],
        left: [],
        afterGc: [],
      });
    });

    test.serial('every listed exception occurs', () => {
      if (reports.length < TAKEOVERS.length) return;
      process.stdout.write(renderTakeovers(reports));
      const known = new Set(reports.flatMap(report => report.known));
      expect(EXCEPTIONS.filter(one => !known.has(one)).map(({ reason }) => reason)).toEqual([]);
    });
  },
  requires('ip', 'tc', 'nft', 'iptables', 'ping'),
  requiresReference(...PLUGINS.guarded),
);
