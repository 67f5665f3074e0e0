// What does a plugin author import?
export { pickCniArgs } from '../cni/cni-args.ts';
export { CniError, ErrorCode } from '../cni/errors.ts';
export { type AttachmentKey, PluginConfig } from '../cni/plugin-config.ts';
export type { Result, ResultDns, ResultInterface, ResultIp, ResultRoute } from '../cni/result.ts';
export { type Call, type Done, definePlugin, nothingToDo, type PluginDefinition } from './define.ts';
export type { Delegate } from './delegate.ts';
export { runPlugin } from './run.ts';
export { tryAll } from './try-all.ts';
