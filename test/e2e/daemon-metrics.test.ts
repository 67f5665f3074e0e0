// Can metrics be read over the network, and nothing else?
import { expect, test } from 'bun:test';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { type Lab, useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

interface Answer {
  readonly status: number;
  readonly body: string;
}

/** An HTTP request from inside the fake host. */
async function curl(lab: Lab, url: string, ...args: string[]): Promise<Answer | undefined> {
  const argv = ['curl', '--silent', '--max-time', '20', '--write-out', '\n%{http_code}', ...args, url];
  const { exitCode, stdout } = await lab.run(lab.host, argv, { timeoutMs: 30_000 });
  if (exitCode !== 0) return undefined;
  const at = stdout.lastIndexOf('\n');
  return { status: Number(stdout.slice(at + 1)), body: stdout.slice(0, at) };
}

describeRoot(
  'a daemon with --metrics',
  () => {
    const makeLab = useLabs();

    test('serves metrics and its health at that address, and no verb', async () => {
      const lab = await makeLab();
      const chain = writeChain(lab, fullChain(lab));
      const container = await lab.container();
      const daemon = await startDaemon(lab, '--metrics', '127.0.0.1:9464');
      await until(() => daemon.said().includes('metrics at 127.0.0.1:9464'));
      await chain.add(container);
      const at = 'http://127.0.0.1:9464';
      const page = await curl(lab, `${at}/metrics`);
      expect(page?.status).toBe(200);
      expect(page?.body.split('\n')).toContain(
        'catena_requests_total{verb="ADD",network="podnet",code="0"} 1',
      );
      expect(await curl(lab, `${at}/healthz`)).toEqual({ status: 200, body: 'ok\n' });

      for (const path of ['/', '/v1/state', '/v1/traces', '/v1/attachments', '/readyz', '/metrics/x'])
        expect(await curl(lab, `${at}${path}`)).toMatchObject({ status: 404 });
      for (const verb of ['call', 'stop', 'handover'])
        expect(
          await curl(lab, `${at}/v1/${verb}`, '--json', '{"network":"podnet","all":true}'),
        ).toMatchObject({ status: 413 });
      for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS'])
        expect(await curl(lab, `${at}/metrics`, '--request', method)).toMatchObject({ status: 405 });
      expect((await chain.run('check', container)).exitCode).toBe(0);
      expect(await daemon.stop()).toBe(0);
    });

    test('listens at that address only, or at every one if it is asked to', async () => {
      const lab = await makeLab();
      const one = await startDaemon(lab, '--metrics', '127.0.0.1:9464');
      // It says that it takes calls before it has opened the address.
      await until(() => one.said().includes('metrics at 127.0.0.1:9464'));
      const listening = async () => {
        const { stdout } = await lab.run(lab.host, ['ss', '-Hltn']);
        return stdout.split('\n').flatMap(line => line.split(/\s+/)[3] ?? []);
      };
      expect(await listening()).toEqual(['127.0.0.1:9464']);
      expect(await one.stop()).toBe(0);
      const every = await startDaemon(lab, '--metrics', '*:9464');
      await until(async () => (await listening()).length > 0);
      expect(await curl(lab, 'http://127.0.0.1:9464/healthz')).toMatchObject({ status: 200 });
      expect(await curl(lab, 'http://[::1]:9464/healthz')).toMatchObject({ status: 200 });
      expect(await every.stop()).toBe(0);
      expect(await listening()).toEqual([]);
    });

    test('hands the address over to its successor', async () => {
      const lab = await makeLab();
      const first = await startDaemon(lab, '--metrics', '127.0.0.1:9464');
      const second = await startDaemon(lab, '--metrics', '127.0.0.1:9464', '--replace');
      expect(await first.exited).toBe(3);
      await until(() => second.said().includes('metrics at 127.0.0.1:9464'));
      expect(await curl(lab, 'http://127.0.0.1:9464/healthz')).toMatchObject({ status: 200 });
      expect(await second.stop()).toBe(0);
    });
  },
  requires('curl', 'ss'),
);
