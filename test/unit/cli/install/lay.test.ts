// Is every file whole, old or new, wherever an installation is cut off, and can it be finished or reverted?
import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { install, uninstall } from '../../../../src/cli/install/lay.ts';
import type { InstallOptions } from '../../../../src/cli/install/plan.ts';
import { readCandidates } from '../../../../src/cli/runtimes/rules.ts';
import { run } from '../../../helpers/command.ts';

const KILLED = join(import.meta.dir, '../../../fixtures/install-killed.ts');
const NAMES = ['catena', 'bridge', 'portmap'];
const MOST_STEPS = 80;

const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-install-'));
afterAll(() => fs.rmSync(tmp, { recursive: true }));

const LIST = (mtu: number) =>
  `${JSON.stringify({ cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'bridge', mtu }] })}\n`;

let count = 0;

/** Directories in which others have a `bridge` and a network. */
function makePlaces() {
  const root = join(tmp, String(count++));
  const places = { binDir: join(root, 'bin'), confDir: join(root, 'net.d') };
  for (const dir of Object.values(places)) fs.mkdirSync(dir, { recursive: true });
  fs.writeFileSync(join(places.binDir, 'bridge'), 'foreign', { mode: 0o755 });
  fs.writeFileSync(join(places.confDir, '50-other.conflist'), LIST(1));
  return places;
}

function wantedIn(
  places: { binDir: string; confDir: string },
  version: number,
  more: Partial<InstallOptions> = {},
): InstallOptions {
  const source = join(tmp, `executable-${version}`);
  fs.writeFileSync(source, `executable ${version}`);
  return {
    source,
    names: NAMES,
    ...places,
    force: true,
    conf: { name: `${version}0-net.conflist`, text: LIST(version) },
    ...more,
  };
}

/** Everything in both directories: content by name. */
function contents({ binDir, confDir }: { binDir: string; confDir: string }): Record<string, string> {
  const files = [binDir, confDir].flatMap(dir => fs.readdirSync(dir).map(name => join(dir, name)));
  return Object.fromEntries(files.sort().map(file => [file, fs.readFileSync(file, 'utf8')]));
}

const killed = async (verb: string, step: number, wanted: InstallOptions) =>
  (await run([process.execPath, KILLED, verb, String(step), JSON.stringify(wanted)])).exitCode !== 0;

/** What every user may see at any moment. */
async function expectWhole(wanted: InstallOptions, before: Record<string, string>): Promise<void> {
  const now = contents(wanted);
  const fresh = fs.readFileSync(wanted.source, 'utf8');
  for (const name of NAMES) {
    const path = join(wanted.binDir, name);
    expect([before[path], fresh]).toContain(now[path]);
  }
  const conf = join(wanted.confDir, wanted.conf?.name ?? '');
  expect([before[conf], wanted.conf?.text]).toContain(now[conf]);
  // No network without its plugins.
  if (now[conf] !== undefined) for (const name of NAMES) expect(now[join(wanted.binDir, name)]).toBe(fresh);
  const seen = (await readCandidates(wanted.confDir)).filter(({ extension }) => extension);
  expect(seen.filter(({ broken }) => broken)).toEqual([]);
  const allowed = [...Object.keys(before), conf].map(path => path.split('/').at(-1));
  expect(seen.filter(({ name }) => !allowed.includes(name))).toEqual([]);
}

/** Kills at each step in turn; returns how many there are. */
async function killEverywhere(
  verb: 'install' | 'uninstall',
  prepare: () => InstallOptions,
  judge: (wanted: InstallOptions, before: Record<string, string>) => Promise<void>,
): Promise<number> {
  for (let step = 1; step < MOST_STEPS; step++) {
    const wanted = prepare();
    const before = contents(wanted);
    if (!(await killed(verb, step, wanted))) return step - 1;
    await judge(wanted, before);
  }
  throw new Error('Cannot see an end of the steps');
}

describe('install()', () => {
  test('installs one file under all names, then the list; twice has the same outcome', () => {
    const wanted = wantedIn(makePlaces(), 1);
    const { steps } = install(wanted);
    expect(steps.map(({ name, action }) => [name, action])).toEqual([
      ['catena', 'create'],
      ['bridge', 'replace'],
      ['portmap', 'create'],
      ['10-net.conflist', 'create'],
    ]);
    const inodes = NAMES.map(name => fs.statSync(join(wanted.binDir, name)).ino);
    expect(new Set(inodes).size).toBe(1);
    expect(fs.statSync(join(wanted.binDir, 'bridge')).mode & 0o777).toBe(0o755);
    const beside = join(wanted.binDir, 'bridge.before-catena');
    expect(fs.readFileSync(beside, 'utf8')).toBe('foreign');
    const again = install(wanted);
    expect(new Set(again.steps.map(({ action }) => action))).toEqual(new Set(['same']));
    // What another package lays later is replaced as well, but the file from before the first installation is the one kept.
    fs.rmSync(join(wanted.binDir, 'bridge'));
    fs.writeFileSync(join(wanted.binDir, 'bridge'), 'later');
    install(wanted);
    expect(fs.readFileSync(beside, 'utf8')).toBe('foreign');
  });

  test('keeps third-party files, unless asked to replace them', () => {
    const wanted = wantedIn(makePlaces(), 1, { force: false });
    fs.writeFileSync(join(wanted.confDir, '10-net.conflist'), LIST(7));
    const kept = install(wanted).steps.filter(({ action }) => action === 'keep');
    expect(kept.map(({ name, why }) => [name, why])).toEqual([
      ['bridge', 'it belongs to another package; --force replaces it'],
      ['10-net.conflist', 'it belongs to another package; --force replaces it'],
    ]);
    expect(contents(wanted)).toMatchObject({ [join(wanted.binDir, 'bridge')]: 'foreign' });
  });

  test('replaces its own older files, and removes a list that was renamed', () => {
    const places = makePlaces();
    install(wantedIn(places, 1));
    const { steps } = install(wantedIn(places, 2, { force: false }));
    expect(steps.map(({ name, action }) => [name, action])).toEqual([
      ['catena', 'update'],
      ['bridge', 'update'],
      ['portmap', 'update'],
      ['20-net.conflist', 'create'],
      ['10-net.conflist', 'retire'],
    ]);
    expect(fs.readdirSync(places.confDir).sort()).toEqual(['20-net.conflist', '50-other.conflist']);
  });

  test('leaves the list of another network, and an uninstallation removes both', () => {
    const places = makePlaces();
    const text = LIST(1).replace('"net"', '"two"');
    install(wantedIn(places, 1));
    install(wantedIn(places, 1, { conf: { name: '20-two.conflist', text } }));
    const others = ['50-other.conflist'];
    expect(fs.readdirSync(places.confDir).sort()).toEqual(['10-net.conflist', '20-two.conflist', ...others]);
    uninstall(wantedIn(places, 1));
    expect(fs.readdirSync(places.confDir)).toEqual(others);
  });

  test('keeps a changed file that starts the daemon where no uninstallation puts it back', () => {
    const places = makePlaces();
    const starter = join(places.binDir, 'starter');
    const laid = (...starters: { path: string; text: string }[]) =>
      install(wantedIn(places, 1, { force: false, starters }));
    for (const edit of ['first', 'second']) {
      laid({ path: starter, text: 'start\n' });
      fs.appendFileSync(starter, edit);
      expect(laid().steps.find(({ path }) => path === starter)?.why).toEndWith('the suffix ".edited"');
      expect([fs.existsSync(starter), fs.readFileSync(`${starter}.edited`, 'utf8')]).toEqual([
        false,
        `start\n${edit}`,
      ]);
    }
    laid({ path: starter, text: 'start\n' });
    fs.appendFileSync(starter, 'third');
    const forced = { force: true, starters: [{ path: starter, text: 'start\n' }] };
    install(wantedIn(places, 1, forced));
    expect([starter, `${starter}.edited`].map(file => fs.readFileSync(file, 'utf8'))).toEqual([
      'start\n',
      'start\nthird',
    ]);
    uninstall(wantedIn(places, 1));
    expect(fs.readdirSync(places.binDir).sort()).toEqual(['bridge', 'starter.edited']);
  });

  test('treats a file that was changed since as a third-party file', () => {
    const places = makePlaces();
    install(wantedIn(places, 1));
    fs.rmSync(join(places.binDir, 'portmap'));
    fs.writeFileSync(join(places.binDir, 'portmap'), 'swapped');
    const { steps } = install(wantedIn(places, 2, { force: false }));
    expect(steps.find(({ name }) => name === 'portmap')).toMatchObject({
      action: 'keep',
      why: 'it was changed after it was installed; --force replaces it',
    });
  });

  test('leaves whole files when killed before any step; install then finishes and uninstall reverts', async () => {
    const pristine = new Map<string, Record<string, string>>();
    const steps = await killEverywhere(
      'install',
      () => {
        const wanted = wantedIn(makePlaces(), 1);
        pristine.set(wanted.binDir, contents(wanted));
        return wanted;
      },
      async (wanted, before) => {
        await expectWhole(wanted, before);
        const half = join(tmp, `half-${count++}`);
        fs.cpSync(join(wanted.binDir, '..'), half, { recursive: true });
        install(wanted);
        for (const name of NAMES)
          expect(fs.readFileSync(join(wanted.binDir, name), 'utf8')).toBe('executable 1');
        uninstall(wanted);
        expect(contents(wanted)).toEqual(pristine.get(wanted.binDir) ?? {});
        const other = { ...wanted, binDir: join(half, 'bin'), confDir: join(half, 'net.d') };
        uninstall(other);
        expect(Object.values(contents(other))).toEqual(Object.values(pristine.get(wanted.binDir) ?? {}));
      },
    );
    expect(steps).toBeGreaterThan(15);
  });

  test('leaves each file old or new when killed while it replaces an older version', async () => {
    const steps = await killEverywhere(
      'install',
      () => {
        const places = makePlaces();
        install(wantedIn(places, 1));
        return wantedIn(places, 2);
      },
      async (wanted, before) => {
        await expectWhole(wanted, before);
        install(wanted);
        expect(fs.readdirSync(wanted.confDir).sort()).toEqual(['20-net.conflist', '50-other.conflist']);
        uninstall(wanted);
        expect(fs.readdirSync(wanted.binDir)).toEqual(['bridge']);
      },
    );
    expect(steps).toBeGreaterThan(15);
  });
});

describe('uninstall()', () => {
  test('keeps files that are no longer ours, and says so', () => {
    const wanted = wantedIn(makePlaces(), 1);
    install(wanted);
    fs.rmSync(join(wanted.binDir, 'portmap'));
    fs.writeFileSync(join(wanted.binDir, 'portmap'), 'swapped');
    const steps = uninstall(wanted);
    expect(steps.map(({ path, action }) => [path.split('/').at(-1), action])).toEqual([
      ['10-net.conflist', 'remove'],
      ['catena', 'remove'],
      ['bridge', 'restore'],
      ['portmap', 'keep'],
    ]);
    expect(fs.readdirSync(wanted.binDir).sort()).toEqual(['bridge', 'portmap']);
    expect(uninstall(wanted)).toEqual([]);
  });

  test('recognises copied executables by their content', () => {
    const wanted = wantedIn(makePlaces(), 1);
    fs.copyFileSync(wanted.source, join(wanted.binDir, 'portmap'));
    expect(uninstall(wanted)).toEqual([{ path: join(wanted.binDir, 'portmap'), action: 'remove' }]);
  });

  test('can be repeated when killed before any step, and then restores the old state', async () => {
    const pristine = new Map<string, Record<string, string>>();
    await killEverywhere(
      'uninstall',
      () => {
        const wanted = wantedIn(makePlaces(), 1);
        pristine.set(wanted.binDir, contents(wanted));
        install(wanted);
        return wanted;
      },
      async wanted => {
        uninstall(wanted);
        expect(contents(wanted)).toEqual(pristine.get(wanted.binDir) ?? {});
      },
    );
  });
});

test('a list is for root alone, and a file that is replaced keeps its mode', () => {
  const places = makePlaces();
  const modeOf = (name: string) => fs.statSync(join(places.confDir, name)).mode & 0o777;
  fs.writeFileSync(join(places.confDir, '20-net.conflist'), LIST(7), { mode: 0o640 });
  install(wantedIn(places, 1));
  expect(modeOf('10-net.conflist')).toBe(0o600);
  install(wantedIn(places, 2));
  expect(modeOf('20-net.conflist')).toBe(0o640);
});

test('a list that the disk holds only in part is an error, and the file that was there stays', async () => {
  const places = makePlaces();
  const text = `${LIST(1).trimEnd()}${' '.repeat(9000)}\n`;
  const file = join(places.confDir, '10-net.conflist');
  fs.writeFileSync(file, text);
  const wanted = wantedIn(places, 1, { conf: { name: '10-net.conflist', text: text.replace('1}', '2}') } });
  // A file may have 4,096 bytes: a longer one is written up to there, and only the next write says why.
  const limited = `trap '' XFSZ; ulimit -f 8; exec "$@"`;
  const { exitCode, stderr } = await run([
    ...['sh', '-c', limited, 'sh', process.execPath, KILLED, 'install', '1000', JSON.stringify(wanted)],
  ]);
  expect([exitCode === 0, stderr]).toEqual([false, expect.stringContaining('EFBIG')]);
  expect(fs.readFileSync(file, 'utf8')).toBe(text);
});
