// Does a client written for coil's proto get answers, and errors that it can read?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { CniError } from '../../../src/cni/errors.ts';
import type { Invocation } from '../../../src/cni/invocation.ts';
import type { CallRunner } from '../../../src/daemon/grpc/services.ts';
import { type GrpcCall, type GrpcServer, serveGrpc } from '../../../src/daemon/grpc.ts';
import { type CoilClient, connectCoil } from '../../helpers/coil-client.ts';

const CALL = {
  container_id: 'c1',
  netns: '/run/netns/a',
  ifname: 'eth0',
  args: { K8S_POD_NAME: 'web', K8S_POD_NAMESPACE: 'shop', IS_CHAINED: 'false' },
  path: '/opt/cni/bin',
  stdin_data: Buffer.from('{"name":"podnet"}'),
};

let dir: string;
let socketPath: string;
let server: GrpcServer;
let client: CoilClient;
let asked: Invocation[];
let calls: GrpcCall[];
let counts: string[];
let work: (signal: AbortSignal) => Promise<object>;

beforeEach(async () => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-grpc-'));
  socketPath = path.join(dir, 'run', 'grpc.sock');
  [asked, calls, counts] = [[], [], []];
  work = async () => ({ cniVersion: '1.1.0', ips: [{ address: '10.1.0.2/24' }] });
  const call: CallRunner = async (invocation, signal) => {
    asked.push(invocation);
    return { exitCode: 0, stdout: JSON.stringify(await work(signal)), stderr: '' };
  };
  const observer = {
    started: ({ method }: { method: string }) => counts.push(`started ${method}`),
    received: ({ method }: { method: string }) => counts.push(`received ${method}`),
    sent: ({ method }: { method: string }) => counts.push(`sent ${method}`),
    finished: (call: GrpcCall) => calls.push(call),
  };
  server = await serveGrpc({ socketPath, call, env: { HOME: '/root' }, observer });
  client = connectCoil(socketPath);
});

afterEach(async () => {
  client.close();
  await server.close(500);
  fs.rmSync(dir, { recursive: true, force: true });
});

describe('serveGrpc()', () => {
  test('Add passes the request of a plugin on, and answers with the result', async () => {
    const answer = await client.call('Add', CALL);
    const result = 'ok' in answer ? Buffer.from(String(answer.ok.result), 'base64').toString() : answer;
    expect(result).toBe('{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}');
    expect(asked).toEqual([
      {
        env: {
          ...{ HOME: '/root', CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_NETNS: '/run/netns/a' },
          ...{ CNI_IFNAME: 'eth0', CNI_PATH: '/opt/cni/bin' },
          CNI_ARGS: 'K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop;IgnoreUnknown=1',
        },
        stdin: '{"name":"podnet"}',
      },
    ]);
  });

  test.each([
    { K8S_POD_NAME: 'web;K8S_POD_NAMESPACE=kube-system' },
    { 'A;B': 'c' },
    { 'A=B': 'c' },
    { '': 'c' },
  ])('refuses arguments that would become others in CNI_ARGS: %j', async args => {
    const answer = await client.call('Add', { ...CALL, args: args as unknown as typeof CALL.args });
    expect(answer).toMatchObject({ code: 3, errors: [{ code: 4, msg: expect.stringContaining('";"') }] });
    expect(asked).toEqual([]);
  });

  test('Check and Del answer with nothing', async () => {
    expect(await client.call('Check', CALL)).toEqual({ ok: {} });
    const least = { container_id: 'c1', stdin_data: Buffer.from('{"name":"podnet","plugins":[]}') };
    expect(await client.call('Del', least)).toEqual({ ok: {} });
    expect(asked.map(({ env }) => env.CNI_COMMAND)).toEqual(['CHECK', 'DEL']);
    expect(asked[1]?.env).toMatchObject({
      CNI_CONTAINERID: 'c1',
      CNI_NETNS: '',
      CNI_ARGS: 'IgnoreUnknown=1',
    });
    expect(JSON.parse(asked[1]?.stdin ?? '')).toMatchObject({
      name: 'podnet',
      type: 'catena',
      delegates: [{}],
    });
  });

  test.each([
    [7, 3, 'INVALID_ARGUMENT'],
    [11, 14, 'UNAVAILABLE'],
    [3, 5, 'NOT_FOUND'],
    [999, 13, 'INTERNAL'],
    [110, 13, 'a code of a plugin'],
  ])('an error of code %d arrives as status %d with one detail (%s)', async (code, status) => {
    work = async () => {
      throw new CniError(code, 'Cannot do it: no', { details: 'because' });
    };
    expect(await client.call('Add', CALL)).toEqual({
      code: status,
      message: 'Cannot do it: no',
      errors: [{ code, msg: 'Cannot do it: no', details: 'because' }],
    });
  });

  test('an error that is not a CniError arrives as code 999, and a long text is cut to what clients accept', async () => {
    work = async () => {
      throw new Error(`Cannot: ${'ü'.repeat(100_000)}`);
    };
    const answer = await client.call('Check', CALL);
    expect(answer).toMatchObject({
      code: 13,
      errors: [{ code: 999, msg: expect.stringMatching(/^Cannot: ü+…$/) }],
    });
    // Bytes of UTF-8, which are three characters each in a header.
    expect(Buffer.byteLength((answer as { message: string }).message)).toBeLessThanOrEqual(1_003);
  });

  test('accepts 10 MB, and refuses requests beyond its limit', async () => {
    const big = (bytes: number) => ({ ...CALL, stdin_data: Buffer.from('{}'.padEnd(bytes)) });
    expect(await client.call('Del', big(10_000_000))).toEqual({ ok: {} });
    expect(await client.call('Del', big(40_000_000))).toMatchObject({ code: 8 });
    expect(await client.call('Del', CALL)).toEqual({ ok: {} });
  });

  test('notifies the work when the client gives up', async () => {
    const aborted = Promise.withResolvers<void>();
    let hasBegun = false;
    work = signal => {
      hasBegun = true;
      return new Promise(resolve =>
        signal.addEventListener('abort', () => {
          resolve({});
          aborted.resolve();
        }),
      );
    };
    // On a busy machine a client may give up before the work has begun.
    for (let deadlineMs = 200; !hasBegun; deadlineMs *= 2)
      expect(await client.call('Add', CALL, { deadlineMs })).toMatchObject({ code: 4 });
    await aborted.promise;
  });

  test('serves a hundred clients at once, beside a silent one', async () => {
    const silent = net.connect(socketPath);
    const clients = Array.from({ length: 100 }, () => connectCoil(socketPath));
    const answers = await Promise.all(clients.map(one => one.call('Del', CALL)));
    for (const one of clients) one.close();
    silent.destroy();
    expect(answers.filter(answer => !('ok' in answer))).toEqual([]);
    expect(asked).toHaveLength(100);
  });

  test('reports every call to its observer, with its request', async () => {
    await client.call('Add', CALL);
    work = async () => {
      throw new CniError(7, 'no');
    };
    await client.call('Check', CALL);
    expect(counts).toEqual(['started Add', 'received Add', 'sent Add', 'started Check', 'received Check']);
    expect(calls).toMatchObject([
      {
        type: 'unary',
        service: 'pkg.cnirpc.CNI',
        method: 'Add',
        code: 'OK',
        request: { container_id: 'c1' },
      },
      { type: 'unary', service: 'pkg.cnirpc.CNI', method: 'Check', code: 'InvalidArgument', message: 'no' },
    ]);
    expect(calls[0]?.deadline).toBeGreaterThan(Date.now());
  });

  test('listens where only the owner may connect, and leaves nothing behind', async () => {
    expect(fs.statSync(socketPath).mode & 0o777).toBe(0o600);
    expect(fs.statSync(path.dirname(socketPath)).mode & 0o777).toBe(0o700);
    expect(fs.readdirSync(path.dirname(socketPath))).toEqual(['grpc.sock']);
    await server.close(500);
    expect(fs.readdirSync(path.dirname(socketPath))).toEqual([]);
  });

  test('ends when calls are answered, even if clients hold connections', async () => {
    const silent = net.connect(socketPath);
    await new Promise(done => silent.once('connect', done));
    let release = () => {};
    work = () =>
      new Promise(resolve => {
        release = () => resolve({});
      });
    const answer = client.call('Add', CALL);
    while (asked.length === 0) await Bun.sleep(5);
    const closed = server.close(600_000);
    await Bun.sleep(700);
    release();
    expect(await answer).toHaveProperty('ok');
    await closed;
    silent.destroy();
  });

  test('replaces an earlier one, which leaves it alone when it ends', async () => {
    const observer = { started() {}, received() {}, sent() {}, finished() {} };
    const call = async () => ({ exitCode: 0, stdout: '', stderr: '' });
    const next = await serveGrpc({ socketPath, call, env: {}, observer });
    await server.close(500);
    const late = connectCoil(socketPath);
    expect(await late.call('Del', CALL)).toEqual({ ok: {} });
    late.close();
    await next.close(500);
  });
});
