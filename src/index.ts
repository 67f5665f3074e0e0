// What does the library offer? The protocol and the runner, on Node and Bun; plugins are written with `./plugin`.

export {
  type KnownAttachment,
  listAttachments,
  readAttachment,
  type Settings,
} from './attachments/store.ts';
export type { Change } from './chain/change.ts';
export { changeNetwork } from './chain/change.ts';
export type { PluginEntry } from './chain/config/conflist.ts';
export { type Conflist, parseNetwork, parsePlugin } from './chain/config/conflist.ts';
export { findPlugin, parsePluginDirs } from './chain/config/find-plugin.ts';
export type { Diagnostic, OnDiagnostic } from './chain/config/load.ts';
export { type LoadedNetworks, listNetworks, loadFile, loadNetwork } from './chain/config/load.ts';
export {
  findHighestCommon,
  listPluginVersions,
  type PluginVersions,
  pluginVersion,
  type ValidNetwork,
  validateNetwork,
} from './chain/config/plugin-version.ts';
export {
  collectGarbage,
  type GarbageCandidate,
  type GarbagePlan,
  type GcScope,
  planGarbage,
} from './chain/records/collect-garbage.ts';
export { findCachedResult, findNetworkOfAdd } from './chain/records/known-add.ts';
export { type Recovery, type RecoveryScope, recover } from './chain/records/recover.ts';
export type { PluginCondition } from './chain/records/repair.ts';
export {
  type AttachmentCondition,
  type RepairReport,
  type RepairScope,
  repair,
} from './chain/records/repair.ts';
export { buildGcRequest, buildRequest, type RequestParts } from './chain/run/call-plugins.ts';
export type {
  ExecOutcome,
  Invocation,
  KernelTransaction,
  PluginProcess,
  StartPlugin,
} from './chain/run/exec-plugin.ts';
export {
  addNetwork,
  addPlugin,
  checkNetwork,
  checkPlugin,
  deleteNetwork,
  deletePlugin,
  networkStatus,
} from './chain/run/run.ts';
export type {
  Attachment,
  Deadlines,
  FinishEvent,
  HeldAttachment,
  NodeWitness,
  PluginEvent,
  Runtime,
} from './chain/run/runtime.ts';
export type { Exec, ExecCall, ExecReply } from './chain/run/segment.ts';
export { startPlugin } from './chain/run/segment.ts';
export type { PluginSpan } from './chain/run/trace-context.ts';
export type { AttachmentId } from './cni/attachment.ts';
export {
  type CniArgs,
  type CniEnv,
  type Command,
  parseCniArgs,
  parseEnv,
  pickCniArgs,
  renderCniArgs,
} from './cni/env.ts';
export {
  type CalledPlugin,
  CniError,
  type CniErrorOptions,
  ErrorCode,
  type ErrorReply,
  toCniError,
} from './cni/errors.ts';
export type { JsonObject } from './cni/json.ts';
export type { NetworkPlugins } from './cni/plugin-about.ts';
export {
  atLeast,
  CURRENT_VERSION,
  convertResult,
  isSpecVersion,
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
  SPEC_VERSIONS,
  type SpecVersion,
} from './cni/result.ts';
export {
  AttachmentKey,
  Bandwidth,
  IpRange,
  PluginConfig,
  PortMapping,
  VALID_ATTACHMENTS,
} from './cni/schemas.ts';
export { PLUGIN_DEADLINE_MS } from './wait.ts';
