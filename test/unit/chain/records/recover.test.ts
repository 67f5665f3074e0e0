import { afterEach, beforeEach, describe, expect, spyOn, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { listEntries, writeEntry } from '../../../../src/attachments/entries.ts';
import { noteGeneration } from '../../../../src/attachments/generation.ts';
import { endRunner, isBeingRemoved, startRunner } from '../../../../src/attachments/lock.ts';
import {
  begunAdd,
  createNote,
  dropRecord,
  findLaterAdd,
  type Intent,
  readRecord,
  writeNote,
} from '../../../../src/attachments/notes.ts';
import { hold } from '../../../../src/attachments/store.ts';
import { collectGarbage, planGarbage } from '../../../../src/chain/records/collect-garbage.ts';
import { deleteHeld } from '../../../../src/chain/records/delete-attachment.ts';
import { deleteUnsettled, recover, settleEarlierAdd } from '../../../../src/chain/records/recover.ts';
import { repair } from '../../../../src/chain/records/repair.ts';
import { addNetwork, checkNetwork, deleteNetwork } from '../../../../src/chain/run/run.ts';
import {
  type Attachment,
  type ChainRuntime,
  holdCall,
  type Runtime,
} from '../../../../src/chain/run/runtime.ts';
import type { Exec } from '../../../../src/chain/run/segment.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import {
  bootId,
  isOfEarlierBoot,
  isRunning,
  processOf,
  readRunningStat,
  thisProcess,
} from '../../../../src/files/process-stat.ts';
import { identifyNetns } from '../../../../src/sys/netns-identity.ts';
import { filesBelow, intentOf, mustClaim, settle as settled, withoutOurs } from '../../../helpers/journal.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';
import { ROOT } from '../../../helpers/source-tree.ts';
import { untilStarted } from '../../../helpers/until.ts';

let chain: NoopChain;
let runtime: Runtime & { stateDir: string; cacheDir: string };
beforeEach(() => {
  chain = makeNoopChain();
  runtime = { ...chain.runtime, stateDir: path.join(chain.dir, 'state') };
});
afterEach(() => chain.dispose());

const LABELS = ['one', 'two', 'three'];
const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const other: Attachment = { ...ATTACHMENT, containerId: 'c2' };
const record = (containerId = 'c1') => readRecord(runtime.stateDir, { ...ID, containerId });
const ips = (address: string): JsonObject => ({ cniVersion: '1.1.0', ips: [{ address }] });
const threePlugins = (scripts: Readonly<Record<string, JsonObject>> = {}) =>
  listOf(
    '1.1.0',
    LABELS.map((label, i) =>
      chain.noop(label, { ReportResult: ips(`10.1.0.${i + 1}/24`), ...scripts[label] }),
    ),
  );
/** What is left of anything: notes and entries. */
const leftovers = () => [
  ...filesBelow(path.join(runtime.stateDir, 'unsettled')),
  ...listEntries(runtime.cacheDir).entries,
];

/** Runs a verb in a process of its own. @returns what it printed */
async function inProcess(verb: string, source: string, more: JsonObject = {}): Promise<string> {
  const argument = JSON.stringify({ verb, source, attachment: ATTACHMENT, runtime, ...more });
  const argv = [process.execPath, path.join(ROOT, 'test/fixtures/run-chain.ts'), argument];
  const child = Bun.spawn(argv, { stdout: 'pipe', stderr: 'inherit', env: { ...process.env } });
  const [stdout] = await Promise.all([child.stdout.text(), child.exited]);
  return stdout.trim();
}

describe('addNetwork() with a journal', () => {
  test('leaves an entry with all that the next command needs, and no note', async () => {
    const args = [['K8S_POD_NAME', 'p']] as const;
    const attachment = { ...ATTACHMENT, netns: '/proc/self/ns/net', args, capabilityArgs: { mac: 'x' } };
    const list = threePlugins();
    await addNetwork(list, attachment, { ...runtime, owner: 'me' });
    const { dev, ino } = fs.statSync('/proc/self/ns/net');
    expect(record()).toMatchObject({
      ...ID,
      netns: '/proc/self/ns/net',
      netnsIdentity: `${dev}:${ino}`,
      owner: 'me',
      args: [['K8S_POD_NAME', 'p']],
      capabilityArgs: { mac: 'x' },
      source: list.source,
      pluginDirs: runtime.pluginDirs,
      executables: Array(3).fill(path.join(runtime.pluginDirs[0] ?? '', 'noop')),
      phase: 'attached',
      result: ips('10.1.0.3/24'),
    });
    expect(filesBelow(path.join(runtime.stateDir, 'unsettled'))).toEqual([]);
  });

  test('undoes itself, and not in the other namespace, when the path leads to another one at its end', async () => {
    const netns = path.join(chain.dir, 'netns');
    fs.writeFileSync(netns, 'one');
    const exec: Exec = ({ env, request }) => {
      seen.push(`${env.CNI_COMMAND} ${JSON.parse(request).label} ${env.CNI_NETNS}`);
      if (env.CNI_COMMAND === 'ADD' && seen.length === 2) {
        fs.writeFileSync(`${netns}.new`, 'other');
        fs.renameSync(`${netns}.new`, netns);
      }
      return { stdout: JSON.stringify(ips('10.1.0.2/24')) };
    };
    const seen: string[] = [];
    await expect(
      addNetwork(threePlugins(), { ...ATTACHMENT, netns }, { ...runtime, exec }),
    ).rejects.toMatchObject({
      code: 11,
      message: `Cannot add container "c1": "${netns}" was replaced by another namespace while plugins ran; call ADD again`,
    });
    expect(seen).toEqual([
      ...LABELS.map(label => `ADD ${label} ${netns}`),
      ...LABELS.toReversed().map(label => `DEL ${label} `),
    ]);
    expect(leftovers()).toEqual([]);
  });

  test('says what is in the way of an ADD over an earlier one, of which nothing is undone', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, stateDir: undefined });
    fs.mkdirSync(runtime.stateDir);
    fs.writeFileSync(path.join(runtime.stateDir, 'caches'), '');
    await expect(addNetwork(threePlugins(), ATTACHMENT, runtime)).rejects.toMatchObject({
      code: 5,
      message: expect.stringMatching(
        /^Cannot note where entries are in ".*caches.*; use another path, or move away what is at that one$/,
      ),
    });
  });

  describe('whose names are too long for the name of an entry', () => {
    const long = { ...ATTACHMENT, containerId: 'c'.repeat(242) };
    const bytes = 'testnet--eth0'.length + 243;

    test.each(['with', 'without'])('is refused before anything begins, %s a journal', async how => {
      const { stateDir: _, ...bare } = runtime;
      const id = { ...long, containerId: `${long.containerId}c` };
      await expect(addNetwork(threePlugins(), id, how === 'with' ? runtime : bare)).rejects.toMatchObject({
        code: 7,
        message: expect.stringContaining(
          `a file name of ${bytes} bytes is longer than 255; choose a shorter name`,
        ),
      });
      expect(chain.order()).toEqual([]);
      expect(leftovers()).toEqual([]);
      await addNetwork(threePlugins(), long, runtime);
      await deleteNetwork(threePlugins(), long, runtime);
      expect(leftovers()).toEqual([]);
    });

    test('is deleted by DEL, and by recovery if an earlier release has noted it', async () => {
      const containerId = `${long.containerId}c`;
      fs.mkdirSync(path.join(runtime.cacheDir, 'results'), { recursive: true });
      await deleteNetwork(threePlugins(), { ...long, containerId }, runtime);
      expect(chain.order()).toHaveLength(3);
      const intent = intentOf({ containerId, cacheDir: runtime.cacheDir, source: threePlugins().source });
      createNote(runtime.stateDir, intent, 2);
      endRunner(intent.runner);
      const recovered = await recover({ all: true }, runtime);
      expect(recovered.map(({ error }) => error)).toEqual([undefined]);
      expect(chain.order()).toHaveLength(6);
      expect(leftovers()).toEqual([]);
    });
  });

  test('keeps no record without a directory', async () => {
    const { stateDir: _, ...bare } = runtime;
    await addNetwork(threePlugins(), ATTACHMENT, bare);
    expect(filesBelow(runtime.stateDir)).toEqual([]);
  });

  test('starts no plugin when the record cannot be written', async () => {
    fs.writeFileSync(runtime.stateDir, '');
    await expect(addNetwork(threePlugins(), ATTACHMENT, runtime)).rejects.toMatchObject({ code: 5 });
    expect(chain.order()).toEqual([]);
  });

  test('deletes the record of an ADD that was undone', async () => {
    const list = threePlugins({ two: { ReportResult: 'no result' } });
    await expect(addNetwork(list, ATTACHMENT, runtime)).rejects.toThrow('Cannot decode');
    expect(leftovers()).toEqual([]);
  });

  test('reports the first failure even if the record can no longer be written', async () => {
    const list = threePlugins({ two: { ReportResult: 'no result' } });
    const onPlugin = () =>
      fs.rmSync(path.join(runtime.stateDir, 'unsettled'), { recursive: true, force: true });
    await expect(addNetwork(list, ATTACHMENT, { ...runtime, onPlugin: onPlugin })).rejects.toThrow(
      'Cannot decode',
    );
    expect(chain.order().slice(2)).toEqual(['DEL two', 'DEL one']);
  });

  test('keeps the record of an ADD that could not be undone, until it can be', async () => {
    const list = threePlugins({ one: { ReportError: '' }, two: { ReportError: 'stuck' } });
    await expect(addNetwork(list, ATTACHMENT, runtime)).rejects.toThrow('stuck');
    expect(record()).toMatchObject({
      phase: 'failed',
      attempts: 1,
      lastErrors: [{ msg: 'stuck', plugin: 'noop', index: 1 }],
    });
    chain.rescript('two', {});
    expect(await recover({ all: true }, runtime)).toMatchObject([
      { ...ID, why: 'its DEL failed once: stuck' },
    ]);
    // The third plugin never began.
    expect(chain.order().slice(4)).toEqual(['DEL two', 'DEL one']);
    expect(leftovers()).toEqual([]);
  });

  test('keeps the record of an existing attachment until it has succeeded', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, runtime);
    chain.rescript('two', { ReportError: 'already there' });
    await expect(addNetwork(list, ATTACHMENT, runtime)).rejects.toMatchObject({
      details: expect.stringContaining(`an earlier ADD is recorded in "${record()?.file}"`),
    });
    expect(record()).toMatchObject({ phase: 'attached', result: ips('10.1.0.3/24') });
    expect(chain.order().filter(call => call.startsWith('DEL'))).toEqual([]);
    chain.rescript('two', {});
    await addNetwork(list, { ...ATTACHMENT, args: [['NEW', '1']] }, runtime);
    expect(record()?.args).toEqual([['NEW', '1']]);
  });

  test('first detaches from a namespace that is gone', async () => {
    const list = threePlugins();
    const netns = path.join(chain.dir, 'netns');
    fs.writeFileSync(netns, '');
    await addNetwork(list, { ...ATTACHMENT, netns }, runtime);
    fs.rmSync(netns);
    await addNetwork(list, ATTACHMENT, runtime);
    expect(chain.order()).toEqual([
      ...LABELS.map(label => `ADD ${label}`),
      ...LABELS.toReversed().map(label => `DEL ${label}`),
      ...LABELS.map(label => `ADD ${label}`),
    ]);
  });

  test('refuses a second namespace while the first one is there', async () => {
    const list = threePlugins();
    const [netns, second] = ['a', 'b'].map(name => path.join(chain.dir, name)) as [string, string];
    for (const file of [netns, second]) fs.writeFileSync(file, '');
    await addNetwork(list, { ...ATTACHMENT, netns }, runtime);
    await expect(addNetwork(list, { ...ATTACHMENT, netns: second }, runtime)).rejects.toMatchObject({
      code: 8,
      message: expect.stringContaining(`it is attached in namespace "${netns}"; run DEL first`),
    });
    expect(record()).toMatchObject({ netns, phase: 'attached' });
    expect(chain.order()).toEqual(LABELS.map(label => `ADD ${label}`));
  });

  test('gives a damaged note up, and says so', async () => {
    const file = path.join(runtime.stateDir, 'unsettled/testnet/c1:eth0');
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, '\0\0');
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, onWarning });
    expect(warnings).toContain(`Cannot read note "${file}": it is not a JSON object`);
    expect(record()?.phase).toBe('attached');
  });
});

describe('a runner that dies during ADD', () => {
  const points = LABELS.flatMap((label, index) => [
    {
      when: `while plugin ${index + 1} works`,
      index,
      scripts: { [label]: { KillRunner: ['ADD'] } },
      more: {},
    },
    { when: `after plugin ${index + 1}`, index, scripts: {}, more: { dieAfter: index } },
  ]);

  test.each(points)('$when: the next ADD of the network undoes it', async ({ index, scripts, more }) => {
    const { source } = threePlugins(scripts);
    expect(await inProcess('ADD', source, more)).toBe('');
    expect(record()?.phase).toBe('adding');
    const added = chain.order().length;
    for (const label of LABELS) chain.rescript(label, {});

    await addNetwork(threePlugins(), other, runtime);
    const undone = LABELS.slice(0, index + 1).toReversed();
    expect(chain.order().slice(added)).toEqual([
      ...undone.map(label => `DEL ${label}`),
      ...LABELS.map(label => `ADD ${label}`),
    ]);
    expect(record()).toBeUndefined();
    await deleteNetwork(threePlugins(), other, runtime);
    expect(leftovers()).toEqual([]);
  });

  test('is undone first by its own next ADD, with the configuration of that time', async () => {
    const { source } = threePlugins({ two: { KillRunner: ['ADD'] } });
    await inProcess('ADD', source);
    chain.rescript('two', {});
    const today = listOf('1.1.0', [chain.noop('four')]);
    await addNetwork(today, ATTACHMENT, runtime);
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one', 'ADD four']);
  });

  test('is undone by its own DEL, which runs every plugin with the partial result', async () => {
    const { source } = threePlugins({ two: { KillRunner: ['ADD'] } });
    await inProcess('ADD', source);
    chain.rescript('two', {});
    await deleteNetwork(listOf('1.1.0', [chain.noop('four')]), ATTACHMENT, runtime);
    expect(chain.order().slice(2)).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(chain.calls().at(-1)?.request.prevResult).toEqual(ips('10.1.0.1/24'));
    expect(leftovers()).toEqual([]);
  });

  test('has its attachment refused by CHECK', async () => {
    await inProcess('ADD', threePlugins({ one: { KillRunner: ['ADD'] } }).source);
    await expect(checkNetwork(threePlugins(), ATTACHMENT, runtime)).rejects.toMatchObject({ code: 3 });
  });

  test('leaves a plugin running, which ends first', async () => {
    const end = path.join(chain.dir, 'end');
    const { source } = threePlugins({ two: { KillRunner: ['ADD'], WaitFor: end } });
    await inProcess('ADD', source);
    chain.rescript('two', {});
    const recovering = recover({ all: true }, runtime);
    await Bun.sleep(300);
    expect(chain.order()).toEqual(['ADD one', 'ADD two']);
    fs.writeFileSync(end, '');
    expect(await recovering).toMatchObject([{ ...ID, why: 'its ADD was interrupted' }]);
    expect(chain.order().slice(2)).toEqual(['DEL two', 'DEL one']);
  });

  test('has its plugins found where the ADD found them', async () => {
    await inProcess('ADD', threePlugins({ two: { KillRunner: ['ADD'] } }).source);
    chain.rescript('two', {});
    await recover({ all: true }, { ...runtime, pluginDirs: ['/nowhere'] });
    expect(leftovers()).toEqual([]);
  });
});

describe('a runner that dies during DEL', () => {
  test.each(LABELS)('in plugin %s: the next DEL of the network finishes it', async label => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, runtime);
    await addNetwork(list, other, runtime);
    chain.rescript(label, { KillRunner: ['DEL'] });
    await inProcess('DEL', list.source);
    expect(record()?.phase).toBe('deleting');
    chain.rescript(label, {});
    await deleteNetwork(list, other, runtime);
    expect(chain.order().slice(-3)).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(leftovers()).toEqual([]);
  });
});

describe('a plugin that kills every runner of its DEL', () => {
  test('does not kill every command on the network', async () => {
    const { source } = threePlugins({ two: { KillRunner: ['ADD', 'DEL'] } });
    await inProcess('ADD', source);
    const another = { ...ATTACHMENT, containerId: 'c2' };
    const list = listOf('1.1.0', [chain.noop('four')]);
    const addAnother = () => inProcess('ADD', list.source, { attachment: another });
    expect(await addAnother()).toBe('');
    // The pause before the next attempt begins with a second, and grows until it is longer than a process takes to start.
    let said = '';
    for (let i = 0; i < 6 && said === ''; i++) said = await addAnother();
    expect(said).toBe('ok');
    expect(record()).toMatchObject({ phase: 'deleting' });
    expect(record()?.runners.length).toBeLessThan(6);
  });
});

describe('deleteNetwork() with a journal', () => {
  test('records a failure, and the next command on the network tries again when it is due', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, runtime);
    chain.rescript('two', { ReportError: 'busy' });
    await expect(deleteNetwork(list, ATTACHMENT, runtime)).rejects.toThrow('busy');
    expect(record()).toMatchObject({ phase: 'failed', attempts: 1 });
    chain.rescript('two', {});

    // At once it is not due.
    await addNetwork(list, other, runtime);
    expect(record()?.phase).toBe('failed');
    const { file = '' } = record() ?? {};
    const past = new Date(Date.now() - 5000).toISOString();
    fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace(record()?.lastAttempt ?? '', past));
    await deleteNetwork(list, other, runtime);
    expect(leftovers()).toEqual([]);
  });

  test('finishes from its own record when called again', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, runtime);
    chain.rescript('one', { ReportError: 'busy' });
    await expect(deleteNetwork(list, ATTACHMENT, runtime)).rejects.toThrow('busy');
    chain.rescript('one', {});
    await deleteNetwork(list, ATTACHMENT, runtime);
    expect(leftovers()).toEqual([]);
  });

  test("uses the caller's list when the entry is damaged", async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    fs.writeFileSync(path.join(runtime.cacheDir, 'results/testnet-c1-eth0'), '');
    await deleteNetwork(listOf('1.1.0', [chain.noop('four')]), ATTACHMENT, runtime);
    expect(chain.order().slice(3)).toEqual(['DEL four']);
    expect(leftovers()).toEqual([]);
  });

  test('uses the cache when another tool has attached again', async () => {
    const { stateDir: _, ...elsewhere } = runtime;
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    const list = listOf('1.1.0', [chain.noop('four')]);
    await deleteNetwork(threePlugins(), ATTACHMENT, elsewhere);
    await addNetwork(list, ATTACHMENT, elsewhere);
    const before = chain.order().length;
    await deleteNetwork(threePlugins(), ATTACHMENT, runtime);
    expect(chain.order().slice(before)).toEqual(['DEL four']);
    expect(leftovers()).toEqual([]);
  });

  test('ignores a damaged note', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    const file = path.join(runtime.stateDir, 'unsettled/testnet/c1:eth0');
    fs.writeFileSync(file, '{"record":1');
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    await deleteNetwork(threePlugins(), ATTACHMENT, { ...runtime, onWarning });
    expect(warnings).toEqual([`Cannot read note "${file}": it is not a JSON object`]);
    expect(leftovers()).toEqual([]);
  });

  test('never passes a namespace to plugins that now belongs to another container, and CHECK refuses it', async () => {
    const netns = path.join(chain.dir, 'netns');
    fs.writeFileSync(netns, 'one');
    await addNetwork(threePlugins(), { ...ATTACHMENT, netns }, runtime);
    fs.writeFileSync(`${netns}.new`, 'other');
    fs.renameSync(`${netns}.new`, netns);
    const attachment = { ...ATTACHMENT, netns };
    await expect(checkNetwork(threePlugins(), attachment, runtime)).rejects.toThrow(
      `Cannot check container "c1": "${netns}" is no longer the namespace of its ADD`,
    );
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    await deleteNetwork(threePlugins(), attachment, { ...runtime, onWarning });
    expect(warnings).toEqual([expect.stringContaining('it is no longer the namespace of its ADD')]);
    expect(
      chain
        .calls()
        .slice(-3)
        .map(({ command, env }) => [command, env.CNI_NETNS]),
    ).toEqual(Array(3).fill(['DEL', '']));
  });
});

test('what is found settled, once it is held, is not deleted', async () => {
  await addNetwork(threePlugins(), ATTACHMENT, runtime);
  expect(await deleteUnsettled(ID, runtime)).toBe(false);
  expect(record()?.phase).toBe('attached');
});

describe('records of an earlier boot', () => {
  const boot = (id: string): Runtime & { stateDir: string } => ({
    ...runtime,
    env: { ...process.env, CATENA_BOOT_ID: id },
  });

  test('are removed by the next command on their network, whether their attachments exist or not', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, boot('first'));
    await inProcess('ADD', threePlugins({ one: { KillRunner: ['ADD'] } }).source, {
      attachment: { ...ATTACHMENT, containerId: 'c3' },
      runtime: boot('first'),
    });
    chain.rescript('one', {});
    await addNetwork(threePlugins(), other, boot('second'));
    expect(chain.order().slice(4)).toEqual([
      'DEL three',
      'DEL two',
      'DEL one',
      'DEL one',
      ...LABELS.map(label => `ADD ${label}`),
    ]);
    expect(record()).toBeUndefined();
    expect(record('c3')).toBeUndefined();
    expect(record('c2')?.boot).toBe('second');
  });

  test('are deleted without the namespace that has their path, number and cookie now', async () => {
    await addNetwork(threePlugins(), { ...ATTACHMENT, netns: '/proc/self/ns/net' }, boot('first'));
    await addNetwork(threePlugins(), other, boot('second'));
    const deletions = chain.calls().filter(({ command }) => command === 'DEL');
    expect(deletions.map(({ env }) => env.CNI_NETNS ?? '')).toEqual(['', '', '']);
  });

  test('are refused by CHECK', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, boot('first'));
    await expect(checkNetwork(threePlugins(), ATTACHMENT, boot('second'))).rejects.toThrow('earlier boot');
  });

  test('do not block an ADD of the same attachment', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, boot('first'));
    await addNetwork(threePlugins(), ATTACHMENT, boot('second'));
    // The record of an ADD that could not read its boot id belongs to no boot.
    expect(isOfEarlierBoot({ boot: '' }, boot('second').env)).toBe(false);
    expect(record()).toMatchObject({ phase: 'attached', boot: 'second' });
    expect(chain.order()).toHaveLength(9);
  });
});

describe('an attachment that another runtime has made again', () => {
  const again = () => {
    return withoutOurs(path.join(runtime.cacheDir, 'results/testnet-c1-eth0'));
  };
  const later = () => ({ ...runtime, env: { ...process.env, CATENA_BOOT_ID: 'second' } });

  test('is not deleted because of an earlier failed DEL', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, runtime);
    chain.rescript('two', { ReportError: 'busy' });
    await expect(deleteNetwork(list, ATTACHMENT, runtime)).rejects.toThrow('busy');
    chain.rescript('two', {});
    const cached = again();
    const before = chain.order().length;
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    expect(await recover({ all: true }, { ...runtime, onWarning })).toEqual([]);
    expect(warnings).toEqual([expect.stringContaining('it has since been attached again')]);
    expect(chain.order().slice(before)).toEqual([]);
    expect(record()).toBeUndefined();
    expect(fs.readFileSync(path.join(runtime.cacheDir, 'results/testnet-c1-eth0'), 'utf8')).toBe(cached);
  });

  test('is not garbage because its record is of an earlier boot', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, {
      ...runtime,
      env: { ...process.env, CATENA_BOOT_ID: 'first' },
    });
    again();
    const valid = [{ containerID: 'c1', ifname: 'eth0' }];
    expect(planGarbage(threePlugins(), { valid }, later()).stale).toEqual([]);
    await collectGarbage(threePlugins(), { valid }, later());
    expect(chain.order().filter(call => call.startsWith('DEL'))).toEqual([]);
  });

  test('is known by the note that its plugin left in this boot', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, {
      ...runtime,
      env: { ...process.env, CATENA_BOOT_ID: 'first' },
    });
    const runDir = path.join(runtime.cacheDir, 'run');
    const env = { ...process.env, CATENA_BOOT_ID: 'second', CATENA_RUN_DIR: runDir };
    const id = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
    noteGeneration(runDir, id, { renew: true, boot: 'second' });
    expect(await recover({ all: true }, { ...runtime, env })).toEqual([]);
    expect(chain.order().filter(call => call.startsWith('DEL'))).toEqual([]);
    expect(record()).toBeUndefined();
  });

  describe('by an ADD that has begun in the same boot', () => {
    const runDir = () => path.join(runtime.cacheDir, 'run');
    const here = () => ({ ...runtime, env: { ...process.env, CATENA_RUN_DIR: runDir() } });
    const dead = () => ({ ...startRunner(), pid: 999_999, start: '1', op: '999999-1-1' });
    /** An ADD whose runner died. */
    const interrupt = (more: Partial<Intent> = {}): void => {
      const { source } = threePlugins();
      const intent = intentOf({
        boot: bootId(),
        cacheDir: runtime.cacheDir,
        runner: dead(),
        source,
        ...more,
      });
      writeNote(runtime.stateDir, { ...createNote(runtime.stateDir, intent), segment: 0 });
    };
    const note = (isOurs: boolean) => noteGeneration(runDir(), ID, { renew: true, boot: bootId(), isOurs });
    const deletions = () => chain.order().filter(call => call.startsWith('DEL'));

    test('of another runtime, keeps what that makes', async () => {
      interrupt();
      note(false);
      expect(await recover({ all: true }, here())).toEqual([]);
      expect([deletions(), record()]).toEqual([[], undefined]);
    });

    test('of its own, is undone', async () => {
      interrupt();
      note(true);
      expect(await recover({ all: true }, here())).toHaveLength(1);
      expect([deletions(), record()]).toEqual([['DEL one'], undefined]);
    });

    test('of another runtime with plugins that note nothing, and ends while orphans are awaited', async () => {
      interrupt();
      const held = mustClaim(runtime.stateDir, ID);
      const waiting = spyOn(held, 'awaitOrphans').mockImplementation(async () => {
        writeEntry(runtime.cacheDir, { ...held.record, result: ips('10.1.0.9/24') });
      });
      expect(await deleteHeld(held, here())).toBe(false);
      expect(waiting).toHaveBeenCalled();
      held.release();
      expect(deletions()).toEqual([]);
      expect(leftovers()).toMatchObject([{ result: ips('10.1.0.9/24') }]);
    });

    test('is told from the ADD that a change of it began with', async () => {
      const generation = note(false) ?? '';
      const found = intentOf({ boot: bootId(), cacheDir: runtime.cacheDir, generation });
      expect(findLaterAdd(begunAdd(found, 'note'), here().env)).toBeUndefined();
      note(false);
      expect(findLaterAdd(begunAdd(found, 'note'), here().env)).toContain('started an ADD of it since');
    });

    test('is not seen in the call of the delegate runner by the runtime', async () => {
      interrupt({ owner: `catena ${ID.network}` });
      note(false);
      expect(await recover({ all: true }, here())).toHaveLength(1);
    });
  });

  test('is not begun while it is being deleted: the ADD waits', async () => {
    const runDir = path.join(runtime.cacheDir, 'run');
    const inBoot = (boot: string) => ({ ...process.env, CATENA_BOOT_ID: boot, CATENA_RUN_DIR: runDir });
    const id = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
    await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, env: inBoot('first') });
    const during: boolean[] = [];
    const exec: Exec = async () => {
      during.push(isBeingRemoved(inBoot('second'), id));
      return { stdout: '' };
    };
    expect(await recover({ all: true }, { ...runtime, exec, env: inBoot('second') })).toHaveLength(1);
    expect(during).toEqual([true, true, true]);
    expect(isBeingRemoved(inBoot('second'), id)).toBe(false);
  });

  test('has its ADD ended before anything marks it: one that has begun waits for no mark', async () => {
    const runDir = path.join(runtime.cacheDir, 'run');
    const env = { ...process.env, CATENA_RUN_DIR: runDir };
    const id = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
    const runner = { ...startRunner(), pid: 999_999, start: '1', op: '999999-1-1' };
    createNote(runtime.stateDir, intentOf({ boot: bootId(), cacheDir: runtime.cacheDir, runner }));
    const named = { CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0', CATENA_RUNNER: processOf(runner) };
    const orphan = Bun.spawn(['sleep', '2'], { env: { PATH: process.env.PATH ?? '', ...named } });
    await untilStarted(orphan, 'CATENA_RUNNER');
    const recovering = recover({ all: true }, { ...runtime, env });
    const marked: boolean[] = [];
    const own = {
      pid: orphan.pid,
      start: readRunningStat(orphan.pid)?.start ?? '',
      pidns: thisProcess().pidns,
    };
    for (let isMarked = false; ; await Bun.sleep(20)) {
      isMarked = isBeingRemoved(env, id);
      if (isRunning(own) !== true) break;
      marked.push(isMarked);
    }
    expect(marked).not.toContain(true);
    await recovering;
  });

  test('is found on the node when nothing else tells', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, {
      ...runtime,
      env: { ...process.env, CATENA_BOOT_ID: 'first' },
    });
    const openWitness = async () => ({ findLife: async () => 'a pair', hasInterface: () => true });
    expect(await recover({ all: true }, { ...later(), openWitness })).toEqual([]);
    expect(chain.order().filter(call => call.startsWith('DEL'))).toEqual([]);
    expect([record(), leftovers()]).toEqual([undefined, []]);
  });
});

describe('recover()', () => {
  test('does not take a running command for a dead one', async () => {
    const list = threePlugins();
    const slow = addNetwork(list, ATTACHMENT, runtime);
    await addNetwork(list, other, runtime);
    await slow;
    expect(chain.order().filter(call => call.startsWith('DEL'))).toEqual([]);
  });

  test('handles only a few at a time by default, and all on request', async () => {
    const list = threePlugins();
    for (let i = 0; i < 6; i++) {
      await addNetwork(
        list,
        { ...ATTACHMENT, containerId: `old${i}` },
        { ...runtime, env: { ...process.env, CATENA_BOOT_ID: 'first' } },
      );
    }
    // Fewer on a slow machine: a verb is held up for a second.
    const { length } = await recover({ network: 'testnet' }, runtime);
    expect([1, 2, 3, 4]).toContain(length);
    expect(await recover({ network: 'another' }, runtime)).toHaveLength(0);
    expect(await recover({ all: true }, runtime)).toHaveLength(6 - length);
    expect(leftovers()).toEqual([]);
  });

  const YEAR_MS = 365 * 86_400_000;
  test.each([
    ['a year ago', -YEAR_MS],
    ['a year ahead, by a clock that was set back since', YEAR_MS],
  ])('retries a failure at once %s', async (_, offMs) => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, runtime);
    chain.rescript('two', { ReportError: 'stuck' });
    await expect(deleteNetwork(list, ATTACHMENT, runtime)).rejects.toThrow('stuck');
    chain.rescript('two', {});
    const { file = '' } = record() ?? {};
    const rewrite = (what: RegExp, by: string) =>
      fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace(what, by));
    // After the tenth attempt, the pause is longer than any machine takes from here to the next line.
    rewrite(/"attempts":1/, '"attempts":10');
    expect(await recover({}, runtime)).toEqual([]);
    rewrite(/"(time|lastAttempt)":"[^"]+"/g, `"$1":"${new Date(Date.now() + offMs).toISOString()}"`);
    expect(await recover({}, runtime)).toHaveLength(1);
    expect(leftovers()).toEqual([]);
  });

  test('clears a note that is over', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    const { runner, file = '' } = record() ?? {};
    const entry = fs.readFileSync(file);
    fs.rmSync(file);
    // As if the runner had died after it had written the entry.
    createNote(runtime.stateDir, intentOf({ cacheDir: runtime.cacheDir, ...(runner && { runner }) }));
    fs.writeFileSync(file, entry);
    expect(await recover({ network: 'testnet' }, runtime)).toEqual([]);
    expect(filesBelow(path.join(runtime.stateDir, 'unsettled'))).toEqual([]);
    expect(record()?.phase).toBe('attached');
  });

  test('names a note of another attachment each time, and leaves it', async () => {
    await recover({ network: 'testnet' }, runtime);
    createNote(runtime.stateDir, intentOf({ cacheDir: runtime.cacheDir }));
    const dir = path.join(runtime.stateDir, 'unsettled/testnet');
    fs.renameSync(path.join(dir, 'c1:eth0'), path.join(dir, 'c2:eth0'));
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    expect(await recover({ network: 'testnet' }, { ...runtime, onWarning })).toEqual([]);
    expect(warnings).toEqual([
      `Cannot read note "${dir}/c2:eth0": it is for interface "eth0" of container "c1" on network "testnet"`,
    ]);
    expect(fs.readdirSync(dir)).toEqual(['c2:eth0']);
  });

  test('names a directory of an earlier layout, once', async () => {
    fs.mkdirSync(path.join(runtime.stateDir, 'attachments'), { recursive: true });
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    for (let i = 0; i < 2; i++) await recover({ all: true }, { ...runtime, onWarning });
    expect(warnings).toEqual([expect.stringContaining('it has the layout of an earlier build')]);
  });

  test('identifies a boot by its id alone, whatever the clock says', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    const { file = '' } = record() ?? {};
    for (const one of [file, path.join(runtime.stateDir, 'boot')]) fs.utimesSync(one, 0, 0);
    expect(await recover({ all: true }, runtime)).toEqual([]);
    const next = { ...runtime, env: { ...process.env, CATENA_BOOT_ID: 'next' } };
    expect(await recover({ all: true }, next)).toMatchObject([
      { why: 'it is from an earlier boot of the machine' },
    ]);
  });

  test('keeps a record whose configuration cannot be used, with the reason', async () => {
    await inProcess('ADD', threePlugins({ one: { KillRunner: ['ADD'] } }).source);
    const { file = '' } = record() ?? {};
    const note = JSON.parse(fs.readFileSync(file, 'utf8'));
    fs.writeFileSync(file, JSON.stringify({ ...note, source: '{}' }));
    const [recovery] = await recover({ all: true }, runtime);
    expect(recovery?.error?.message).toContain(`the configuration in "${file}" cannot be used`);
    expect(record()).toMatchObject({ phase: 'failed', attempts: 1 });
  });
});

describe('collectGarbage() with a journal', () => {
  const key = (containerID: string) => ({ containerID, ifname: 'eth0' });
  const valid = [key('c1'), key('c2')];

  test('deletes a truncated ADD although it is valid, and says why', async () => {
    const list = threePlugins({ two: { KillRunner: ['ADD'] } });
    await inProcess('ADD', list.source);
    chain.rescript('two', {});
    await addNetwork(list, other, { ...runtime, stateDir: path.join(chain.dir, 'elsewhere') });
    const plan = planGarbage(list, { valid }, runtime);
    expect(plan.stale).toMatchObject([{ ...ID, why: 'its ADD was interrupted' }]);
    expect(plan.kept).toMatchObject([{ containerId: 'c2' }]);
    const before = chain.order().length;
    await collectGarbage(list, { valid }, runtime);
    expect(chain.order().slice(before, before + 2)).toEqual(['DEL two', 'DEL one']);
    expect(record()).toBeUndefined();
  });

  test('keeps attachments that another process is working on, and passes them to the plugins', async () => {
    const runner = startRunner();
    createNote(runtime.stateDir, intentOf({ runner, boot: bootId() }));
    const plan = await collectGarbage(threePlugins(), { all: true }, runtime);
    expect(plan.kept).toMatchObject([{ ...ID, why: `process ${process.pid} is working on it` }]);
    expect(chain.calls()[0]?.request['cni.dev/valid-attachments']).toEqual([key('c1')]);
    expect(record()?.phase).toBe('adding');
    endRunner(runner);
  });

  test('keeps attachments of another owner when limited to one owner', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, owner: 'other' });
    const plan = await collectGarbage(threePlugins(), { all: true, owner: 'me' }, runtime);
    expect(plan.kept).toMatchObject([{ ...ID, why: 'it belongs to "other"' }]);
    expect(chain.order().slice(3)).toEqual(['GC one', 'GC two', 'GC three']);
    await collectGarbage(threePlugins(), { all: true }, runtime);
    expect(record()).toBeUndefined();
  });
});

describe('ADD after an earlier ADD', () => {
  const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
  const netns = '/proc/self/ns/net';

  let chain: NoopChain;
  let stateDir: string;
  beforeEach(() => {
    chain = makeNoopChain();
    stateDir = path.join(chain.dir, 'state');
  });
  afterEach(() => chain.dispose());

  const recorded = () => ({
    ...intentOf(ID),
    boot: bootId(chain.runtime.env),
    netns,
    ...identifyNetns(netns),
    cacheDir: chain.dir,
  });

  /** Of an attachment that exists, whatever the node says: our record names the namespace itself. */
  function attached(): ChainRuntime {
    settled(stateDir, recorded());
    const witness = { findLife: () => Promise.resolve(undefined), hasInterface: () => false };
    return { ...chain.runtime, stateDir, openWitness: () => Promise.resolve(witness) };
  }

  async function settle(runtime: ChainRuntime): Promise<string | undefined> {
    const held = await hold(ID, holdCall(runtime, 'add'));
    try {
      return await settleEarlierAdd(ID, held, runtime);
    } finally {
      held.release();
    }
  }

  test('an attachment on record is an earlier ADD', async () => {
    expect(await settle(attached())).toBe(path.join(chain.dir, 'results/testnet-c1-eth0'));
  });

  test('plugins of an ADD do not wait for the removal of what was cut off before it', async () => {
    const runtime = { ...chain.runtime, stateDir };
    const runner = startRunner();
    createNote(stateDir, { ...recorded(), runner });
    endRunner(runner);
    const held = await hold(ID, holdCall(runtime, 'add'));
    await settleEarlierAdd(ID, held, runtime);
    expect(isBeingRemoved(runtime.env, ID)).toBe(false);
    held.release();
  });

  test.each([
    ['an ADD of what nothing is known of', () => settle({ ...chain.runtime, stateDir })],
    ['a repair', () => repair({}, attached())],
  ])('%s waits for what a dead operation has left at work', async (_, work) => {
    const { env } = chain.runtime;
    const dead = `999998-${process.pid}`;
    const dir = path.join(runDir(env), 'locks/own/testnet/c1:eth0');
    fs.mkdirSync(dir, { recursive: true });
    const target = `add ${thisProcess().pidns} ${bootId(env)} 60000 ${Date.now()}`;
    fs.symlinkSync(target, path.join(dir, `${dead}-1`));
    const names = { CATENA_RUNNER: dead, CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0' };
    const orphan = Bun.spawn(['sleep', '100'], { env: { PATH: process.env.PATH ?? '', ...names } });
    await untilStarted(orphan, 'CATENA_RUNNER');
    setTimeout(() => orphan.kill(), 700);
    await work();
    expect(readRunningStat(orphan.pid)).toBeUndefined();
  });

  test('another operation waits as long as this one holds the attachment', async () => {
    const runtime = attached();
    const held = await hold(ID, holdCall(runtime, 'add'));
    const second = hold(ID, holdCall({ ...runtime, signal: AbortSignal.abort() }, 'del'));
    await expect(second).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('has been working on it'),
    });
    held.release();
    (await hold(ID, holdCall(runtime, 'del'))).release();
  });

  test('an operation that only the record names is waited for, too: the run directory may have been lost', async () => {
    const runtime = attached();
    dropRecord(stateDir, ID);
    const runner = startRunner();
    createNote(stateDir, { ...recorded(), runner });
    await expect(
      hold(ID, holdCall({ ...runtime, signal: AbortSignal.abort() }, 'del')),
    ).rejects.toMatchObject({
      code: 11,
    });
    endRunner(runner);
    (await hold(ID, holdCall(runtime, 'del'))).release();
  });
});
