// Which command runs which test file, and which of them need the machine for themselves?
import { listFiles } from './helpers/source-tree.ts';

/** What runs a file first: `npm run check`, `npm test`, which runs those of `check` as well, or `npm run test:all`, which runs every file. */
export type Ring = 'check' | 'test' | 'all';

/** Folders, the first that a path begins with counts. */
const FOLDERS: readonly (readonly [folder: string, ring: Ring, why: string])[] = [
  ['test/unit/', 'check', 'pure decisions, and programs that need neither a build nor root'],
  ['test/golden/', 'check', 'bytes against bytes'],
  ['test/protocol/', 'check', 'the runtime against tables'],
  ['test/property/', 'check', 'random configurations and results, a few seconds'],
  ['test/cluster/', 'check', 'the parts of the cluster that need no cluster'],
  ['test/netns/', 'test', 'every behaviour of every plugin on a real kernel'],
  ['test/e2e/', 'test', 'every command, and every runtime'],
  ['test/node/', 'test', 'the library under Node'],
  [
    'test/twin/',
    'all',
    'differences to the reference: they change when the reference or a whole plugin does',
  ],
  ['test/simulator/', 'all', 'every fault at every point of the allocators'],
  ['test/survive/', 'all', 'a fault at every point of ADD, DEL and GC'],
  ['test/storm/', 'all', 'random actors'],
  ['test/soak/', 'all', 'hundreds of attachments'],
  ['test/fuzz/', 'all', 'random inputs'],
];

/** Files that run later than their folder: tables of damages, random questions and great numbers, whose ordinary cases other files have. */
const LATER: Readonly<Record<string, string>> = {
  'test/e2e/bench.test.ts': 'the measuring programs, which change nothing',
  'test/e2e/compare-table.test.ts': 'a table of broken plugins; compare.test.ts has the command',
  'test/e2e/conformance-plugins.test.ts':
    'every plugin, 140 calls each; conformance.test.ts has the command and three plugins',
  'test/e2e/conformance-reference.test.ts':
    'the reference; conformance.test.ts has the command and three plugins',
  'test/e2e/containerd-damages.test.ts':
    'a table of damages; containerd.test.ts and watch.test.ts have the ordinary ones',
  'test/e2e/damages-traffic.test.ts':
    'doctor --traffic on the whole table of damages; doctor-traffic.test.ts has chosen ones',
  'test/e2e/damages.test.ts':
    'the table of damages for three runtimes; doctor-table.test.ts has the ordinary ones',
  'test/e2e/firewall-reloads.test.ts':
    'a table of reloads; netns/firewall-firewalld.test.ts has the ordinary ones',
  'test/e2e/gc-while-adding.test.ts':
    'ADDs at random beside GC; simultaneous.test.ts and netns/garbage.test.ts have chosen ones',
  'test/e2e/podman-damages.test.ts':
    'a table of damages; podman.test.ts and watch.test.ts have the ordinary ones',
  'test/e2e/release.test.ts': 'executables for other machines',
  'test/e2e/swap-faults.test.ts':
    'swaps that fail, eight examinations of a plugin; swap.test.ts has those that do not',
  'test/e2e/why-not-random.test.ts':
    'random rules; why-not.test.ts and why-not-table.test.ts have chosen ones',
  'test/netns/bandwidth-faults.test.ts': 'a fault at every request',
  'test/netns/bridge-faults.test.ts': 'a fault at every request',
  'test/netns/dhcp-many.test.ts': '200 leases at a time; dhcp.test.ts has single ones',
  'test/netns/plugin-faults.test.ts': 'a fault at every request',
  'test/netns/portmap-many.test.ts': '8,000 mappings; portmap.test.ts has a few',
  'test/netns/surroundings.test.ts':
    'random neighbours of our rules; foreign-nat, kernel-defaults and firewall-isolation have chosen ones',
  'test/netns/upper-faults.test.ts': 'a fault at every request',
};

/** Files that run alone, after the others, and why. */
export const ALONE: Readonly<Record<string, string>> = {
  'test/e2e/daemon-limits.test.ts':
    'a hundred clients at once want a sign of life from one daemon within two seconds',
  'test/survive/repairs.test.ts':
    'a repair is ended where an earlier one made a request, which comes at another place if the daemon has to wait for the processor',
};

/** Fast files that render schemas, for which the build needs zod itself. */
export const NEEDS_ZOD: readonly string[] = [
  'test/unit/cli/validate/explain.test.ts',
  'test/unit/cli/foreign/catalog.test.ts',
  'test/unit/plugin/schema/render.test.ts',
  'test/unit/plugins/build/schemas.test.ts',
  'test/unit/reference-json.test.ts',
  'test/property/quick-zod.test.ts',
];

/** Every test file. */
export function testFiles(): string[] {
  return listFiles('test')
    .filter(file => /\.test\.(ts|mjs)$/.test(file))
    .sort();
}

/** The ring of a test file; undefined if no folder has it. */
export function ringOf(file: string): Ring | undefined {
  if (Object.hasOwn(LATER, file)) return 'all';
  return FOLDERS.find(([folder]) => file.startsWith(folder))?.[1];
}

/** Whether the command of one ring runs the files of another. */
export function includes(command: Ring, ring: Ring): boolean {
  const order: readonly Ring[] = ['check', 'test', 'all'];
  return order.indexOf(ring) <= order.indexOf(command);
}

/** Whether the files need `dist/bin`. */
export function needsExecutables(file: string): boolean {
  return ringOf(file) !== 'check' && !file.startsWith('test/simulator/');
}

/** Every file that this table names. */
export const NAMED: readonly string[] = [
  ...[LATER, ALONE].flatMap(table => Object.keys(table)),
  ...NEEDS_ZOD,
];
