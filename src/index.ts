// What does the library offer? The protocol and the runner, on Node and Bun; plugins are written with `./plugin`.
export {
  type AttachmentId,
  type CachedAttachment,
  parseRecord,
  renderAttachment,
} from './chain/cache-record.ts';
export { collectGarbage } from './chain/collect-garbage.ts';
export { type Conflist, parseNetwork, parsePlugin } from './chain/conflist.ts';
export type { Exec, ExecCall, ExecReply } from './chain/exec.ts';
export type {
  ExecOutcome,
  Invocation,
  KernelTransaction,
  PluginProcess,
  StartPlugin,
} from './chain/exec-plugin.ts';
export { findPlugin, parsePluginDirs } from './chain/find-plugin.ts';
export { findCachedResult, findFrozenNetwork } from './chain/frozen.ts';
export { type Found, type GarbagePlan, type GcScope, planGarbage } from './chain/garbage.ts';
export { type LoadedNetworks, listNetworks, loadFile, loadNetwork } from './chain/load.ts';
export type { Diagnostic, OnDiagnostic } from './chain/network-file.ts';
export {
  findHighestCommon,
  listPluginVersions,
  type PluginVersions,
  pluginVersion,
  type ValidNetwork,
  validateNetwork,
} from './chain/plugin-version.ts';
export { type Recovery, type RecoveryScope, recover } from './chain/recover.ts';
export {
  type Condition,
  type LinkCondition,
  type RepairReport,
  type RepairScope,
  repair,
} from './chain/repair.ts';
export { buildGcRequest, buildRequest, type RequestParts } from './chain/request.ts';
export {
  type AttachmentFilter,
  type AttachmentList,
  DEFAULT_CACHE_DIR,
  listAttachments,
  readAttachment,
} from './chain/result-cache.ts';
export { addNetwork, checkNetwork, deleteNetwork, networkStatus } from './chain/run.ts';
export {
  type Attachment,
  DEFAULT_DEADLINE_MS,
  type Deadlines,
  type FinishEvent,
  type LinkEvent,
  type Runtime,
} from './chain/runtime.ts';
export { addPlugin, checkPlugin, deletePlugin } from './chain/single.ts';
export { startPlugin } from './chain/start.ts';
export type { LinkSpan } from './chain/trace-context.ts';
export type { NodeWitness, Traced } from './chain/traced.ts';
export { Bandwidth, IpRange, PortMapping } from './cni/capabilities.ts';
export { type CniArgs, parseCniArgs, pickCniArgs, renderCniArgs } from './cni/cni-args.ts';
export type { PluginEntry } from './cni/conflist.ts';
export { type CniEnv, type Command, parseEnv } from './cni/env.ts';
export {
  CniError,
  type CniErrorOptions,
  ErrorCode,
  type ErrorReply,
  type LinkFailure,
  toCniError,
} from './cni/errors.ts';
export type { JsonObject } from './cni/json.ts';
export type { NetworkPlugins } from './cni/network-plugins.ts';
export { AttachmentKey, PluginConfig, VALID_ATTACHMENTS } from './cni/plugin-config.ts';
export {
  convertResult,
  parseResult,
  type Result,
  type ResultDns,
  type ResultFamily,
  type ResultInterface,
  type ResultIp,
  type ResultIpWithFamily,
  type ResultOf,
  type ResultRoute,
  renderResult,
} from './cni/result.ts';
export { atLeast, CURRENT_VERSION, isSpecVersion, SPEC_VERSIONS, type SpecVersion } from './cni/version.ts';
export type { AttachmentRecord, LinkOutcome, RecordedError } from './journal/record.ts';
export { listRecords, type RecordList, readRecord } from './journal/store.ts';
