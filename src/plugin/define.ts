// What defines a plugin, and what does one call of it get to work with?

import type * as z from 'zod/mini';
import { type AttachmentId, findOwner } from '../cni/attachment.ts';
import type { ChangeMode, CniArgs, CniEnv, HandoverMode } from '../cni/env.ts';
import type { JsonObject } from '../cni/json.ts';
import type { Result, SpecVersion } from '../cni/result.ts';
import type { AttachmentKey } from '../cni/schemas.ts';
import type { Log } from '../log.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Netns } from '../sys/netns.ts';

type Owner = Pick<AttachmentId, 'containerId' | 'ifname'>;

/**
 * The attachments that GC keeps: those that the runtime lists, and those begun after GC. Query it only after listing the
 * candidates for deletion: everything found of an attachment was then made after its note, so the answer is reliable.
 */
export interface KeptAttachments {
  /** When GC began, in milliseconds of the clock of the kernel's file times. */
  readonly since: number;
  /** The container id may come from a note in the kernel, which has a digest instead of a long id. */
  has(owner: Owner): boolean;
  /** Whether a plugin of ours took part in its ADD, and so noted when it began. */
  isNoted(owner: Owner): boolean;
  /** Whether any of them satisfies the test: for resources that do not name their attachment in full. */
  some(test: (owner: AttachmentId) => boolean): boolean;
}

/**
 * Whether a note in the kernel names an attachment of the network that GC does not keep. Call it only for notes that were listed
 * earlier: see {@link KeptAttachments}.
 */
export function isStaleNote(note: string | undefined, network: string, kept: KeptAttachments): boolean {
  const owner = findOwner(note);
  return owner?.network === network && !kept.has(owner);
}

/** Result of a verb that reports nothing but failure. */
export type Done = void | Promise<void>;

/** Undoes a step of an ADD. @param failed what could not be undone before */
export type Undo = (failed: readonly Error[]) => Done;

/**
 * A plugin: its name, the schema of its configuration, and all five verbs. No verb can be left out; one
 * without work is {@link nothingToDo}.
 */
export interface PluginDefinition<S extends z.core.$ZodType = z.core.$ZodType> {
  readonly name: string;
  /** Schema of the request; keys it does not name stay available in {@link Call.request}. */
  readonly config: S;
  /** Oldest specification version the plugin supports; 0.1.0 unless given. */
  readonly since?: SpecVersion;
  /**
   * `required`: ADD and CHECK fail without a namespace other than the plugin's own. `unused`: the path is only
   * passed on, as IPAM plugins do.
   */
  readonly netns: 'required' | 'unused';
  /** Refuses the configuration, before ADD, CHECK and STATUS. DEL and GC must work with what it refuses. @throws CniError 7 */
  validate?(conf: z.output<S>): void;
  add(call: Call<z.output<S>>): Result | Promise<Result>;
  check(call: Call<z.output<S>>): Done;
  /**
   * Puts back what CHECK would find missing, before CHECK runs: rules, host addresses, leases. What exists is left unchanged,
   * above all the container's interface and its connections. Runs with CHECK under `CATENA_REPAIR=1`; without it a
   * damaged attachment needs DEL and ADD.
   */
  repair?(call: Call<z.output<S>>): Done;
  /**
   * Continues work on an attachment that is never done, such as keeping a lease. The daemon calls it when the note that the
   * plugin left is due (src/node/upkeep), and for each note once when it starts. Runs in place of CHECK under `CATENA_UPKEEP`.
   * @param restarted whether this is the first call since the daemon started
   */
  upkeep?(call: Call<z.output<S>>, restarted: boolean): Done;
  /**
   * Changes the attachment into one that the reference plugin of the same name can delete: rules that only this plugin knows are
   * replaced by rules of the reference's kind, the new ones first so that traffic continues. Runs with CHECK under
   * `CATENA_HANDOVER`; the namespace may be gone, and a second run changes nothing. Our own CHECK and DEL must accept the
   * result.
   * @returns a phrase for each part that was handed over; with `look` nothing is changed
   */
  handOver?(call: Call<z.output<S>>, mode: HandoverMode): readonly string[] | Promise<readonly string[]>;
  /**
   * Changes a running attachment into what the request configures, whatever it was before. What both have in common stays,
   * above all open connections; values from before ADD stay known to DEL. Runs in place of CHECK under `CATENA_CHANGE`, with
   * the result of the whole ADD as `prevResult`. The runner undoes a change by another one, so a second run with the same
   * request changes nothing. A plugin without it has no option that can be changed.
   * @param former the request that this one takes the place of; undefined from a runner that does not tell
   * @returns `prevResult` with what has changed; with `look` nothing is changed, but what cannot be done is refused
   */
  change?(
    call: Call<z.output<S>>,
    mode: ChangeMode,
    former: z.output<S> | undefined,
  ): Result | Promise<Result>;
  /** Options of the configuration that `change` may be given with another value, besides capabilities; none of them matters to DEL. */
  readonly changeable?: readonly string[];
  del(call: Call<z.output<S>>): Done;
  gc(call: Call<z.output<S>>): Done;
  status(call: Call<z.output<S>>): Done;
}

/** What an invocation of a verb says of itself. */
export interface CallFacts<Conf = unknown> {
  readonly env: CniEnv;
  /** The complete, unmodified environment of the invocation. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly network: string;
  readonly version: SpecVersion;
  /** The request, decoded by the plugin's schema. */
  readonly conf: Conf;
  /** The request as received, including unknown keys; a delegated plugin receives this. */
  readonly request: JsonObject;
  /** The request's text before it was decoded, for what decoding loses: duplicate keys. */
  readonly requestText: string;
  /** In the format of 1.1.0, whatever the configuration's version. */
  readonly prevResult: Result | undefined;
  readonly log: Log;
}

/** Everything one invocation of a verb may use. Sockets are opened on first use and closed automatically. */
export interface Call<Conf = unknown> extends CallFacts<Conf> {
  /**
   * `CNI_ARGS`, parsed on first use: a plugin that does not use them works with malformed ones too, as in the reference.
   * @throws CniError 4 when they are not a list of pairs
   */
  readonly args: CniArgs;
  /** Attachments that GC must keep; undefined if the runtime sent no list. */
  readonly validAttachments: readonly AttachmentKey[] | undefined;
  /**
   * What GC must keep: the valid attachments, and those begun after GC. Undefined if the runtime sent
   * no list, and for other verbs.
   */
  readonly kept: KeptAttachments | undefined;
  /** rtnetlink in the namespace the plugin was started in. */
  readonly host: NetlinkSocket;
  /** nf_tables in the namespace the plugin was started in. */
  readonly hostNft: NetlinkSocket;
  /** rtnetlink in the container's namespace. @throws CniError if there is no such namespace */
  readonly container: NetlinkSocket;
  /** The container's namespace. @throws CniError if there is none, or (CHECK) if it is already another container's */
  readonly containerNetns: Netns;
  /**
   * The container's namespace. Undefined if its path is empty, does not exist or is not a namespace; or if it is the plugin's own
   * or (DEL) that of another container.
   * @param again examine it again, although no other container's interface was in it before: one may have been added since
   */
  findContainerNetns(again?: boolean): Netns | undefined;
  /** Registers how to undo a step just done. If ADD fails later, these run last first. */
  onFailure(what: string, undo: Undo): void;
  /**
   * Deletes host devices, then calls `then`, which must not run before they are gone, and does not if deleting failed: their addresses
   * would go to others. If one process serves several plugins, the devices of all are deleted together after the last plugin was called, so
   * this must be the last thing that a verb does.
   */
  removeDevices(devices: readonly Link[], then?: () => Done): Promise<void>;
  /**
   * Does what must not be done before everything is deleted that this verb, its delegates and the other plugins of the chain delete
   * with {@link removeDevices}; not at all if something of that failed. What a repeated DEL needs is given up with it.
   */
  onceDeleted(work: () => Done): Promise<void>;
  /**
   * The plugin named `type` on `CNI_PATH`, to be called with this same request unless another one is given.
   * @throws CniError when not found
   */
  delegate(type: string, request?: JsonObject): Delegate;
}

/** A plugin that another one runs with its own request (SPEC "Plugin Delegation"). */
export interface Delegate {
  add(): Promise<Result>;
  check(): Promise<void>;
  /** Hands the attachment over as {@link PluginDefinition.handOver} does; a foreign plugin has nothing to hand over. */
  handOver(): Promise<readonly string[]>;
  del(): Promise<void>;
  gc(): Promise<void>;
  status(): Promise<void>;
}

/** Defines a plugin; returns its argument, with types inferred. */
export function definePlugin<S extends z.core.$ZodType>(
  definition: PluginDefinition<S>,
): PluginDefinition<S> {
  return definition;
}

/** A verb without work; the reason is for readers of the code. */
export function nothingToDo(_reason: string): () => void {
  return () => {};
}
