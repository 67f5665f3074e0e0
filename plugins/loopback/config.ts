// What may be configured, and what does each option mean?
import type * as z from 'zod/mini';
import { PluginConfig } from '../../src/cni/schemas.ts';

/** The request as loopback sees it: it has no options of its own. */
export const LoopbackConf = PluginConfig;
export type LoopbackConf = z.output<typeof LoopbackConf>;
