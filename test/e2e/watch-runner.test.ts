// What do the pods of the delegate runner cost the daemon's watch, and does it leave those alone that their runtime is deleting?
import { expect, test } from 'bun:test';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { childrenOf } from '../helpers/children.ts';
import type { Daemon } from '../helpers/daemon.ts';
import { type Container, type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { binWith } from '../helpers/script.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';
import { startWatcher, untilWatch } from '../helpers/watched-host.ts';

/** A host port, and a rate, so that a DEL removes something of each kind before the device. */
const ASKED = {
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp', hostIP: '10.66.0.1' }],
  bandwidth: {
    ingressRate: 1_000_000,
    ingressBurst: 1_000_000,
    egressRate: 1_000_000,
    egressBurst: 1_000_000,
  },
};

/** Each pod has two networks; the second one leaves first. */
function runnerList(lab: Lab, more: Row = {}): Row {
  const network = (name: string, subnet: string) => ({
    name,
    plugins: [
      {
        type: 'bridge',
        bridge: `br-${name}`,
        isGateway: true,
        ipam: { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'bandwidth', capabilities: { bandwidth: true } },
    ],
  });
  const runner = {
    type: 'catena',
    capabilities: { portMappings: true, bandwidth: true },
    delegates: [network('first', '10.66.0.0/16'), network('second', '10.67.0.0/16')],
  };
  return { cniVersion: '1.0.0', name: 'pods', plugins: [runner], ...more };
}

/** As containerd does: it calls the runner as the one plugin of a list, and keeps the result where libcni does. */
function containerd(lab: Lab, list: Row, binDir = BIN_DIR) {
  const results = `${lab.tmp}/cni/results`;
  mkdirSync(results, { recursive: true });
  const fileOf = ({ id }: Container) => `${results}/${list.name}-${id}-eth0`;
  const confOf = (plugin: Row, asked: Row) => ({
    ...plugin,
    cniVersion: list.cniVersion,
    name: list.name,
    runtimeConfig: asked,
  });
  return {
    async add(container: Container, asked: Row = {}) {
      let result: unknown;
      for (const plugin of list.plugins) {
        const conf = confOf(plugin, asked);
        const reply = await lab.plugin(plugin.type, {
          command: 'ADD',
          conf,
          container,
          binDir,
          prevResult: result,
        });
        if (reply.result === undefined) throw new Error(reply.stdout);
        result = reply.result;
      }
      const config = Buffer.from(JSON.stringify(list)).toString('base64');
      const id = { containerId: container.id, ifName: 'eth0', networkName: list.name, netns: container.path };
      writeFileSync(
        fileOf(container),
        JSON.stringify({ kind: 'cniCacheV1', ...id, config, capabilityArgs: asked, result }),
      );
    },
    async del(container: Container, asked: Row = {}) {
      const { result: prevResult } = JSON.parse(readFileSync(fileOf(container), 'utf8'));
      for (const plugin of list.plugins.toReversed()) {
        const conf = confOf(plugin, asked);
        const reply = await lab.plugin(plugin.type, { command: 'DEL', conf, container, prevResult, binDir });
        if (reply.exitCode !== 0) throw new Error(reply.stdout);
      }
      rmSync(fileOf(container));
    },
  };
}

/** CHECKs that the watch has made. */
async function checksOf(daemon: Daemon): Promise<number> {
  const { checks = {} } = await untilWatch(daemon, () => true);
  return (checks.sound ?? 0) + (checks.drifted ?? 0);
}

/** Longer than the watch takes to notice anything. */
const NOTICED_MS = 1_500;

const logOf = (lab: Lab) => readFileSync(`${lab.tmp}/daemon.log`, 'utf8');

describeRoot('a daemon that watches pods of the delegate runner', () => {
  const makeLab = useLabs();

  test('its own ADD and DEL cause no CHECK, and a CHECK starts no process that stays', async () => {
    const lab = await makeLab();
    const runtime = containerd(lab, runnerList(lab));
    const standing: Container[] = [];
    for (let i = 0; i < 10; i++) standing.push(await lab.container());
    for (const one of standing) await runtime.add(one);
    const daemon = await startWatcher(lab, { watchSeconds: 3600 });
    await untilWatch(daemon, ({ checks }) => checks?.sound >= 20);
    await Bun.sleep(NOTICED_MS);
    const seen: Row = {};
    const during = async (what: string, work: () => Promise<unknown>, wanted = 0) => {
      const before = await checksOf(daemon);
      await work();
      await until(async () => (await checksOf(daemon)) - before >= wanted);
      await Bun.sleep(NOTICED_MS);
      seen[what] = (await checksOf(daemon)) - before;
    };
    const [plain, rich] = [await lab.container(), await lab.container()];
    await during('ADD', () => runtime.add(plain));
    await during('DEL', () => runtime.del(plain));
    await during('ADD with ports and rates', () => runtime.add(rich, ASKED));
    await during('DEL with ports and rates', () => runtime.del(rich, ASKED));
    const nft = (...words: string[]) => lab.run(lab.host, ['nft', ...words]);
    await nft('add', 'table', 'ip', 'nat');
    for (const chain of ['KUBE-SERVICES', 'OTHERS']) {
      await nft('add', 'chain', 'ip', 'nat', chain);
      await nft('add', 'rule', 'ip', 'nat', chain, 'counter');
    }
    await during('a change by kube-proxy', () => nft('flush', 'chain', 'ip', 'nat', 'KUBE-SERVICES'));
    await during('a change by others', () => nft('flush', 'chain', 'ip', 'nat', 'OTHERS'), 20);
    const workers = childrenOf(daemon.pid);
    seen.processes = workers.flatMap(childrenOf).length;
    process.stdout.write(`CHECKs: ${JSON.stringify(seen)}\n`);
    expect(seen).toEqual({
      ADD: 0,
      DEL: 0,
      'ADD with ports and rates': 0,
      'DEL with ports and rates': 0,
      'a change by kube-proxy': 0,
      // Each network of each pod once, not the runner.
      'a change by others': 20,
      processes: 0,
    });
    expect(logOf(lab)).not.toContain('no longer as its ADD made it');
  });

  test('beside other plugins the runner is checked as well, and leaves no process; its list decides for all networks', async () => {
    const lab = await makeLab();
    const list = runnerList(lab, { catena: { watch: 'repair' } });
    list.plugins.push({
      type: 'tuning',
      sysctl: { 'net.core.somaxconn': '321' },
      dataDir: `${lab.tmp}/tuning`,
    });
    const runtime = containerd(lab, list);
    await runtime.add(await lab.container());
    const daemon = await startWatcher(lab, { watchSeconds: 0.2 });
    await untilWatch(daemon, ({ checks }) => checks?.sound >= 12);
    // Two of them may be at a CHECK.
    expect(childrenOf(daemon.pid).flatMap(childrenOf).length).toBeLessThanOrEqual(2);
    await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', 'br-second']);
    await untilWatch(daemon, ({ repairs, drifted }) => repairs?.repaired > 0 && drifted.length === 0);
    expect(await lab.ip(lab.host, '-4', 'addr', 'show', 'dev', 'br-second')).toHaveLength(1);
  });

  test('a DEL that takes long is not reported as damage', async () => {
    const lab = await makeLab();
    const list = runnerList(lab);
    // It waits when the second network is gone already.
    list.plugins[0].delegates[0].plugins.push({ type: 'slow' });
    const binDir = binWith(lab, 'slow', '');
    writeFileSync(
      `${binDir}/slow`,
      `#!/bin/sh\n[ "$CNI_COMMAND" = DEL ] && sleep 2\nexec ${BIN_DIR}/tuning\n`,
    );
    const runtime = containerd(lab, list, binDir);
    const [stays, goes] = [await lab.container(), await lab.container()];
    await runtime.add(stays);
    await runtime.add(goes, ASKED);
    const daemon = await startWatcher(lab, { watchSeconds: 0.3 }, { CNI_PATH: binDir });
    await untilWatch(daemon, ({ checks }) => checks?.sound >= 4);
    await runtime.del(goes, ASKED);
    await Bun.sleep(NOTICED_MS);
    expect(logOf(lab)).not.toContain('no longer as its ADD made it');
    // Real damage is still found.
    await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', 'br-second']);
    await untilWatch(daemon, ({ drifted }) => drifted.length > 0);
  });
});
