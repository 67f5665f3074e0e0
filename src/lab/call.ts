// What is one call of a plugin: its environment, its request, and its answer?

import { ErrorCode, type ErrorReply } from '../cni/errors.ts';
import { defined, isObject, type JsonObject, tryParse } from '../cni/json.ts';
import { VALID_ATTACHMENTS } from '../cni/schemas.ts';
import { FAULT_NOTE } from '../sys/fault.ts';

/** The commands of the protocol; a test of the environment may send something else. */
export type Verb = 'ADD' | 'CHECK' | 'DEL' | 'GC' | 'STATUS' | 'VERSION' | (string & {});

/** One call of a plugin. */
export interface CallOptions {
  /** The configuration; a string is passed to standard input unchanged. */
  readonly conf: JsonObject | string;
  readonly container?: { readonly id: string; readonly path: string };
  /** Default `eth0` if there is a container. */
  readonly ifname?: string;
  /** `CNI_ARGS` */
  readonly args?: string;
  /** Added to the configuration as `prevResult`. */
  readonly prevResult?: JsonObject | undefined;
  /** Attachments that GC must keep; added to the configuration. */
  readonly valid?: readonly { readonly containerID: string; readonly ifname: string }[];
  /** `CNI_PATH`: where delegates are looked up. */
  readonly pluginDirs?: readonly string[];
  /** Applied last; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Number of the request to the kernel that should fail, counted from 1. */
  readonly failAt?: number;
  /** Default 30,000; for executables. */
  readonly timeoutMs?: number;
}

/** The plugin's answer. */
export interface Reply {
  readonly exitCode: number;
  /** Its output on success, if that was a JSON object. */
  readonly result?: JsonObject;
  /** Its output on failure, if that was an error object of the specification. */
  readonly error?: ErrorReply;
  readonly stdout: string;
  readonly stderr: string;
  readonly durationMs: number;
  /** The request that was made to fail, if it was reached. */
  readonly fault?: Fault;
}

/** The environment of a call as a runtime sets it, without variables that the call does not specify. */
export function environmentOf(verb: Verb, call: CallOptions): Record<string, string> {
  const all = {
    CNI_COMMAND: verb,
    CNI_CONTAINERID: call.container?.id,
    CNI_NETNS: call.container?.path,
    CNI_IFNAME: call.ifname ?? (call.container && 'eth0'),
    CNI_ARGS: call.args,
    CNI_PATH: call.pluginDirs?.join(':') ?? '',
    ...call.env,
  };
  return defined(all) as Record<string, string>;
}

/** The text for standard input. */
export function requestOf({ conf, prevResult, valid }: CallOptions): string {
  if (typeof conf === 'string') return conf;
  return JSON.stringify({ ...conf, ...defined({ prevResult, [VALID_ATTACHMENTS]: valid }) });
}

/** Parses a plugin's output as result or error. */
export function toReply(ended: Omit<Reply, 'result' | 'error'>): Reply {
  const printed = tryParse(ended.stdout);
  if (!isObject(printed)) return ended;
  if (ended.exitCode === 0) return { ...ended, result: printed };
  const { code = ErrorCode.unknown, msg = '' } = printed;
  if (typeof code !== 'number' || typeof msg !== 'string') return ended;
  return { ...ended, error: { ...printed, code, msg } as ErrorReply };
}

/** The request that was made to fail. */
export interface Fault {
  /** Counted from 1. */
  readonly request: number;
  readonly what: string;
}

/** The fault that an executable reports on standard error. */
export function faultIn(stderr: string): Fault | undefined {
  const [, request, what = ''] = FAULT_NOTE.exec(stderr) ?? [];
  return request === undefined ? undefined : { request: Number(request), what };
}
