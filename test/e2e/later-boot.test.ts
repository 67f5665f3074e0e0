// Does a record of an earlier boot leave alone what another runtime has attached under the same names since?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { addByHand, configure, deleteByHand, idOf } from '../helpers/cnitool.ts';
import { runOk } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference } from '../helpers/skip.ts';

setDefaultTimeout(deadline(60_000));

/** The command, in a boot of the machine. */
function inBoot(lab: Lab, boot: string) {
  const env = {
    ...directories(lab.tmp),
    NETCONFPATH: `${lab.tmp}/net.d`,
    CNI_PATH: BIN_DIR,
    CATENA_BOOT_ID: boot,
  };
  return (...argv: string[]) => lab.run(lab.host, [`${BIN_DIR}/catena`, ...argv], { env, timeoutMs: 50_000 });
}

/** As the machine is restarted: the namespace is gone, and the runtime creates its name again. */
async function restart(container: Container): Promise<void> {
  await runOk(['ip', 'netns', 'delete', container.name]);
  await runOk(['ip', 'netns', 'add', container.name]);
}

const noteOf = (lab: Lab, container: Container) =>
  `${lab.tmp}/state/unsettled/podnet/${idOf(container)}:eth0`;

/** What the container has: its namespace, its lease, and its elements in the packet filter. */
async function stateOf(lab: Lab, container: Container): Promise<Row> {
  const { stdout } = await lab.run(lab.host, ['nft', 'list', 'ruleset']);
  const dir = `${lab.tmp}/leases/podnet`;
  const leases = fs.existsSync(dir) ? fs.readdirSync(dir).filter(name => /^[\d.]+$/.test(name)) : [];
  return {
    inside: await lab.dump(container),
    elements: stdout.split(/[{},\n]/).filter(one => one.includes(`/${idOf(container)}/`)).length,
    leases: leases.filter(name => fs.readFileSync(`${dir}/${name}`, 'utf8').includes(idOf(container))),
  };
}

const PORT = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };

describeRoot(
  'an attachment recorded before a reboot',
  () => {
    test.each([
      ['by our plugins', BIN_DIR],
      ['by the plugins of the reference', REFERENCE_BIN_DIR],
    ])('and made again %s is not deleted by any command', async (_who, binDir) => {
      await withHost(async lab => {
        const [container, other] = [await lab.container(), await lab.container()];
        const network = configure(lab, '1.0.0');
        const call = { binDir, capabilityArgs: binDir === BIN_DIR ? PORT : {} };
        const own = ['--container-id', idOf(container), '--cap', JSON.stringify(call.capabilityArgs)];
        expect(await inBoot(lab, 'first')('add', 'podnet', container.path, ...own)).toMatchObject({
          exitCode: 0,
        });
        await restart(container);
        // A runtime clears away what was before, in its own way, and attaches its container again.
        await deleteByHand(lab, network, container, binDir);
        await addByHand(lab, network, container, { ...call, env: { CATENA_BOOT_ID: 'second' } });
        const before = await stateOf(lab, container);
        expect(before).toMatchObject({
          elements: binDir === BIN_DIR ? expect.any(Number) : 0,
          leases: [expect.any(String)],
        });

        const later = inBoot(lab, 'second');
        const collected = await later('gc', 'podnet', '--valid', `${idOf(container)}/eth0`, '--dry-run');
        expect(collected.stdout).not.toContain('earlier boot');
        expect(collected.exitCode).toBe(0);
        const added = await later('add', 'podnet', other.path);
        expect(added).toMatchObject({ exitCode: 0, stderr: '' });
        expect(fs.existsSync(noteOf(lab, container))).toBe(false);
        expect(await stateOf(lab, container)).toEqual(before);
        expect(await later('repair')).toMatchObject({ exitCode: 0 });
        expect(await stateOf(lab, container)).toEqual(before);
        // Who knows it by the cache ends it.
        expect(await later('del', 'podnet', container.path)).toMatchObject({ exitCode: 0 });
        expect(await stateOf(lab, container)).toMatchObject({ elements: 0, leases: [] });
      });
    });

    test('is deleted unless it was made again', async () => {
      await withHost(async lab => {
        const [container, other] = [await lab.container(), await lab.container()];
        configure(lab, '1.0.0');
        expect(await inBoot(lab, 'first')('add', 'podnet', container.path)).toMatchObject({ exitCode: 0 });
        await restart(container);
        expect(await inBoot(lab, 'second')('add', 'podnet', other.path)).toMatchObject({ exitCode: 0 });
        expect(await stateOf(lab, container)).toMatchObject({ elements: 0, leases: [] });
        expect(fs.existsSync(noteOf(lab, container))).toBe(false);
      });
    });

    test('counts as made again by a lease of this boot, without a veth pair of ours', async () => {
      await withHost(async lab => {
        const [container, other] = [await lab.container(), await lab.container()];
        const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
        const list = { cniVersion: '1.0.0', name: 'podnet', plugins: [{ type: 'host-local', ipam }] };
        fs.mkdirSync(`${lab.tmp}/net.d`);
        fs.writeFileSync(`${lab.tmp}/net.d/10-podnet.conflist`, JSON.stringify(list));
        expect(await inBoot(lab, 'first')('add', 'podnet', container.path)).toMatchObject({ exitCode: 0 });
        await restart(container);
        const again = await lab.plugin('host-local', {
          command: 'ADD',
          conf: { ...list.plugins[0], name: 'podnet', cniVersion: '1.0.0' },
          container: { ...container, id: idOf(container) },
          env: { CATENA_BOOT_ID: 'second' },
        });
        expect(again.exitCode).toBe(0);
        const before = await stateOf(lab, container);
        expect(before.leases).toHaveLength(1);
        expect(await inBoot(lab, 'second')('add', 'podnet', other.path)).toMatchObject({ exitCode: 0 });
        expect(await stateOf(lab, container)).toEqual(before);
      });
    });
  },
  requiresReference('bridge', 'host-local', 'portmap', 'tuning'),
);
