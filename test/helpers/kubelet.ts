// How does a test get a kubelet that tells which devices its pods have? A real gRPC server on a unix socket.
import fs from 'node:fs';
import path from 'node:path';
import { Server, ServerCredentials, type ServiceDefinition, status } from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import type { Row } from './netns.ts';

/** A pod and its containers, each with devices by resource. */
export interface KubeletPodDevices {
  readonly namespace?: string;
  readonly name: string;
  readonly containers: readonly Readonly<Record<string, readonly string[]>>[];
}

/** How it answers: with its pods, never, with 20 MB, with bytes that are no message, or with an error. */
export type KubeletMood = 'well' | 'hang' | 'huge' | 'broken' | 'error';

export interface Kubelet {
  /** Its directory, as for `kubeletDir`. */
  readonly dir: string;
  pods: KubeletPodDevices[];
  mood: KubeletMood;
  /** Calls so far, by version. */
  readonly calls: string[];
  /** Writes the file in which a kubelet notes the devices, in place of the socket or with any content. */
  note(content: string | object): void;
  /** Stops serving; the socket stays, as that of a kubelet that was killed. */
  kill(): void;
  serve(): Promise<void>;
  close(): void;
}

/** With fields that nothing reads, as kubelets send them. */
const PROTO = `syntax = "proto3";
service PodResourcesLister { rpc List(Nothing) returns (Answer); }
message Nothing {}
message Answer { repeated Pod pods = 1; }
message Pod { string name = 1; string namespace = 2; repeated Container containers = 3; }
message Container { string name = 1; repeated Devices devices = 2; repeated int64 cpu_ids = 3; repeated Dynamic dynamic = 5; }
message Devices { string resource_name = 1; repeated string device_ids = 2; Topology topology = 3; }
message Topology { repeated Node nodes = 1; }
message Node { int64 ID = 1; }
message Dynamic { string claim_name = 2; }`;

/** Starts one that speaks these versions of its service. */
export async function startKubelet(
  dir: string,
  versions: readonly string[] = ['v1', 'v1alpha1'],
): Promise<Kubelet> {
  const socket = path.join(dir, 'pod-resources/kubelet.sock');
  fs.mkdirSync(path.dirname(socket), { recursive: true });
  const calls: string[] = [];
  let server: Server | undefined;
  const kubelet: Kubelet = {
    dir,
    pods: [],
    mood: 'well',
    calls,
    note(content) {
      fs.rmSync(path.dirname(socket), { recursive: true, force: true });
      fs.mkdirSync(path.join(dir, 'device-plugins'), { recursive: true });
      const text = typeof content === 'string' ? content : JSON.stringify(content);
      fs.writeFileSync(path.join(dir, 'device-plugins/kubelet_internal_checkpoint'), text);
    },
    kill() {
      const kept = `${socket}.kept`;
      fs.renameSync(socket, kept);
      server?.forceShutdown();
      server = undefined;
      fs.renameSync(kept, socket);
    },
    async serve() {
      fs.rmSync(socket, { force: true });
      server = await listen(socket, versions, kubelet);
    },
    close: () => server?.forceShutdown(),
  };
  await kubelet.serve();
  return kubelet;
}

async function listen(socket: string, versions: readonly string[], kubelet: Kubelet): Promise<Server> {
  const answerType = protobuf.parse(PROTO, { keepCase: true }).root.lookupType('Answer');
  const server = new Server();
  for (const version of versions) {
    const definition: ServiceDefinition = {
      List: {
        path: `/${version}.PodResourcesLister/List`,
        requestStream: false,
        responseStream: false,
        requestSerialize: () => Buffer.alloc(0),
        requestDeserialize: bytes => bytes,
        responseSerialize: (bytes: Buffer) => bytes,
        responseDeserialize: bytes => bytes,
      },
    };
    server.addService(definition, {
      List(_call: unknown, reply: (error: object | null, bytes?: Buffer) => void) {
        kubelet.calls.push(version);
        if (kubelet.mood === 'hang') return;
        if (kubelet.mood === 'error') return reply({ code: status.INTERNAL, details: 'no memory left' });
        reply(null, kubelet.mood === 'broken' ? Buffer.from([0x0a, 0x7f, 1]) : encode(answerType, kubelet));
      },
    });
  }
  await new Promise<void>((done, fail) => {
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), error =>
      error ? fail(error) : done(),
    );
  });
  return server;
}

function encode(type: protobuf.Type, { pods, mood }: Kubelet): Buffer {
  const listed: Row[] = pods.map(({ namespace = 'ns', name, containers }) => ({
    name,
    namespace,
    containers: containers.map((devices, i) => ({
      name: `c${i}`,
      cpu_ids: [1, 2],
      dynamic: [{ claim_name: 'gpu' }],
      devices: Object.entries(devices).map(([resource, ids]) => ({
        resource_name: resource,
        device_ids: ids,
        topology: { nodes: [{ ID: 1 }] },
      })),
    })),
  }));
  if (mood === 'huge') listed.push({ name: 'x'.repeat(20 * 1024 * 1024), namespace: 'ns' });
  return Buffer.from(type.encode(type.fromObject({ pods: listed })).finish());
}
