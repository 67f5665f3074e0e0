// How does a test request pods from a container runtime, as kubelet does?

import path from 'node:path';
import { Client, credentials, type ServiceDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import type { Published } from './published.ts';

/** The variable part of a pod request; the rest is the same for all. */
export interface PodRequest {
  readonly name: string;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly ports?: readonly Published[];
}

/** A running pod. */
export interface Pod {
  readonly id: string;
  /** Process id inside the machine. */
  readonly pid: number;
  /** Addresses as kubelet sees them: the pod's primary one first, then the others. */
  readonly ips: readonly string[];
}

/** The runtime service that kubelet talks to. Errors are those of gRPC, with the runtime's message. */
export interface Cri {
  /** Whether pods can have networks, if not, why not, and the names of those that they get. */
  networkStatus(): Promise<{ ready: boolean; message: string; networks: readonly string[] }>;
  runPod(request: PodRequest): Promise<Pod>;
  stopPod(id: string): Promise<void>;
  removePod(id: string): Promise<void>;
  close(): void;
}

const PROTO = path.resolve(import.meta.dir, '../fixtures/cri.proto');
const DEADLINE_MS = 40_000;

// biome-ignore lint/suspicious/noExplicitAny: messages have the shape of the .proto file, which no type knows
type Message = Record<string, any>;

/** Connects to the runtime's socket; `cgroupParent` is the parent of its pods' cgroups. */
export function connectCri(socket: string, cgroupParent: string): Cri {
  const service = loadSync(PROTO, { enums: String, longs: Number })[
    'runtime.v1.RuntimeService'
  ] as ServiceDefinition;
  const client = new Client(`unix://${socket}`, credentials.createInsecure());
  const call = (method: string, request: Message): Promise<Message> =>
    new Promise((resolve, reject) => {
      const {
        path: name,
        requestSerialize,
        responseDeserialize,
      } = service[method] as ServiceDefinition[string];
      const deadline = Date.now() + DEADLINE_MS;
      client.makeUnaryRequest(
        name,
        requestSerialize,
        responseDeserialize,
        request,
        { deadline },
        (error, reply) => {
          if (error) reject(error);
          else resolve(reply as Message);
        },
      );
    });
  return {
    async networkStatus() {
      const { status, info } = await call('Status', { verbose: true });
      const network = status.conditions.find(({ type }: Message) => type === 'NetworkReady');
      const { Networks = [] } = JSON.parse(info.cniconfig);
      // The first is the loopback device's.
      const networks = Networks.slice(1).map(({ Config }: Message) => Config.Name);
      return { ready: network.status ?? false, message: network.message ?? '', networks };
    },
    async runPod({ name, annotations = {}, ports = [] }) {
      const config = {
        metadata: { name, uid: `uid-of-${name}`, namespace: 'default' },
        hostname: name,
        annotations,
        portMappings: ports.map(({ protocol, ...port }) => ({ protocol: protocol.toUpperCase(), ...port })),
        linux: { cgroupParent },
      };
      const { podSandboxId: id } = await call('RunPodSandbox', { config });
      const { status, info } = await call('PodSandboxStatus', { podSandboxId: id, verbose: true });
      const { ip, additionalIps = [] } = status.network;
      return {
        id,
        pid: JSON.parse(info.info).pid,
        ips: [ip, ...additionalIps.map((one: Message) => one.ip)],
      };
    },
    async stopPod(podSandboxId) {
      await call('StopPodSandbox', { podSandboxId });
    },
    async removePod(podSandboxId) {
      await call('RemovePodSandbox', { podSandboxId });
    },
    close: () => client.close(),
  };
}
