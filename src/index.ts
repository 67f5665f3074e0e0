// What does the library offer? The protocol and the runner, on Node as well as on Bun; links are in `./plugin`.
export { type Conflist, parseNetwork } from './chain/conflist.ts';
export {
  DEFAULT_DEADLINE_MS,
  type ExecOutcome,
  type Invocation,
  type PluginProcess,
  type StartPlugin,
  startPlugin,
} from './chain/exec-plugin.ts';
export { findPlugin, parsePluginDirs } from './chain/find-plugin.ts';
export {
  type Diagnostic,
  type LoadedNetworks,
  loadFile,
  loadNetwork,
  loadNetworks,
} from './chain/load.ts';
export { listPluginVersions, type PluginVersions, validateNetwork } from './chain/plugin-version.ts';
export { buildGcRequest, buildRequest, type RequestParts } from './chain/request.ts';
export {
  type AttachmentId,
  type CachedAttachment,
  DEFAULT_CACHE_DIR,
  listAttachments,
  readAttachment,
} from './chain/result-cache.ts';
export {
  addNetwork,
  checkNetwork,
  collectGarbage,
  deleteNetwork,
  findFrozenNetwork,
  type GcScope,
  networkStatus,
} from './chain/run.ts';
export type { Attachment, LinkEvent, Runtime } from './chain/runtime.ts';
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
export { AttachmentKey, PluginConfig, VALID_ATTACHMENTS } from './cni/plugin-config.ts';
export {
  convertResult,
  parseResult,
  type Result,
  type ResultDns,
  type ResultInterface,
  type ResultIp,
  type ResultRoute,
  renderResult,
} from './cni/result.ts';
export { atLeast, CURRENT_VERSION, isSpecVersion, SPEC_VERSIONS, type SpecVersion } from './cni/version.ts';
