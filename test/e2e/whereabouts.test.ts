// Do the executables give addresses of whereabouts' objects, whatever a crash or another program has left on the node or in a pool?
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run, TEST_PATH } from '../helpers/command.ts';
import { makeCertificates, renderKubeconfig } from '../helpers/kubernetes.ts';
import { directories, type Row } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { apiModel } from '../simulator/api-model.ts';

const POOLS = 'apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools';

describe('whereabouts', () => {
  const model = apiModel();
  let dir: string;
  let server: Server;
  let kubeconfig: string;
  let networks = 0;
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'cat-whereabouts-'));
    await makeCertificates(dir);
    const read = (name: string) => readFileSync(join(dir, name));
    server = createServer({ cert: read('server.crt'), key: read('server.key') }, (asked, reply) => {
      let body = '';
      asked.on('data', chunk => {
        body += chunk;
      });
      asked.on('end', () => {
        const method = asked.method as Parameters<typeof model.handle>[0];
        const answer = model.handle(method, asked.url?.slice(1) ?? '', body ? JSON.parse(body) : undefined);
        reply.writeHead(answer.status, { 'content-type': 'application/json' });
        reply.end(JSON.stringify(answer.object));
      });
    });
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    kubeconfig = join(dir, 'kubeconfig');
    writeFileSync(
      kubeconfig,
      renderKubeconfig(`https://127.0.0.1:${port}`, read('ca.crt').toString('base64')),
    );
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
    rmSync(dir, { recursive: true, force: true });
  });

  /** A network with a range of its own, of six addresses. */
  function network() {
    const number = ++networks;
    const name = `net${number}`;
    const dataDir = join(dir, 'leases');
    const ipam = { type: 'whereabouts', range: `10.80.${number}.0/29`, dataDir, kubernetes: { kubeconfig } };
    const conf = { cniVersion: '1.1.0', name, type: 'bridge', ipam };
    const call = async (command: string, id: string, more: Row = {}, args = '', env = {}) => {
      const { exitCode, stdout } = await run([`${BIN_DIR}/whereabouts`], {
        env: {
          PATH: TEST_PATH,
          ...directories(dir),
          CNI_COMMAND: command,
          CNI_PATH: BIN_DIR,
          CNI_CONTAINERID: id,
          CNI_NETNS: '/run/netns/unused',
          CNI_IFNAME: 'eth0',
          CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${id}${args}`,
          ...env,
        },
        stdin: JSON.stringify({ ...conf, ...more }),
      });
      const reply = JSON.parse(stdout || '{}');
      const address: string | undefined = reply.ips?.[0]?.address?.split('/')[0];
      return { exitCode, reply, address };
    };
    const path = `${POOLS}/10.80.${number}.0-29`;
    const notes = join(dataDir, name);
    const at = (last: number) => `10.80.${number}.${last}`;
    return { call, path, notes, at, conf };
  }

  test('ADD goes on after the address that the node got last, so one that cannot be used does not stop it', async () => {
    const { call, at } = network();
    expect(await call('ADD', 'a')).toMatchObject({ exitCode: 0, address: at(1) });
    expect(await call('DEL', 'a')).toMatchObject({ exitCode: 0 });
    expect(await call('ADD', 'b')).toMatchObject({ address: at(2) });
    for (const last of [3, 4, 5, 6, 1]) expect((await call('ADD', `c${last}`)).address).toBe(at(last));
    expect((await call('ADD', 'none')).reply).toMatchObject({ code: 11 });
  });

  test('an address whose entry another program removed while an attachment has it is given last', async () => {
    const { call, at, path } = network();
    for (const last of [1, 2, 3]) expect((await call('ADD', `c${last}`)).address).toBe(at(last));
    const operations = [1, 3].map(offset => ({ op: 'remove', path: `/spec/allocations/${offset}` }));
    expect(model.handle('PATCH', path, operations).status).toBe(200);
    for (const last of [4, 5, 6, 1]) expect((await call('ADD', `d${last}`)).address).toBe(at(last));
  });

  test('[1.1.0] notes that a power failure left empty stop no ADD, and GC removes them', async () => {
    const { call, at, notes } = network();
    mkdirSync(notes, { recursive: true });
    for (let last = 1; last <= 6; last++) writeFileSync(join(notes, at(last)), '');
    expect(await call('ADD', 'a')).toMatchObject({ exitCode: 0, address: at(1) });
    expect(readFileSync(join(notes, at(1)), 'utf8')).toBe('a\r\neth0');
    const valid = { 'cni.dev/valid-attachments': [{ containerID: 'a', ifname: 'eth0' }] };
    expect(await call('GC', '', valid)).toMatchObject({ exitCode: 0 });
    expect(readdirSync(notes).filter(name => name.startsWith('10.'))).toEqual([at(1)]);
  });

  test('CHECK fails once the pool has another address for the container than it got', async () => {
    const { call, path, at } = network();
    const { reply } = await call('ADD', 'a');
    expect(await call('CHECK', 'a', { prevResult: reply })).toMatchObject({ exitCode: 0 });
    const operations = [
      { op: 'remove', path: '/spec/allocations/1' },
      { op: 'add', path: '/spec/allocations/5', value: { id: 'a', podref: 'ns/a', ifname: 'eth0' } },
    ];
    model.handle('PATCH', path, operations);
    const { reply: refused } = await call('CHECK', 'a', { prevResult: reply });
    expect(refused.msg).toContain(
      `Cannot confirm address ${at(1)} of container "a", interface "eth0": it holds ${at(5)}`,
    );
  });

  test("ADD refuses to give an address of another node's slice", async () => {
    const { call, conf, at } = network();
    const [range, other] = [`${at(0)}/28`, at(12)];
    const name = range.replace('/', '-');
    const allocations = [{ nodeName: 'a', sliceRange: `${at(0)}/29` }];
    const slices = POOLS.replace('ippools', 'nodeslicepools');
    model.put(`${slices}/${name}`, { metadata: { name }, status: { allocations } });
    const sliced = { ipam: { ...conf.ipam, range, node_slice_size: '/29' } };
    const add = (ip: string) => call('ADD', 'a', sliced, `;IP=${ip}`, { NODENAME: 'a' });
    expect((await add(other)).reply).toMatchObject({
      code: 11,
      msg: expect.stringContaining(`it is not in this node's slice ${at(0)}/29`),
    });
    expect(await add(at(4))).toMatchObject({ exitCode: 0, address: at(4) });
  });

  test('CHECK finds an address of the slice that the node had when the container got it', async () => {
    const { call, conf, at } = network();
    const range = `${at(0)}/28`;
    const name = range.replace('/', '-');
    const slices = POOLS.replace('ippools', 'nodeslicepools');
    const assign = (sliceRange: string) =>
      model.put(`${slices}/${name}`, {
        metadata: { name },
        status: { allocations: [{ nodeName: 'a', sliceRange }] },
      });
    const sliced = { ipam: { ...conf.ipam, range, node_slice_size: '/29' } };
    const env = { NODENAME: 'a' };
    assign(`${at(0)}/29`);
    const { reply } = await call('ADD', 'a', sliced, '', env);
    assign(`${at(8)}/29`);
    const check = (id: string) => call('CHECK', id, { ...sliced, prevResult: reply }, '', env);
    expect(await check('a')).toMatchObject({ exitCode: 0 });
    expect((await check('b')).reply.msg).toContain('Cannot find an address of container "b"');
    expect(await call('DEL', 'a', sliced, '', env)).toMatchObject({ exitCode: 0 });
    expect((await check('a')).reply.msg).toContain('Cannot find an address of container "a"');
  });

  test('DEL works with CNI_ARGS that ADD refuses', async () => {
    const { call, path } = network();
    expect(await call('ADD', 'a')).toMatchObject({ exitCode: 0 });
    for (const CNI_ARGS of ['OTHER=1', 'OTHER']) {
      const asked = { CNI_ARGS };
      expect((await call('ADD', 'b', {}, '', asked)).reply).toMatchObject({ code: 4 });
      for (const id of ['a', 'b'])
        expect(await call('DEL', id, {}, '', asked)).toMatchObject({ exitCode: 0 });
    }
    const { object } = model.handle('GET', path);
    expect((object as Row).spec.allocations).toEqual({});
  });

  test.each<Row>([{ exclude: 'x' }, { routes: [{ dst: 'x' }] }, { ipRanges: [{ range: 'x' }] }])(
    'DEL works with %j, which ADD refuses',
    async more => {
      const { call, path, conf } = network();
      expect(await call('ADD', 'a')).toMatchObject({ exitCode: 0 });
      const refused = { ipam: { ...conf.ipam, ...more } };
      expect((await call('ADD', 'b', refused)).reply).toMatchObject({ code: 7 });
      for (const id of ['a', 'b']) expect(await call('DEL', id, refused)).toMatchObject({ exitCode: 0 });
      const { object } = model.handle('GET', path);
      expect((object as Row).spec.allocations).toEqual({});
    },
  );

  test('ADD refuses two addresses of one range in CNI_ARGS, before anything is allocated', async () => {
    const { call, at, notes } = network();
    const { reply } = await call('ADD', 'a', {}, `;IP=${at(2)},${at(3)}`);
    expect(reply).toMatchObject({ code: 4, msg: expect.stringContaining('gives an attachment one address') });
    expect(existsSync(notes)).toBe(false);
    expect(await call('ADD', 'a', {}, `;IP=${at(3)}`)).toMatchObject({ address: at(3) });
  });
});
