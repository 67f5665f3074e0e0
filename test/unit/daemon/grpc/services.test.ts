// Can a client that knows nothing of our schemas learn them, in both versions of the protocol?

import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Client, credentials, makeGenericClientConstructor } from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import { FileDescriptorProto, type IFileDescriptorProto } from 'protobufjs/ext/descriptor';
import { serviceOf } from '../../../../src/daemon/grpc/schema.ts';
import { type GrpcServer, serveGrpc } from '../../../../src/daemon/grpc.ts';

interface Response {
  readonly list_services_response?: { readonly service: readonly { readonly name: string }[] };
  readonly file_descriptor_response?: { readonly file_descriptor_proto: readonly Buffer[] };
  readonly error_response?: { readonly error_code: number };
}

let dir: string;
let server: GrpcServer;
const clients: Client[] = [];

beforeAll(async () => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-grpc-'));
  const observer = { started() {}, received() {}, sent() {}, finished() {} };
  const call = async () => ({ exitCode: 0, stdout: '', stderr: '' });
  server = await serveGrpc({ socketPath: path.join(dir, 's'), call, env: {}, observer });
});

afterAll(async () => {
  for (const client of clients) client.close();
  await server.close(200);
  fs.rmSync(dir, { recursive: true, force: true });
});

/** Asks several questions on one stream. */
function ask(version: string, ...questions: object[]): Promise<Response[]> {
  const name = `grpc.reflection.${version}.ServerReflection`;
  const Constructor = makeGenericClientConstructor(serviceOf(name), name);
  const client = new Constructor(`unix:${path.join(dir, 's')}`, credentials.createInsecure());
  clients.push(client);
  const stream = (client.ServerReflectionInfo as () => NodeJS.ReadWriteStream).call(client);
  const answers: Response[] = [];
  return new Promise((done, fail) => {
    stream.on('data', answer => answers.push(answer as unknown as Response));
    stream.on('end', () => done(answers));
    stream.on('error', fail);
    for (const question of questions) stream.write(question as never);
    stream.end();
  });
}

function filesIn({ file_descriptor_response: response }: Response): IFileDescriptorProto[] {
  return (response?.file_descriptor_proto ?? []).map(bytes =>
    FileDescriptorProto.toObject(FileDescriptorProto.decode(bytes), { enums: String }),
  );
}

describe.each(['v1', 'v1alpha'])('serveReflection() %s', version => {
  test('lists every service', async () => {
    const [answer] = await ask(version, { list_services: '' });
    expect(answer?.list_services_response?.service.map(({ name }) => name)).toEqual([
      'pkg.cnirpc.CNI',
      'grpc.health.v1.Health',
      'grpc.reflection.v1.ServerReflection',
      'grpc.reflection.v1alpha.ServerReflection',
    ]);
  });

  test('returns the file of a symbol, with its imports, and reports unknown ones', async () => {
    const questions = [
      'pkg.cnirpc.CNI',
      'pkg.cnirpc.CNI.Add',
      'pkg.cnirpc.CNIArgs',
      'pkg.cnirpc',
      'no.such.Thing',
    ];
    const answers = await ask(version, ...questions.map(name => ({ file_containing_symbol: name })));
    const files = answers.map(answer => filesIn(answer).map(({ name }) => name));
    const both = ['cni.proto', 'google/protobuf/empty.proto'];
    expect(files).toEqual([both, both, both, [], []]);
    expect(answers.at(-1)?.error_response?.error_code).toBe(5);
  });

  test('returns a file by its name', async () => {
    const name = `grpc/reflection/${version}/reflection.proto`;
    const [known, unknown] = await ask(version, { file_by_filename: name }, { file_by_filename: 'x.proto' });
    expect(known && filesIn(known)).toMatchObject([{ name, package: `grpc.reflection.${version}` }]);
    expect(unknown?.error_response?.error_code).toBe(5);
  });
});

describe('descriptors', () => {
  test('match the proto file', async () => {
    const [answer] = await ask('v1', { file_containing_symbol: 'pkg.cnirpc.CNI' });
    const packed = answer?.file_descriptor_response?.file_descriptor_proto ?? [];
    const { fromDescriptor } = protobuf.Root as unknown as { fromDescriptor(set: object): protobuf.Root };
    const root = fromDescriptor({ file: packed.map(bytes => FileDescriptorProto.decode(bytes)) });
    root.resolveAll();
    const text = fs.readFileSync(path.join(import.meta.dir, '../../../../src/daemon/cni.proto'), 'utf8');
    const args = {
      container_id: 'c1',
      netns: '/n',
      ifname: 'eth0',
      args: { K: 'v' },
      path: '/p',
      stdin_data: Buffer.from('{}'),
      ips: ['10.1.0.2'],
      interfaces: { eth0: true },
    };
    const written = protobuf.parse(text, { keepCase: true }).root.lookupType('pkg.cnirpc.CNIArgs');
    const described = root.lookupType('pkg.cnirpc.CNIArgs');
    const bytes = written.encode(written.fromObject(args)).finish();
    // A map is a list of pairs on the wire, and that is how this reader of descriptors takes it.
    expect(Buffer.from(described.encode(described.decode(bytes)).finish())).toEqual(Buffer.from(bytes));
    expect(root.lookupEnum('pkg.cnirpc.ErrorCode').values).toMatchObject({
      TRY_AGAIN_LATER: 11,
      INTERNAL: 999,
    });
  });

  test('name maps as readers of descriptors require', async () => {
    const [answer] = await ask('v1', { file_containing_symbol: 'pkg.cnirpc.CNIArgs' });
    const [args] = (answer && filesIn(answer)[0]?.messageType) ?? [];
    expect(args?.nestedType?.map(({ name }) => name)).toEqual(['ArgsEntry', 'InterfacesEntry']);
    expect(args?.field?.find(({ name }) => name === 'args')).toMatchObject({
      label: 'LABEL_REPEATED',
      type: 'TYPE_MESSAGE',
      typeName: '.pkg.cnirpc.CNIArgs.ArgsEntry',
    });
  });
});

describe('health', () => {
  // Does a client learn whether the service works, from an attempt and not from a promise?
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
});
