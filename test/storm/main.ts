// Runs a storm: many callers at once on fake nodes, at random, and compares what they were told with what is there.
//
//   npm run storm                             30 minutes, 400 seeds from 1
//   npm run storm -- --minutes 10 --seed 7 --seeds 50 --steps 200 --nodes 6
//   npm run storm -- --only gc,plugins        with these features alone; --without leaves some out
//   npm run storm -- --replay <file>          one history again, ten times or until it shows a violation

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { installTestPackages } from '../helpers/debian.ts';
import { readOptions, refuse } from '../helpers/options.ts';
import { requiresReference, requiresRoot, requiresUpperKind } from '../helpers/skip.ts';
import { FEATURES } from './features.ts';
import type { History, NodeReport } from './history.ts';
import { type Finding, replay, runStorm } from './storm.ts';
import { render } from './table.ts';

const { values } = readOptions({
  options: {
    minutes: { type: 'string', default: '30' },
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '400' },
    steps: { type: 'string', default: '225' },
    nodes: { type: 'string', default: '6' },
    only: { type: 'string' },
    without: { type: 'string', default: '' },
    'shrink-seconds': { type: 'string', default: '120' },
    'stop-after': { type: 'string', default: '1000' },
    'bin-dir': { type: 'string' },
    replay: { type: 'string' },
    times: { type: 'string', default: '10' },
    log: { type: 'boolean', default: false },
    out: { type: 'string', default: path.join(os.tmpdir(), 'catena-storm') },
  },
});
const say = (line: string): void => void fs.writeSync(1, `${line}\n`);
const missing = await installTestPackages();
if (missing !== undefined) say(missing);
const obstacle =
  requiresRoot() ?? requiresReference('bridge', 'host-local', 'portmap') ?? requiresUpperKind('macvlan');
if (obstacle !== undefined) {
  say(`Cannot run the storm: it ${obstacle}`);
  process.exit(1);
}
const unknown = [...split(values.only), ...split(values.without)].filter(name => !isFeature(name));
if (unknown.length) refuse(`There is no "${unknown.join('", "')}"; there are: ${FEATURES.join(', ')}`);
const abort = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => abort.abort());

if (values.replay !== undefined) {
  const history = JSON.parse(fs.readFileSync(values.replay, 'utf8')) as History;
  const report = await replay(history, {
    times: Number(values.times),
    binDir: values['bin-dir'],
    signal: abort.signal,
  });
  for (const line of report?.log ?? []) say(line);
  for (const { rule, text } of report?.violations ?? []) say(`VIOLATION ${rule}: ${text}`);
  process.exit(report?.violations.length === 0 ? 0 : 1);
}

const only = split(values.only);
const left = only.length ? FEATURES.filter(name => !only.includes(name)) : split(values.without);
const first = Number(values.seed);
const report = await runStorm(
  {
    seeds: Array.from({ length: Number(values.seeds) }, (_, i) => first + i),
    steps: Number(values.steps),
    secondsPerSeed: 300,
    minutes: Number(values.minutes),
    nodes: Number(values.nodes),
    without: left,
    shrinkSeconds: Number(values['shrink-seconds']),
    stopAfter: Number(values['stop-after']),
    binDir: values['bin-dir'],
    say,
    verbose: values.log,
    keep: found => save(found),
  },
  abort.signal,
);
say(render(report, saveFinding));
process.exit(report.findings.length === 0 && !abort.signal.aborted ? 0 : 1);

function saveFinding({ rule, first, shrunk }: Finding): string {
  const report = shrunk ? { ...shrunk.report, history: shrunk.history } : first;
  return save(report, `${rule.replaceAll(/\W+/g, '-')}-${first.seed}`);
}

/** The history, and beside it what happened, for a person. */
function save({ seed, history, log, violations }: NodeReport, name = `seed-${seed}`): string {
  fs.mkdirSync(values.out, { recursive: true });
  const file = path.join(values.out, `${name}.json`);
  const found = violations.map(({ rule, text }) => `VIOLATION ${rule}: ${text}`);
  fs.writeFileSync(file, JSON.stringify(history));
  fs.writeFileSync(`${file}.log`, [...log, ...found, ''].join('\n'));
  return file;
}

function split(text = ''): string[] {
  return text.split(',').filter(Boolean);
}

function isFeature(name: string): boolean {
  return (FEATURES as readonly string[]).includes(name);
}
