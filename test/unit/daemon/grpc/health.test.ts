// Does a client learn whether the service works, from an attempt and not from a promise?
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Client, credentials, makeGenericClientConstructor } from '@grpc/grpc-js';
import { serviceOf } from '../../../../src/daemon/grpc/schema.ts';
import { type GrpcServer, serveGrpc } from '../../../../src/daemon/grpc.ts';

let dir: string;
let server: GrpcServer;
let client: Client & Record<string, unknown>;
let isHealthy: () => Promise<boolean>;

beforeAll(async () => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-grpc-'));
  const socketPath = path.join(dir, 's');
  const observer = { started() {}, received() {}, sent() {}, finished() {} };
  const call = async () => ({ exitCode: 0, stdout: '', stderr: '' });
  server = await serveGrpc({ socketPath, call, env: {}, observer, isHealthy: () => isHealthy() });
  const Constructor = makeGenericClientConstructor(serviceOf('grpc.health.v1.Health'), 'Health');
  client = new Constructor(`unix:${socketPath}`, credentials.createInsecure()) as typeof client;
});

afterAll(async () => {
  client.close();
  await server.close(200);
  fs.rmSync(dir, { recursive: true, force: true });
});

type Reply = (error: { code: number } | null, answer: { status: number }) => void;

function check(service: string): Promise<number | string> {
  return new Promise(done => {
    const reply: Reply = (error, answer) => done(error ? `code ${error.code}` : answer.status);
    (client.Check as (request: object, reply: Reply) => void).call(client, { service }, reply);
  });
}

describe('serveHealth()', () => {
  test('makes a trial, for the server and for each service', async () => {
    isHealthy = async () => true;
    expect([await check(''), await check('pkg.cnirpc.CNI'), await check('no.Such')]).toEqual([
      1,
      1,
      'code 5',
    ]);
    isHealthy = async () => false;
    expect(await check('')).toBe(2);
    isHealthy = async () => {
      throw new Error('no worker');
    };
    expect(await check('pkg.cnirpc.CNI')).toBe(2);
  });

  test('sends changes to a watcher', async () => {
    isHealthy = async () => true;
    const stream = (client.Watch as (request: object) => NodeJS.ReadableStream & { cancel(): void }).call(
      client,
      {
        service: 'pkg.cnirpc.CNI',
      },
    );
    stream.on('error', () => {});
    const first = await new Promise(done => stream.once('data', done));
    stream.cancel();
    expect(first).toEqual({ status: 1 });
  });
});
