// How long does a plugin's process take to answer, compared with an empty program and with the reference's, and to load its modules?
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AS_FLAG, PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import { CORE_NAME } from '../../src/cni/directories.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { type Contestant, differences, quantile, type Samples, takeTurns, timed } from './measure.ts';

/** Plugins that Debian's package of the reference (1.1.1) does not contain: some are newer, others belong to other projects. */
const ABSENT: readonly string[] = ['cluster', 'dummy', 'flannel', 'tap', 'whereabouts'];

/** Our plugins that are also in the reference's package. */
export const REFERENCE_NAMES = PLUGIN_NAMES.filter(name => !ABSENT.includes(name));

/** Names of ours without a counterpart there. */
export const OTHER_NAMES = [...ABSENT, RUNNER_NAME];

/** Times VERSION of every plugin; `empty` is an empty program compiled like ours, `loaded` a plugin that loads what every verb loads. */
export async function measureStart(rounds: number): Promise<Samples> {
  return await withEmptyProgram(empty => {
    const contestants = [
      versionOf('empty', [empty]),
      ...REFERENCE_NAMES.flatMap(name => [
        versionOf(`ours ${name}`, [join(BIN_DIR, name)]),
        versionOf(`reference ${name}`, [join(REFERENCE_BIN_DIR, name)]),
      ]),
      ...OTHER_NAMES.map(name => versionOf(`ours ${name}`, [join(BIN_DIR, name)])),
      ...PLUGIN_NAMES.map(loadingOf),
    ];
    return takeTurns(contestants, rounds);
  });
}

/** Milliseconds that loading a plugin takes more than an empty program: the rest of a cold call is the work itself. */
export function loadingMs(samples: Samples, plugin: string): number {
  return quantile(differences(samples.get(`loaded ${plugin} VERSION`), samples.get('empty VERSION')));
}

/** Runs the body with an empty program compiled like ours. */
export async function withEmptyProgram<T>(body: (program: string) => Promise<T>): Promise<T> {
  const dir = mkdtempSync(join(tmpdir(), 'cat-bench-'));
  try {
    return await body(await compileEmptyProgram(dir));
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** Times VERSION of a program. */
export function versionOf(name: string, argv: string[]): Contestant {
  const env = {
    PATH: process.env.PATH ?? '',
    CNI_COMMAND: 'VERSION',
    CNI_NETNS: 'x',
    CNI_IFNAME: 'x',
    CNI_PATH: 'x',
  };
  const stdin = Buffer.from('{"cniVersion":"1.0.0"}');
  return { name, round: async () => ({ VERSION: await timed(() => Bun.spawnSync(argv, { env, stdin })) }) };
}

/** Times VERSION of a plugin of ours without a front, under `loaded <plugin>`: it loads what every verb does. */
export function loadingOf(plugin: string): Contestant {
  return versionOf(`loaded ${plugin}`, [join(BIN_DIR, CORE_NAME), AS_FLAG, plugin]);
}

async function compileEmptyProgram(dir: string): Promise<string> {
  const [entry, outfile] = [join(dir, 'empty.ts'), join(dir, 'empty')];
  writeFileSync(entry, 'export {};\n');
  const built = await Bun.build({
    entrypoints: [entry],
    compile: { outfile },
    minify: true,
    bytecode: true,
    format: 'esm',
  });
  if (!built.success) throw new AggregateError(built.logs, 'Cannot compile an empty program');
  return outfile;
}
