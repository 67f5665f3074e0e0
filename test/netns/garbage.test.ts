// What does GC find in the kernel and on disk that has no record, and which of it does it leave alone?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { fullChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresAllProcesses } from '../helpers/skip.ts';

const CAP = {
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
  bandwidth: { ingressRate: 1e8, ingressBurst: 1e6, egressRate: 1e8, egressBurst: 1e6 },
};
const DONE = { exitCode: 0, stderr: '' };

/** A runtime that attaches containers and keeps its own records. */
interface Runtime {
  readonly dir: string;
  run(verb: string, network: string, container?: Container, ...args: string[]): Promise<Finished>;
  /** Loses all that it knows. */
  forget(): void;
}

function runtimeOf(lab: Lab, name: string): Runtime {
  const dir = `${lab.tmp}/${name}`;
  return {
    dir,
    run(verb, network, container, ...args) {
      const target = container ? [container.path, '--container-id', container.id] : [];
      const where = ['--file', `${lab.tmp}/${network}.conflist`, '--bin-dir', BIN_DIR];
      const argv = [`${BIN_DIR}/catena`, verb, network, ...target, ...where, ...args];
      return lab.run(lab.host, argv, { env: directories(dir), timeoutMs: 60_000 });
    },
    forget: () => fs.rmSync(dir, { recursive: true, force: true }),
  };
}

/** The full chain with a firewall, under the name of the network, in a subnet of its own. */
function writeNetwork(lab: Lab, name: string, net: number, more: Row = {}): void {
  const { plugins, ...list } = fullChain(lab);
  const [bridge, ...chained] = plugins;
  const ipam = { ...bridge.ipam, ranges: [[{ subnet: `10.${net}.0.0/24` }], [{ subnet: `fd${net}::/64` }]] };
  const first = { ...bridge, bridge: `br-${name}`, ipam };
  const conf = { ...list, name, plugins: [first, { type: 'firewall' }, ...chained], ...more };
  fs.writeFileSync(`${lab.tmp}/${name}.conflist`, JSON.stringify(conf));
}

/** As if the leases had been there for a while. */
function ageLeases(lab: Lab, network: string): string[] {
  const dir = `${lab.tmp}/leases/${network}`;
  const leases = fs.readdirSync(dir).filter(name => /^[0-9a-f]+[.:][0-9a-f.:]+$/.test(name));
  for (const name of leases) fs.utimesSync(`${dir}/${name}`, 0, 0);
  return leases;
}

/** A namespace goes as the kernel lets it: the pair with it, the rest stays. */
async function loseContainer(lab: Lab, container: Container): Promise<void> {
  const countPairs = async () => (await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).length;
  const before = await countPairs();
  await lab.remove(container);
  for (let i = 0; i < 250 && (await countPairs()) >= before; i++) await Bun.sleep(20);
}

async function linkNames(lab: Lab): Promise<string[]> {
  return (await lab.ip(lab.host, 'link')).map(({ ifname }) => ifname).sort();
}

async function rulesOf(lab: Lab): Promise<string> {
  return (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
}

async function withNetworks(
  body: (lab: Lab, a: Runtime, b: Runtime) => Promise<void>,
  more: Row = {},
): Promise<void> {
  await withHost(async lab => {
    await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
    await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
    writeNetwork(lab, 'podnet', 88, more);
    writeNetwork(lab, 'other', 89);
    await body(lab, runtimeOf(lab, 'a'), runtimeOf(lab, 'b'));
  });
}

function describeSeeing(title: string, body: () => void): void {
  describeRoot(title, body, requiresAllProcesses());
}

describeSeeing('catena gc', () => {
  test.each(['1.0.0', '1.1.0'])(
    '[%s] names and removes what is left of a container without a record that is not in use',
    async cniVersion => {
      await withNetworks(
        async (lab, a) => {
          const [gone, kept] = [await lab.container(), await lab.container()];
          expect(await a.run('add', 'podnet', kept)).toMatchObject({ exitCode: 0 });
          const before = await linkNames(lab);
          const leases = ageLeases(lab, 'podnet');
          const cap = JSON.stringify({ ...CAP });
          expect(await a.run('add', 'podnet', gone, '--cap', cap)).toMatchObject({ exitCode: 0 });
          fs.rmSync(`${a.dir}/cni/results/podnet-${gone.id}-eth0`);
          await loseContainer(lab, gone);
          ageLeases(lab, 'podnet');

          const valid = ['--valid', `${kept.id}/eth0`];
          const plan = await a.run('gc', 'podnet', undefined, '--dry-run', ...valid);
          expect(plan).toMatchObject(DONE);
          const mine = plan.stdout.split(/\n(?= {2}\S)/).find(row => row.includes(`DEL   ${gone.id}/eth0`));
          expect(mine).toContain('it has no record here and is unused');
          for (const what of [
            'device "bwp',
            'lease of 10.88.0.3 in',
            'in table inet catena_firewall',
            'in table inet catena_portmap',
            'in table inet catena_masquerade',
            'backup "',
          ])
            expect(mine).toContain(what);
          expect(plan.stdout).toContain(`keep  ${kept.id}/eth0: --valid names it`);

          expect(await a.run('gc', 'podnet', undefined, ...valid)).toMatchObject(DONE);
          expect(await linkNames(lab)).toEqual(before);
          expect(ageLeases(lab, 'podnet')).toEqual(leases);
          expect(await rulesOf(lab)).not.toContain(gone.id);
          expect(await a.run('check', 'podnet', kept)).toMatchObject(DONE);
        },
        { cniVersion },
      );
    },
  );

  test.each(['1.0.0', '1.1.0'])(
    '[%s] leaves what another runtime attached, and other networks',
    async cniVersion => {
      await withNetworks(
        async (lab, a, b) => {
          const [own, theirs, elsewhere] = [
            await lab.container(),
            await lab.container(),
            await lab.container(),
          ];
          const cap = ['--cap', JSON.stringify({ bandwidth: CAP.bandwidth })];
          for (const [runtime, network, container] of [
            [a, 'podnet', own],
            [b, 'podnet', theirs],
            [b, 'other', elsewhere],
          ] as const)
            expect(await runtime.run('add', network, container, ...cap)).toMatchObject({ exitCode: 0 });
          for (const network of ['podnet', 'other']) ageLeases(lab, network);

          const plan = await a.run('gc', 'podnet', undefined, '--dry-run', '--all');
          expect(plan.stdout).toContain(`DEL   ${own.id}/eth0: --all keeps none`);
          expect(plan.stdout).toContain(`keep  ${theirs.id}/eth0: it has no record here and may be in use (`);
          expect(plan.stdout).not.toContain(elsewhere.id);
          expect(await a.run('gc', 'podnet', undefined, '--all')).toMatchObject(DONE);
          expect((await a.run('check', 'podnet', own)).exitCode).toBe(1);
          for (const [network, container] of [
            ['podnet', theirs],
            ['other', elsewhere],
          ] as const)
            expect(await b.run('check', network, container)).toMatchObject(DONE);

          // Told so, it takes what may be in use.
          expect(await a.run('gc', 'podnet', undefined, '--all', '--foreign')).toMatchObject(DONE);
          expect((await b.run('check', 'podnet', theirs)).exitCode).toBe(1);
          expect(await b.run('check', 'other', elsewhere)).toMatchObject(DONE);
          expect(await b.run('del', 'podnet', theirs)).toMatchObject({ exitCode: 0 });
        },
        { cniVersion },
      );
    },
  );

  test('[1.0.0] removes elements that DEL of the reference leaves', async () => {
    await withNetworks(
      async (lab, a, b) => {
        const container = await lab.container();
        expect(await b.run('add', 'podnet', container, '--cap', JSON.stringify(CAP))).toMatchObject({
          exitCode: 0,
        });
        b.forget();
        await loseContainer(lab, container);
        for (const name of (await linkNames(lab)).filter(one => one.startsWith('bwp')))
          await lab.run(lab.host, ['ip', 'link', 'delete', name]);
        for (const dir of ['leases/podnet', 'tuning']) fs.rmSync(`${lab.tmp}/${dir}`, { recursive: true });
        expect(await rulesOf(lab)).toContain(container.id);
        expect(await a.run('gc', 'podnet', undefined, '--all')).toMatchObject(DONE);
        expect(await rulesOf(lab)).not.toContain(container.id);
      },
      { cniVersion: '1.0.0' },
    );
  });

  test('does nothing for a list that says "disableGC"', async () => {
    await withNetworks(
      async (lab, a, b) => {
        const container = await lab.container();
        expect(await b.run('add', 'podnet', container)).toMatchObject({ exitCode: 0 });
        b.forget();
        await loseContainer(lab, container);
        const leases = ageLeases(lab, 'podnet');
        const before = [await linkNames(lab), await rulesOf(lab)];
        expect((await a.run('gc', 'podnet', undefined, '--dry-run', '--all')).stdout).toContain('disableGC');
        expect(await a.run('gc', 'podnet', undefined, '--all')).toMatchObject({
          ...DONE,
          stderr: expect.stringContaining('its list sets "disableGC", so nothing is deleted'),
        });
        expect([await linkNames(lab), await rulesOf(lab)]).toEqual(before);
        expect(ageLeases(lab, 'podnet')).toEqual(leases);
      },
      { disableGC: true },
    );
  });
});

describeSeeing('GC of the delegate runner', () => {
  test('[1.1.0] leaves what another runner with records of its own attached to a network of the same name', async () => {
    await withNetworks(async (lab, a, b) => {
      const delegate = JSON.parse(fs.readFileSync(`${lab.tmp}/podnet.conflist`, 'utf8'));
      const conf = {
        cniVersion: '1.1.0',
        name: 'pods',
        type: 'catena',
        binDir: BIN_DIR,
        delegates: [delegate],
      };
      const call = (runtime: Runtime, command: string, container?: Container, more: Row = {}) =>
        lab.plugin('catena', {
          command,
          conf: { ...conf, ...more },
          env: directories(runtime.dir),
          ...(container ? { container } : {}),
        });
      const [own, theirs] = [await lab.container(), await lab.container()];
      const added = await call(b, 'ADD', theirs);
      expect(added).toMatchObject({ exitCode: 0 });
      expect(await call(a, 'ADD', own)).toMatchObject({ exitCode: 0 });
      ageLeases(lab, 'podnet');
      expect(await call(a, 'GC', undefined, { 'cni.dev/valid-attachments': [] })).toMatchObject({
        exitCode: 0,
      });
      expect(await rulesOf(lab)).not.toContain(own.id);
      const prevResult = { prevResult: added.result };
      expect(await call(b, 'CHECK', theirs, prevResult)).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await call(b, 'DEL', theirs, prevResult)).toMatchObject({ exitCode: 0 });
      expect(ageLeases(lab, 'podnet')).toEqual([]);
    });
  });

  test('doctor names what is left of an attachment without a record, and its mend deletes that', async () => {
    await withNetworks(async (lab, runtime) => {
      const empty = await rulesOf(lab);
      const [gone, living] = [await lab.container(), await lab.container()];
      for (const one of [living, gone]) expect(await runtime.run('add', 'podnet', one)).toMatchObject(DONE);
      await loseContainer(lab, gone);
      runtime.forget();
      ageLeases(lab, 'podnet');
      fs.mkdirSync(`${runtime.dir}/run`, { recursive: true });
      const env = directories(runtime.dir);
      const where = ['--conf-dir', lab.tmp, '--bin-dir', BIN_DIR];
      const catena = (...args: string[]) =>
        lab.run(lab.host, [`${BIN_DIR}/catena`, ...args, ...where], { env, timeoutMs: 60_000 });
      const garbage = async (): Promise<Row[]> =>
        JSON.parse((await catena('doctor', '--json')).stdout).findings.filter(
          ({ id }: Row) => id === 'state.garbage',
        );
      const [finding, ...more] = await garbage();
      expect(more).toEqual([]);
      expect(finding).toMatchObject({
        severity: 'warning',
        found: expect.stringContaining(
          `container "${gone.id}", interface "eth0", on network "podnet" has no record`,
        ),
        mend: `catena del podnet '' --container-id ${gone.id} --ifname eth0`,
      });
      const words = String(finding?.mend).split(' ').slice(1);
      expect(await catena(...words.map(word => (word === "''" ? '' : word)))).toMatchObject(DONE);
      expect(await garbage()).toMatchObject([{ severity: 'ok' }]);
      expect(await rulesOf(lab)).not.toContain(gone.id);
      expect(await rulesOf(lab)).toContain(living.id);
      expect(await catena('del', 'podnet', living.path, '--container-id', living.id)).toMatchObject(DONE);
      expect(empty).not.toContain(living.id);
    });
  });
});
