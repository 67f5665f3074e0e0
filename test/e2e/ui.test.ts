// Does `catena ui` show what the other commands print, to one browser, and to nothing else?

import { expect, test } from 'bun:test';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { type Container, directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { startUi, type Ui } from '../helpers/ui.ts';
import { until } from '../helpers/until.ts';

interface Scene {
  readonly lab: Lab;
  readonly pod: Container;
  readonly ui: Ui;
}

async function onNode(body: (scene: Scene) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const chain = writeChain(lab, fullChain(lab));
    const pod = await lab.container();
    const cap = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };
    await chain.add(pod, { cap, args: ['--trace'] });
    await body({ lab, pod, ui: await startUi(lab) });
  });
}

describeRoot('catena ui', () => {
  test('prints an address of the loopback device, listens there only, and ends with a signal', () =>
    onNode(async ({ lab, ui }) => {
      expect(ui.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/\?token=[\w-]{43}$/);
      const { stdout } = await lab.run(lab.host, ['ss', '-Hltn', `sport = :${ui.port}`]);
      expect(stdout.trim().split(/\s+/)[3]).toBe(`127.0.0.1:${ui.port}`);
      ui.process.kill('SIGINT');
      expect(await ui.process.exited).toBe(0);
    }));

  test('exchanges its token once for a cookie that other ports and pages do not get', () =>
    onNode(async ({ ui }) => {
      const first = await ui.get(ui.path);
      expect(first.status).toBe(200);
      const cookie = first.headers['set-cookie']?.[0] ?? '';
      expect(cookie).toMatch(/^catena-ui=[\w-]{43}; Path=\/[\w-]{43}\/; HttpOnly; SameSite=Strict$/);
      expect((await ui.get(ui.path)).status).toBe(403);
      const folder = /Path=([^;]+)/.exec(cookie)?.[1] ?? '';
      expect(first.body).toContain(`url=${folder}`);
      const own = { cookie: cookie.split(';')[0] ?? '' };
      expect((await ui.get(folder, own)).status).toBe(200);
      expect((await ui.get(folder)).status).toBe(403);
      expect((await ui.get(folder, { cookie: 'catena-ui=wrong' })).status).toBe(403);
      expect((await ui.get('/', own)).status).toBe(403);
      expect((await ui.get(`${folder}api/node`)).status).toBe(403);
    }));

  test('refuses other names, other origins, other methods and other paths', () =>
    onNode(async ({ ui }) => {
      const { folder, cookie } = await ui.enter();
      const api = `${folder}api/node`;
      expect((await ui.get(api, { cookie, host: `evil.example:${ui.port}` })).status).toBe(421);
      expect((await ui.get(api, { cookie, host: '127.0.0.1:1' })).status).toBe(421);
      for (const site of ['cross-site', 'same-site'])
        expect((await ui.get(api, { cookie, 'sec-fetch-site': site })).status).toBe(403);
      for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'HEAD'])
        expect([method, (await ui.get(api, { cookie }, method)).status]).toEqual([method, 405]);
      for (const path of ['api/add', 'api/../../etc/passwd', 'api/traces/--kernel', 'main.tsx', 'api/'])
        expect([path, (await ui.get(folder + path, { cookie })).status]).toEqual([
          path,
          path.includes('..') ? 403 : 404,
        ]);
      const { headers } = await ui.get(folder, { cookie });
      expect(headers['access-control-allow-origin']).toBeUndefined();
      expect(headers['content-security-policy']).toStartWith(
        "default-src 'none'; script-src 'self'; style-src 'self'",
      );
      expect(headers).toMatchObject({
        'cache-control': 'no-store',
        'cross-origin-resource-policy': 'same-origin',
        'referrer-policy': 'no-referrer',
        'x-content-type-options': 'nosniff',
      });
    }));

  test('answers with what the commands print, with health, and without it if nothing has changed', () =>
    onNode(async ({ lab, pod, ui }) => {
      const { folder, cookie } = await ui.enter();
      const read = async (path: string) => {
        const { status, body } = await ui.get(`${folder}api/${path}`, { cookie });
        if (status !== 200) throw new Error(`${path}: ${status} ${body}`);
        return JSON.parse(body);
      };
      const health = async () => (await read('node')).attachments[0].health?.state;
      await until(async () => (await health()) === 'sound', { withinMs: 30_000 });
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const printed = async (...args: string[]) =>
        JSON.parse((await lab.run(lab.host, [CATENA, ...args, '--json'], { env })).stdout);
      const { time: _, checkedAt, ...node } = await read('node');
      const { time: __, ...listed } = await printed('ls', '--check');
      expect(node).toEqual(listed);
      expect(Date.parse(checkedAt)).toBeGreaterThan(0);
      const [trace] = await read('traces');
      expect(trace).toMatchObject({ verb: 'ADD', containerId: pod.id, code: 0 });
      expect(await read(`traces/${trace.id}`)).toEqual(await printed('log', trace.id));
      expect((await read('leases'))[0]).toMatchObject({ network: 'podnet', containerId: pod.id });
      expect((await read('log')).items).toEqual((await printed('log')).items);
      expect((await read('findings')).findings.length).toBeGreaterThan(5);

      const { headers } = await ui.get(`${folder}api/leases`, { cookie });
      const again = { cookie, 'if-none-match': headers.etag ?? '' };
      expect(await ui.get(`${folder}api/leases`, again)).toMatchObject({ status: 304, body: '' });
      await lab.ip(pod, 'link', 'delete', 'eth0');
      await until(async () => (await health()) === 'broken', { withinMs: 30_000 });
    }));

  test('ends when it has not been asked for a while, and says if a port is taken', () =>
    withHost(async lab => {
      const { port } = await startUi(lab);
      const second = await lab.run(lab.host, [CATENA, 'ui', '--port', String(port)]);
      expect([second.exitCode, second.stderr]).toEqual([1, expect.stringContaining('choose another --port')]);
      const idle = await startUi(lab, '--idle-exit', '1');
      expect(await idle.process.exited).toBe(0);
    }));
});
