// How do nodes of a cluster get devices that the kubelet gives to pods? A device plugin (v1beta1), in the process of the harness.
//
// Each device has a number, which is in its name and its hardware address, and the kubelet puts the names that a container was given into the
// environment of that container. So who has which, and in which order, is read from /proc.
import fs from 'node:fs';
import { Client, credentials } from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import { runOk } from '../helpers/command.ts';
import type { Row } from '../helpers/netns.ts';
import { awaiting } from './awaiting.ts';
import { type Listening, listenForCalls } from './grpc-calls.ts';
import type { Node } from './node.ts';

/** Resources, each with devices of its own kind. */
export const RESOURCES = { red: 'veth', blue: 'tap' } as const;
export type Resource = keyof typeof RESOURCES;
/** What a kubelet and a definition call one. */
export const nameOf = (resource: Resource): string => `example.com/${resource}`;

const PROTO = `syntax = "proto3";
message Nothing {}
message RegisterRequest { string version = 1; string endpoint = 2; string resource_name = 3; }
message List { repeated Device devices = 1; }
message Device { string ID = 1; string health = 2; }
message AllocateRequest { repeated Asked container_requests = 1; }
message Asked { repeated string devicesIDs = 1; }
message AllocateResponse { repeated Given container_responses = 1; }
message Given { map<string, string> envs = 1; }`;

const types = protobuf.parse(PROTO, { keepCase: true }).root;
const encode = (type: string) => (value: object) =>
  Buffer.from(types.lookupType(type).encode(value).finish());
const decode = (type: string) => (bytes: Buffer) => types.lookupType(type).decode(bytes);

const DIR = '/var/lib/kubelet/device-plugins';
const LOOK_MS = 300;
/** Longest that a node takes until it has its devices again. */
const READY_S = 60;

/** The devices of a node. */
export interface Devices {
  /** By name: the hardware address. */
  readonly all: ReadonlyMap<string, string>;
  /** Names of those that are not on the host, or not as they were made there. */
  away(): Promise<string[]>;
  /** Ends the plugin, and deletes the devices. */
  close(): Promise<void>;
}

/** Makes devices on a node, and offers them to its kubelet, also to the next one and after a reboot. */
export async function offerDevices({ machine, place }: Node, each: number): Promise<Devices> {
  const { lab } = machine;
  const all = new Map<string, string>();
  const ofNode = place.name.replace(/\D/g, '');
  for (const [i, resource] of (Object.keys(RESOURCES) as Resource[]).entries())
    for (let n = 0; n < each; n++)
      all.set(`${resource}${n}`, `02:00:0${ofNode}:0${i}:00:${n.toString(16).padStart(2, '0')}`);
  let boot = 0;
  let kubelet: string | undefined;
  let servers: Listening[] = [];
  const end = (): void => {
    for (const server of servers.splice(0)) server.close();
  };
  const offer = async (): Promise<void> => {
    // The socket of a kubelet that has just started; it has removed those of all plugins.
    const { ino, ctimeMs } = fs.statSync(machine.path(`${DIR}/kubelet.sock`));
    // The number alone may be that of the former one.
    const found = `${ino} ${ctimeMs}`;
    if (found === kubelet) return;
    if (boot !== machine.init()) {
      await makeDevices(lab.host.name, all);
      boot = machine.init();
    }
    end();
    servers = await Promise.all(
      (Object.keys(RESOURCES) as Resource[]).map(one => serve(machine.path, one, all)),
    );
    kubelet = found;
  };
  let isOver = false;
  const running = (async () => {
    // Without a socket the kubelet is away, or about to make it.
    for (; !isOver; await Bun.sleep(LOOK_MS)) await offer().catch(() => undefined);
  })();
  const away = async (): Promise<string[]> => {
    const links = new Map((await lab.ip<Row[]>(lab.host, 'link')).map(link => [link.ifname, link]));
    return [...all].flatMap(([name, mac]) => {
      const { address, flags, ifalias } = links.get(name) ?? {};
      return address === mac && !flags.includes('UP') && ifalias === undefined ? [] : [name];
    });
  };
  await awaiting(`devices of ${place.name}`, READY_S, async () => kubelet !== undefined);
  return {
    all,
    away,
    async close() {
      isOver = true;
      await running;
      end();
      for (const name of all.keys()) await lab.run(lab.host, ['ip', 'link', 'del', name]);
    },
  };
}

/** Those that are missing: a reboot takes all. */
async function makeDevices(netns: string, all: ReadonlyMap<string, string>): Promise<void> {
  const lines = [...all].flatMap(([name, mac]) => {
    const isVeth = name.startsWith('red');
    const make = isVeth
      ? `link add ${name} type veth peer name ${name}-far`
      : `tuntap add dev ${name} mode tap`;
    return [make, `link set ${name} address ${mac}`];
  });
  await runOk(['ip', '-n', netns, '-force', '-batch', '-'], { stdin: `${lines.join('\n')}\n` });
}

/** Serves one resource at a socket of its own, and registers it. */
async function serve(
  pathOf: (file: string) => string,
  resource: Resource,
  all: ReadonlyMap<string, string>,
): Promise<Listening> {
  const ids = [...all.keys()].filter(name => name.startsWith(resource));
  const list = encode('List')({ devices: ids.map(ID => ({ ID, health: 'Healthy' })) });
  const endpoint = `${resource}.sock`;
  const at = pathOf(`${DIR}/${endpoint}`);
  fs.rmSync(at, { force: true });
  const server = await listenForCalls(at, message => {
    // That of ListAndWatch is empty. Its answer has no end: the kubelet would take that for the end of the plugin.
    if (message.length === 0) return { answer: list, isOpen: true };
    const { container_requests } = decode('AllocateRequest')(message) as unknown as Row;
    const given = (container_requests as { devicesIDs: string[] }[]).map(({ devicesIDs }) => ({
      envs: { [resource.toUpperCase()]: devicesIDs.join() },
    }));
    return { answer: encode('AllocateResponse')({ container_responses: given }), isOpen: false };
  });
  const client = new Client(`unix:${pathOf(`${DIR}/kubelet.sock`)}`, credentials.createInsecure());
  try {
    await new Promise<void>((done, fail) =>
      client.makeUnaryRequest(
        '/v1beta1.Registration/Register',
        encode('RegisterRequest'),
        decode('Nothing'),
        { version: 'v1beta1', endpoint, resource_name: nameOf(resource) },
        { deadline: Date.now() + 10_000 },
        error => (error ? fail(error) : done()),
      ),
    );
    return server;
  } catch (error) {
    server.close();
    throw error;
  } finally {
    client.close();
  }
}
