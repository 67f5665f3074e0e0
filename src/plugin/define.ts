// What is a link made of, and what does one call of it get to work with?
import type * as z from 'zod/mini';
import type { CniArgs } from '../cni/cni-args.ts';
import type { CniEnv } from '../cni/env.ts';
import type { JsonObject } from '../cni/json.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import type { Result } from '../cni/result.ts';
import type { SpecVersion } from '../cni/version.ts';
import type { Log } from '../log.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Netns } from '../sys/netns.ts';

/** A verb that reports nothing but failure. */
export type Done = void | Promise<void>;

/**
 * A link: its name, the schema of its configuration, and all five verbs. There is no way to leave a verb out; one
 * without work says so with {@link nothingToDo}.
 */
export interface PluginDefinition<S extends z.core.$ZodType = z.core.$ZodType> {
  readonly name: string;
  /** Schema of the request; keys it does not name stay available in {@link Call.request}. */
  readonly config: S;
  /** Oldest specification version the link works with; 0.1.0 unless given. */
  readonly since?: SpecVersion;
  /**
   * `required`: ADD and CHECK fail without a namespace other than the plugin's own. `unused`: the path is only
   * passed around, as IPAM plugins do.
   */
  readonly netns: 'required' | 'unused';
  add(call: Call<z.output<S>>): Result | Promise<Result>;
  check(call: Call<z.output<S>>): Done;
  /**
   * Puts back what CHECK would miss, before it looks: rules, addresses of the host, leases. What stands is left as it
   * is, above all the container's interface and its connections. Runs with CHECK under `CATENA_REPAIR=1`; without it a
   * damaged attachment needs DEL and ADD.
   */
  repair?(call: Call<z.output<S>>): Done;
  del(call: Call<z.output<S>>): Done;
  gc(call: Call<z.output<S>>): Done;
  status(call: Call<z.output<S>>): Done;
}

/** Everything one invocation of a verb may use. Sockets open when first touched and close by themselves. */
export interface Call<Conf = unknown> {
  readonly env: CniEnv;
  /** The whole environment of the invocation, as it came. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** `CNI_ARGS`, split. */
  readonly args: CniArgs;
  /** Name of the network. */
  readonly network: string;
  /** `cniVersion` of the configuration. */
  readonly version: SpecVersion;
  /** The request, decoded by the link's schema. */
  readonly conf: Conf;
  /** The request as it came, unknown keys included; what a delegate receives. */
  readonly request: JsonObject;
  /** The request before it was decoded, for what decoding loses: keys that are there twice. */
  readonly requestText: string;
  /** In the shape of 1.1.0 whatever the configuration's version. */
  readonly prevResult: Result | undefined;
  /** Attachments that GC must keep; undefined when the runtime sent no list. */
  readonly validAttachments: readonly AttachmentKey[] | undefined;
  readonly log: Log;
  /** rtnetlink in the namespace the link was started in. */
  readonly host: NetlinkSocket;
  /** nf_tables in the namespace the link was started in. */
  readonly hostNft: NetlinkSocket;
  /** rtnetlink in the container's namespace. @throws CniError when there is no such namespace */
  readonly container: NetlinkSocket;
  /** The container's namespace. @throws CniError when there is no such namespace */
  readonly containerNetns: Netns;
  /** The container's namespace, or undefined when its path is empty, gone or no namespace (DEL). */
  findContainerNetns(): Netns | undefined;
  /** Registers how to take back a step just done; if ADD fails later, these run last first. */
  onFailure(what: string, undo: () => Done): void;
  /**
   * Deletes devices of the host, then does what must not be done before they are gone; also when deleting failed, which
   * is reported all the same. Where several links are served by one process, the devices of all go together, after the
   * last link was called: so this is the last thing that a verb does.
   */
  removeLinks(links: readonly Link[], then?: () => Done): Promise<void>;
  /**
   * The plugin named `type` on `CNI_PATH`, to be called with this very request unless another one is given.
   * @throws CniError when not found
   */
  delegate(type: string, request?: JsonObject): Delegate;
}

/** A plugin that another one runs with its own request (SPEC "Plugin Delegation"). */
export interface Delegate {
  add(): Promise<Result>;
  check(): Promise<void>;
  del(): Promise<void>;
  gc(): Promise<void>;
  status(): Promise<void>;
}

/** Names the parts of a link; returns its argument with the types tied together. */
export function definePlugin<S extends z.core.$ZodType>(
  definition: PluginDefinition<S>,
): PluginDefinition<S> {
  return definition;
}

/** A verb that has no work, with the reason for the reader. */
export function nothingToDo(_reason: string): () => void {
  return () => {};
}
