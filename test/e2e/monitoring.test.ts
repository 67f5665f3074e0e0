// Does Prometheus understand our alerts and the queries of the board, and does each alert come when it should?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { run } from '../helpers/command.ts';
import { PROMTOOL, requiresPromtool } from '../helpers/promtool.ts';
import { describeNeeding } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

const CATENA = path.join(ROOT, 'dist/bin/catena');
const HOUR = 120;

/** By alert, series as promtool takes them (a value, then how it grows each minute), with which it comes within two hours. */
const RAISED: Readonly<Record<string, readonly (readonly [series: string, values: string])[]>> = {
  CatenaRequestsFail: [
    ['catena_requests_total{instance="n1", network="net", verb="ADD", code="0"}', `0+8x${HOUR}`],
    ['catena_requests_total{instance="n1", network="net", verb="ADD", code="11"}', `0+2x${HOUR}`],
  ],
  CatenaRequestsSlow: ['5', '10', '+Inf'].map(le => [
    `catena_request_duration_seconds_bucket{instance="n1", verb="ADD", le="${le}"}`,
    `0+${le === '5' ? 1 : 10}x${HOUR}`,
  ]),
  CatenaAddressesRunOut: [
    ['catena_range_addresses_used{instance="n1", network="net", range="10.0.0.0/24"}', `250x${HOUR}`],
    ['catena_range_addresses{instance="n1", network="net", range="10.0.0.0/24"}', `253x${HOUR}`],
  ],
  CatenaPoolRunsOut: [
    ['catena_pool_blocks_claimed{instance="n1", network="net", pool="p"}', `95x${HOUR}`],
    ['catena_pool_blocks{instance="n1", network="net", pool="p"}', `100x${HOUR}`],
  ],
  CatenaAttachmentsBroken: [['catena_watched_drift{instance="n1", state="given up"}', `2x${HOUR}`]],
  CatenaRecordsLeak: [['catena_leaked_records{instance="n1"}', `1x${HOUR}`]],
  CatenaRoutesMissing: [['catena_node_routes{instance="n1", state="problem"}', `1x${HOUR}`]],
  CatenaDaemonOverloaded: [['catena_declined_total{instance="n1", reason="busy"}', `0+60x${HOUR}`]],
  CatenaDaemonGone: [['catena_build_info{instance="n1"}', `1x60 _x60`]],
};

describeNeeding(
  'monitoring',
  () => {
    test('has alerts that come when they should, and only then', async () => {
      await withRules(async (dir, rules) => {
        await promtool('check', 'rules', rules);
        const names = [...fs.readFileSync(rules, 'utf8').matchAll(/- alert: (\w+)/g)].map(([, name]) => name);
        expect(Object.keys(RAISED)).toEqual(names as string[]);
        const up = ['catena_build_info{instance="n0"}', `1x${HOUR}`] as const;
        const tests = Object.entries(RAISED).map(([name, series]) => {
          const all = name === 'CatenaDaemonGone' ? series : [...series, up];
          const raised = `count(ALERTS{alertstate="firing"}) by (alertname)`;
          return {
            interval: '1m',
            input_series: all.map(([one, values]) => ({ series: one, values })),
            promql_expr_test: [
              {
                expr: raised,
                eval_time: '100m',
                exp_samples: [{ labels: `{alertname="${name}"}`, value: 1 }],
              },
            ],
          };
        });
        fs.writeFileSync(
          path.join(dir, 'tests.json'),
          JSON.stringify({ rule_files: [rules], evaluation_interval: '1m', tests }),
        );
        await promtool('test', 'rules', path.join(dir, 'tests.json'));
      });
    });

    test('has a board whose queries Prometheus understands', async () => {
      await withRules(async dir => {
        const { stdout } = await run([CATENA, 'install', '--print', 'board']);
        const { panels } = JSON.parse(stdout) as { panels: { targets: { expr: string }[] }[] };
        const exprs = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
        expect(exprs.length).toBeGreaterThan(10);
        const rules = exprs.map((expr, i) => ({
          record: `query:${i}`,
          expr: expr.replaceAll('$__rate_interval', '5m').replaceAll('$node', '.*'),
        }));
        const file = path.join(dir, 'queries.json');
        fs.writeFileSync(file, JSON.stringify({ groups: [{ name: 'board', rules }] }));
        await promtool('check', 'rules', file);
      });
    });
  },
  requiresPromtool(),
);

async function withRules(work: (dir: string, rules: string) => Promise<void>): Promise<void> {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-rules-'));
  try {
    const { exitCode, stdout } = await run([CATENA, 'install', '--print', 'alerts']);
    expect(exitCode).toBe(0);
    fs.writeFileSync(path.join(dir, 'alerts.yml'), stdout);
    await work(dir, path.join(dir, 'alerts.yml'));
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}

async function promtool(...args: string[]): Promise<void> {
  const { exitCode, stdout, stderr } = await run([PROMTOOL, ...args]);
  expect({ exitCode, output: exitCode === 0 ? '' : stdout + stderr }).toEqual({ exitCode: 0, output: '' });
}
