// Does GC leave concurrent attachments alone, whichever runtime makes them and by whichever way?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { untilBeforeGc } from '../helpers/before-gc.ts';
import { type Chain, fullChain, writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

setDefaultTimeout(deadline(120_000));

const STALE = 20;
const ADDERS = 3;
/** More than can be attached while GC runs. */
const MORE = 45;

/** Attaches a container; throws when that fails. */
type Attach = (container: Container, hostPort: number) => Promise<unknown>;

const capOf = (hostPort: number) => ({
  portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp' }],
  bandwidth: { ingressRate: 1e8, ingressBurst: 1e6, egressRate: 1e8, egressBurst: 1e6 },
});

async function makeContainers(lab: Lab, count: number): Promise<Container[]> {
  const made: Container[] = [];
  while (made.length < count) made.push(await lab.container());
  return made;
}

/** Calls every plugin of the list separately, as containerd does. */
function oneByOne(lab: Lab, { list }: Chain, binDir?: string): Attach {
  return async (container, hostPort) => {
    let prevResult: Row | undefined;
    const { plugins, ...head } = list;
    for (const { capabilities, ...entry } of plugins) {
      const conf = {
        cniVersion: head.cniVersion,
        name: head.name,
        ...entry,
        ...(capabilities ? { runtimeConfig: capOf(hostPort) } : {}),
      };
      const call = { command: 'ADD', conf, container, prevResult, ...(binDir ? { binDir } : {}) };
      const { exitCode, result, stdout } = await lab.plugin(entry.type, call);
      if (exitCode !== 0) throw new Error(`ADD of ${entry.type} failed: ${stdout}`);
      prevResult = result;
    }
  };
}

/** Attaches as many as it can until GC has ended. @returns those that were reported as attached */
async function attachMeanwhile(
  containers: readonly Container[],
  attach: Attach,
  gc: Promise<Finished>,
): Promise<Container[]> {
  let isOver = false;
  void gc.finally(() => {
    isOver = true;
  });
  const waiting = [...containers.entries()];
  const attached: Container[] = [];
  const work = async (): Promise<void> => {
    for (let next = waiting.shift(); next && !isOver; next = waiting.shift()) {
      await attach(next[1], 20_000 + next[0]);
      attached.push(next[1]);
    }
  };
  await Promise.all(Array.from({ length: ADDERS }, work));
  return attached;
}

async function addressesOf(lab: Lab, container: Container): Promise<string[]> {
  const rows = await lab.ip(container, 'addr', 'show', 'dev', 'eth0', 'scope', 'global');
  // The tool leaves an empty object for each address that it filters.
  return rows.flatMap(({ addr_info }: Row) => addr_info.flatMap(({ local }: Row) => local ?? []));
}

/** The address of every lease, by whom it names. */
function leasesOf(lab: Lab): Map<string, string> {
  const dir = `${lab.tmp}/leases/podnet`;
  const names = readdirSync(dir).filter(name => /^[0-9a-f]+[.:][0-9a-f.:]+$/.test(name));
  return new Map(names.map(name => [name, readFileSync(`${dir}/${name}`, 'utf8')]));
}

/** What a container needs and does not have; empty when it is whole. */
async function findMissing(lab: Lab, { list }: Chain, container: Container): Promise<string[]> {
  const inside = await lab.run(container, ['ip', '-j', 'link', 'show', 'dev', 'eth0']);
  if (inside.exitCode !== 0) return ['interface'];
  const addresses = await addressesOf(lab, container);
  const leases = leasesOf(lab);
  const missing = addresses
    .filter(address => leases.get(address) !== `${container.id}\r\neth0`)
    .map(address => `lease of ${address}`);
  const types = list.plugins.map(({ type }: Row) => type);
  const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
  const isNamedIn = (table: string) => {
    const part = rules.split(/^table /m).find(one => one.startsWith(`inet ${table} `)) ?? '';
    return part.includes(`catena:podnet/${container.id}/eth0`);
  };
  if (types.includes('portmap') && !isNamedIn('catena_portmap')) missing.push('ports');
  if (types.includes('portmap') && !isNamedIn('catena_masquerade')) missing.push('masquerading');
  if (types.includes('bandwidth')) {
    const ifbs = await lab.ip(lab.host, 'link', 'show', 'type', 'ifb');
    if (!ifbs.some(({ ifalias }: Row) => ifalias === `catena:podnet/${container.id}/eth0`))
      missing.push('ifb');
  }
  const pong = await lab.run(container, ['ping', '-c', '1', '-W', '2', '10.88.0.1']);
  if (pong.exitCode !== 0) missing.push('gateway');
  return missing;
}

/** Everything that still names the container, on the host and on disk. */
async function findLeft(lab: Lab, { id }: Container): Promise<string[]> {
  const links = await lab.ip(lab.host, 'link');
  const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
  return [
    ...links.filter(({ ifalias = '' }: Row) => ifalias.includes(`/${id}/`)).map(({ ifname }: Row) => ifname),
    ...[...leasesOf(lab)].filter(([, text]) => text.startsWith(`${id}\r\n`)).map(([address]) => address),
    ...(rules.includes(`/${id}/`) ? ['rules'] : []),
  ];
}

function gcOf(chain: Chain, kept: Container): Promise<Finished> {
  return chain.run('gc', kept, { args: ['--valid', `${kept.id}/eth0`] });
}

describeRoot('GC', () => {
  const byCommand = (_lab: Lab, chain: Chain): Attach => {
    return (container, hostPort) => chain.add(container, { cap: capOf(hostPort) });
  };
  const bySteps = oneByOne;
  test.each<[string, boolean, typeof byCommand]>([
    ['the command attaches', false, byCommand],
    ['the command attaches through a daemon', true, byCommand],
    ['a runtime attaches plugin by plugin', false, bySteps],
    ['a runtime attaches plugin by plugin beside a daemon', true, bySteps],
  ])(
    'deletes stale attachments and nothing of those that %s at the same time',
    async (_, withDaemon, attachBy) => {
      await withHost(async lab => {
        const chain = writeChain(lab, fullChain(lab));
        if (withDaemon) await startDaemon(lab);
        const [kept, ...others] = await makeContainers(lab, 1 + STALE + MORE);
        const stale = others.slice(0, STALE);
        for (const [i, one] of [kept as Container, ...stale].entries())
          await chain.add(one, { cap: capOf(10_000 + i) });

        await untilBeforeGc();
        const gc = gcOf(chain, kept as Container);
        const attached = await attachMeanwhile(others.slice(STALE), attachBy(lab, chain), gc);
        expect(await gc).toMatchObject({ exitCode: 0 });
        expect(attached.length).toBeGreaterThan(0);

        const lost: Record<string, string[]> = {};
        for (const one of [kept as Container, ...attached]) {
          const missing = await findMissing(lab, chain, one);
          if (missing.length) lost[one.id] = missing;
        }
        expect(lost).toEqual({});
        const addresses = await Promise.all(
          [kept as Container, ...attached].map(one => addressesOf(lab, one)),
        );
        expect(new Set(addresses.flat()).size).toBe(addresses.flat().length);
        for (const one of stale) expect([one.id, await findLeft(lab, one)]).toEqual([one.id, []]);
      });
    },
  );

  test.each([false, true])(
    'leaves alone what was attached while it waited in line before its program began (daemon: %p)',
    async withDaemon => {
      await withHost(async lab => {
        const chain = writeChain(lab, fullChain(lab));
        if (withDaemon) await startDaemon(lab);
        const [kept, stale, late] = (await makeContainers(lab, 3)) as [Container, Container, Container];
        const cap = (hostPort: number) => ({ cap: capOf(hostPort) });
        await chain.add(kept, cap(10_000));
        await chain.add(stale, cap(10_001));
        // As the front does while a daemon has no worker for it.
        const go = `${lab.tmp}/go`;
        expect((await lab.run(lab.host, ['mkfifo', go])).exitCode).toBe(0);
        const script = `echo > ${go}; read -r _ < ${go}; exec "$@"`;
        const argv = [`${BIN_DIR}/catena`, 'gc', 'podnet', '--file', `${lab.tmp}/podnet.conflist`];
        const more = ['--bin-dir', BIN_DIR, '--valid', `${kept.id}/eth0`];
        const gc = lab.run(lab.host, ['sh', '-c', script, 'sh', ...argv, ...more], {
          env: directories(lab.tmp),
        });
        expect(await Bun.file(go).text()).toBe('\n');
        await chain.add(late, cap(10_002));
        await Bun.write(go, '\n');
        expect(await gc).toMatchObject({ exitCode: 0 });
        expect(await findMissing(lab, chain, kept)).toEqual([]);
        expect(await findMissing(lab, chain, late)).toEqual([]);
        expect(await findLeft(lab, stale)).toEqual([]);
      });
    },
  );

  test('leaves alone an ADD that has begun and created nothing yet', async () => {
    await withHost(async lab => {
      const chain = writeChain(lab, fullChain(lab));
      const [kept, late] = await makeContainers(lab, 2);
      await chain.add(kept as Container);
      // An IPAM plugin that takes its time: the pair is made long after GC has looked.
      const slow = `${lab.tmp}/slow`;
      const script = `#!/bin/sh\n: > ${lab.tmp}/begun\nread -r _ < ${lab.tmp}/go\nexec ${BIN_DIR}/host-local\n`;
      await Bun.write(slow, script);
      expect((await lab.run(lab.host, ['chmod', '+x', slow])).exitCode).toBe(0);
      expect((await lab.run(lab.host, ['mkfifo', `${lab.tmp}/go`])).exitCode).toBe(0);
      const [bridge] = chain.list.plugins;
      const conf = { cniVersion: '1.1.0', name: 'podnet', ...bridge, ipam: { ...bridge.ipam, type: 'slow' } };
      const call = { command: 'ADD', conf, container: late as Container, cniPath: lab.tmp };
      const adding = lab.plugin('bridge', call);
      await until(() => existsSync(`${lab.tmp}/begun`));
      const plan = await chain.run('gc', kept as Container, {
        args: ['--valid', `${kept?.id}/eth0`, '--dry-run'],
      });
      expect(plan.stdout).toContain(`keep  ${late?.id}/eth0: it has no record here`);
      await Bun.write(`${lab.tmp}/go`, '\n');
      expect(await adding).toMatchObject({ exitCode: 0 });
    });
  });
});

describeRoot(
  "GC beside the reference's plugins",
  () => {
    test('deletes no lease of their concurrent attachments, and no address is assigned twice', async () => {
      await withHost(async lab => {
        const { plugins, ...head } = fullChain(lab);
        const chain = writeChain(lab, { ...head, plugins: plugins.slice(0, 1) });
        // Debian's release knows no 1.1.0, and iptables would make it slow.
        const asReference = {
          ...chain.list,
          cniVersion: '1.0.0',
          plugins: [{ ...plugins[0], ipMasq: false }],
        };
        const attach = oneByOne(lab, { ...chain, list: asReference }, REFERENCE_BIN_DIR);
        const [kept, ...others] = await makeContainers(lab, 1 + STALE + MORE);
        const stale = others.slice(0, STALE);
        for (const one of [kept as Container, ...stale]) await chain.add(one);
        await untilBeforeGc();
        const gc = gcOf(chain, kept as Container);
        const attached = await attachMeanwhile(others.slice(STALE), attach, gc);
        expect(await gc).toMatchObject({ exitCode: 0 });
        expect(attached.length).toBeGreaterThan(0);
        // Whatever GC gave back by mistake would be handed out now.
        const later = others.slice(STALE + attached.length).slice(-5);
        for (const one of later) await chain.add(one);

        const all = [kept as Container, ...attached, ...later];
        const addresses = (await Promise.all(all.map(one => addressesOf(lab, one)))).flat();
        expect(new Set(addresses).size).toBe(addresses.length);
        for (const one of all) expect([one.id, await findMissing(lab, chain, one)]).toEqual([one.id, []]);
        for (const one of stale) expect([one.id, await findLeft(lab, one)]).toEqual([one.id, []]);
      });
    });
  },
  requiresReference('bridge', 'host-local'),
);

describeRoot('GC of a runtime that calls each plugin separately', () => {
  test.each([false, true])(
    'deletes all that existed before, and nothing that begins between two plugins (daemon: %p)',
    async withDaemon => {
      await withHost(async lab => {
        const chain = writeChain(lab, fullChain(lab));
        if (withDaemon) await startDaemon(lab);
        const attach = oneByOne(lab, chain);
        const [kept, gone, later] = (await makeContainers(lab, 3)) as [Container, Container, Container];
        await attach(kept, 10_000);
        await attach(gone, 10_001);
        const valid = [{ containerID: kept.id, ifname: 'eth0' }];
        const { plugins, ...head } = chain.list;
        for (const [i, { capabilities: _, ...entry }] of plugins.entries()) {
          if (i === 1) await attach(later, 10_002);
          const conf = {
            cniVersion: head.cniVersion,
            name: head.name,
            ...entry,
            'cni.dev/valid-attachments': valid,
          };
          expect(await lab.plugin(entry.type, { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
        }
        expect(await findMissing(lab, chain, kept)).toEqual([]);
        expect(await findMissing(lab, chain, later)).toEqual([]);
        expect(await findLeft(lab, gone)).toEqual([]);

        // The next run takes it: it was there before.
        for (const { capabilities: _, ...entry } of plugins) {
          const conf = {
            cniVersion: head.cniVersion,
            name: head.name,
            ...entry,
            'cni.dev/valid-attachments': valid,
          };
          expect(await lab.plugin(entry.type, { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
        }
        expect(await findLeft(lab, later)).toEqual([]);
        expect(await findMissing(lab, chain, kept)).toEqual([]);
      });
    },
  );
});
