// Does `catena why-not` name what stops a connection from outside, and does its command mend it?
import { expect, test } from 'bun:test';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { directories, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

const CAP = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };

describeRoot('why-not', () => {
  test('names the hop of each cause; its command lets packets pass again', () =>
    withHost(async lab => {
      const pod = await lab.container();
      const outside = await lab.outside();
      await writeChain(lab, fullChain(lab)).add(pod, { cap: CAP });
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const ask = async (port = 8080) => {
        const argv = [CATENA, 'why-not', `:${port}`];
        const { exitCode, stdout } = await lab.run(lab.host, [...argv, '--json'], { env, timeoutMs: 50_000 });
        const { outcome, simulated, hops } = JSON.parse(stdout);
        return { exitCode, outcome, simulated, last: hops.at(-1) };
      };
      const answers = async () =>
        (await echo(lab, outside, {
          protocol: 'tcp',
          address: outside.hostAddress.v4,
          port: 8080,
          timeoutMs: 700,
        })) !== undefined;
      const stopped = (name: string, mend?: unknown) => ({
        ...{ exitCode: 1, outcome: 'stopped', simulated: false },
        last: { name, state: 'stops', evidence: expect.any(String), ...(mend ? { mend } : {}) },
      });

      expect(await answers()).toBe(false);
      expect(await ask()).toEqual(stopped('listener'));
      await lab.ip(pod, 'link', 'set', 'lo', 'up');
      const local = await startServer(lab, pod, {
        protocol: 'tcp',
        port: 80,
        address: '127.0.0.1',
        seconds: 50,
      });
      expect(await answers()).toBe(false);
      expect((await ask()).last.evidence).toBe('processes listen on port 80 of 127.0.0.1 only');
      await local.stop();
      const server = await startServer(lab, pod, { protocol: 'tcp', port: 80, seconds: 50 });
      expect(await answers()).toBe(true);
      expect(await ask()).toMatchObject({ exitCode: 3, outcome: 'unknown', last: { state: 'passes' } });
      expect(await ask(8081)).toEqual(stopped('mapping'));

      const [peer = {}] = await lab.ip(lab.host, 'link', 'show', 'master', 'br0');
      const causes = [
        ['translation', ['nft', 'flush', 'ruleset']],
        ['forwarding', ['sysctl', '-qw', 'net.ipv4.ip_forward=0']],
        ['device', ['ip', 'link', 'set', peer.ifname, 'down']],
        ['device', ['nsenter', `--net=${pod.path}`, 'ip', 'link', 'set', 'eth0', 'down']],
      ] as const;
      for (const [name, argv] of causes) {
        await lab.run(lab.host, [...argv]);
        expect([name, await answers()]).toEqual([name, false]);
        const found = await ask();
        expect(found).toEqual(stopped(name, expect.any(String)));
        const mend = found.last.mend.replace('catena ', `${CATENA} `);
        await lab.run(lab.host, ['sh', '-c', mend], { env, timeoutMs: 50_000 });
        expect([mend, await answers()]).toEqual([mend, true]);
      }

      // Foreign rules may lead the port elsewhere, so nothing is certain.
      await lab.nft(lab.host, 'add', 'table', 'ip', 'foreign');
      expect(await ask(8081)).toMatchObject({ exitCode: 3, outcome: 'unknown', last: { state: 'unknown' } });
      await server.stop();
      const unsure = {
        name: 'listener',
        state: 'unknown',
        evidence: expect.stringContaining('foreign rules'),
      };
      expect(await ask()).toMatchObject({ exitCode: 3, outcome: 'unknown', last: unsure });
    }));
});
